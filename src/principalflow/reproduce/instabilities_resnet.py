"""On a ResNet too the loss rises with the stability coefficient, as under the flow up the gradient.

Figures instabilities_resnet and edge_of_stability_results_cifar_resnet.
"""

import numpy as np

from principalflow._lab import Claim, Table, Tables
from principalflow.reproduce import _edge, local_flows
from principalflow.reproduce._flows import stack
from principalflow.reproduce._local import UP
from principalflow.reproduce._statistics import area_under_curve
from principalflow.reproduce.instabilities import COEFFICIENT
from principalflow.reproduce.local_flows import Config

_FEWEST = 8  # rises, for a correlation


def run(config: Config) -> Tables:
    steps = {run.label: _edge.steps_of(run, COEFFICIENT) for run in _edge.all_trained(config)}
    return {"steps": stack(steps, "network"), **local_flows.run(config)}


def claims(config: Config, tables: Tables) -> list[Claim]:
    found = []
    for name, steps in tables["steps"].groupby("network", sort=False):
        rises = steps["loss_change"] > 0
        by_sharpness = area_under_curve(steps["h_lambda"], rises)
        found += [
            Claim.at_least(
                f"{name}: the loss rises where λ₀ > 2/h: share of the {rises.sum()} rises",
                _edge.share(steps.loc[rises, "h_lambda"] > 2),
                0.9,
            ),
            Claim.at_least(
                f"{name}: Re sc₀ tells at which steps the loss rises: area under the ROC curve (1/2 is chance)",
                area_under_curve(steps[COEFFICIENT], rises),
                0.9,
                note=f"By h λ₀ alone: {by_sharpness:.3f}.",
            ),
        ]
    risen = tables["changes"][tables["changes"]["loss_change"] > 0]
    followed = risen.dropna(subset=["loss_change_up", "sharpness_change_up"])
    note = f"The flow was followed from {len(followed)} of {len(risen)} rises, for {config.time:g} of a step."
    return [
        *found,
        Claim.above(
            "A rise is the larger, the more the positive flow raises the loss from there: rank correlation",
            _correlation(followed, "loss_change"),
            0.5,
            note=note,
        ),
        Claim.above(
            "There λ₀ rises the more, the more the positive flow raises it: rank correlation",
            _correlation(followed, "sharpness_change"),
            0.5,
            note=note,
        ),
        _edge.cost_claim(tables["cost"], f"The paper follows flows by Euler's steps of {_edge.EULER_STEP:g}."),
    ]


def _correlation(changes: Table, quantity: str) -> float:
    enough = len(changes) >= _FEWEST
    return float(changes[quantity].corr(changes[f"{quantity}_{UP}"], method="spearman")) if enough else np.nan


draw = local_flows.draw
SETTINGS = {
    "quick": Config(_edge.RESNET["quick"], window=12, rises=20, time=0.25),
    "cpu": Config(_edge.RESNET["cpu"], window=8, rises=12, time=0.25),
    "paper": Config(_edge.RESNET["paper"], rises=100),
}
trainings = _edge.trainings
STAND_INS = _edge.STAND_INS_RESNET
