"""Flows of heavy ball, Nesterov's method, RMSProp and Adam, each through its own edge of stability."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pandas
from jax import lax
from jaxtyping import PyTree
from matplotlib.figure import Figure

from principalflow import optimizers
from principalflow._lab import Claim, Table, Tables
from principalflow.flows import CentralRMSProp, CentralRMSPropState, StepFlow
from principalflow.models import MLP, loss
from principalflow.objective import Objective, Vector
from principalflow.reproduce import _league
from principalflow.reproduce._league import RUN, Model, Race

HEAVY_BALL, NESTEROV, RMSPROP, ADAM = "heavy ball", "Nesterov", "RMSProp", "Adam"
CENTRAL, ONE = "central, k = 4", "one step, order 0"
ORDERS = range(5)
_MOMENTUM, _DECAY, _BETA2, _EPS = 0.9, 0.99, 0.999, 1e-8
# With a momentum of 0.9 heavy ball goes through one spike here and then stays below its edge.
_HEAVY_BALL_MOMENTUM = 0.5


@dataclass(frozen=True)
class Config:
    """The network, and for each optimiser its rate and the steps from which it is followed."""

    rates: tuple[tuple[str, float, int], ...] = (
        (HEAVY_BALL, 0.07, 850),
        (NESTEROV, 0.04, 500),
        (RMSPROP, 5e-4, 800),
        (ADAM, 4e-3, 1250),
    )
    data: str = "digits"
    samples: int = 300
    hidden: tuple[int, ...] = (32, 32)
    steps: int = 200
    rtol: float = 1e-5
    every: int = 4
    looks: int = 10
    seed: int = 0


class _Start(NamedTuple):
    """Parameters and state of an optimiser."""

    theta: Vector
    state: PyTree


def run(config: Config) -> Tables:
    objective, parts = _objective(config), []
    for name, rate, begin in config.rates:
        tx = _optimizer(name, rate)
        start = _trained(objective, tx, begin)
        edge = optimizers.edge(tx, start.state, objective.unravel(start.theta))
        flows = {order: StepFlow.from_optax(tx, state=start.state, order=order) for order in ORDERS}
        race = Race(
            name,
            objective,
            start.theta,
            config.steps,
            1.0,
            threshold=edge.threshold,
            step=flows[0].step,
            begin=lambda theta, flow=flows[0]: flow.start(objective, theta),
            parameters=flows[0].parameters,
            metric=_metric(objective, tx, start) if name in (RMSPROP, ADAM) else None,
        )
        way = {"rtol": config.rtol, "atol": config.rtol / 1000, "max_steps": 10_000}
        models = {ONE: Model(StepFlow.from_optax(tx, state=start.state, period=1, order=0), way)}
        models |= {_two_steps(order): Model(flow, way) for order, flow in flows.items()}
        if name == RMSPROP:
            nu = start.state[0].nu
            central = CentralRMSProp(rate, decay=_DECAY, eps=_EPS, nu=objective.flat("nu", nu))
            models[CENTRAL] = Model(central)
        parts.append(_league.follow(race, models, config.every, config.looks))
    return {name: pandas.concat([part[name] for part in parts], ignore_index=True) for name in ("errors", "courses")}


def _two_steps(order: int) -> str:
    return f"two steps, order {order}"


def _optimizer(name: str, rate: float) -> optax.GradientTransformation:
    return {
        HEAVY_BALL: optax.sgd(rate, momentum=_HEAVY_BALL_MOMENTUM),
        NESTEROV: optax.sgd(rate, momentum=_MOMENTUM, nesterov=True),
        RMSPROP: optax.rmsprop(rate, decay=_DECAY, eps=_EPS, eps_in_sqrt=False),
        ADAM: optax.adam(rate, b1=_MOMENTUM, b2=_BETA2, eps=_EPS),
    }[name]


def _metric(objective: Objective, tx: optax.GradientTransformation, start: _Start) -> Callable[[PyTree], Vector]:
    """Returns what makes the preconditioner of a flow's state, in whose metric the threshold counts."""

    def metric(state: PyTree) -> Vector:
        if isinstance(state, CentralRMSPropState):
            average, theta = start.state[0]._replace(nu=objective.unravel(state.nu)), state.centre
        else:
            logarithms = state.optimizer[0]
            average, theta = logarithms._replace(nu=jax.tree.map(jnp.exp, logarithms.nu)), state.theta
        return optimizers.edge(tx, (average, *start.state[1:]), objective.unravel(theta)).preconditioner

    return metric


def _objective(config: Config) -> Objective:
    inputs, labels = _league.images(config.data, config.samples)
    inputs = inputs.reshape(config.samples, -1)
    key = jax.random.key(config.seed)
    network = MLP(inputs.shape[1], config.hidden, labels.shape[1], key, activation="tanh")
    return Objective(loss("mean-square"), network, (inputs, labels))


def _trained(objective: Objective, tx: optax.GradientTransformation, steps: int) -> _Start:
    """Returns where an optimiser comes in so many steps on all samples."""

    @eqx.filter_jit
    def train(objective: Objective) -> _Start:
        def step(start: _Start, _: None) -> tuple[_Start, None]:
            gradient = objective.unravel(objective.gradient(start.theta))
            updates, state = tx.update(gradient, start.state, objective.unravel(start.theta))
            return _Start(start.theta + objective.flat("updates", updates), state), None

        start = _Start(objective.theta, tx.init(objective.unravel(objective.theta)))
        return lax.scan(step, start, length=steps)[0]

    return train(objective)


def claims(config: Config, tables: Tables) -> list[Claim]:
    distances = tables["errors"].pivot_table("distance", "race", "model", sort=False, dropna=False)
    two_steps = distances[[_two_steps(order) for order in ORDERS]]
    return [
        Claim.at_most(
            "RMSProp is followed through its edge at order 2: distance over the path's length",
            distances.loc[RMSPROP, _two_steps(2)],
            0.002,
        ),
        Claim.at_most(
            "Adam is followed to within a hundredth at some order: the smallest distance",
            two_steps.loc[ADAM].min(),
            0.01,
        ),
        Claim.at_most(
            "Orders 0 to 4 are stable for every optimiser: the largest distance",
            float(two_steps.to_numpy().max()),
            0.1,
        ),
        *(
            Claim.at_least(
                f"{name}: at its best order the flow of two steps is closer than the usual differential equation: "
                "ratio of distances",
                distances.loc[name, ONE] / two_steps.loc[name].min(),
                5,
            )
            for name in distances.index
        ),
        Claim.above(
            "RMSProp: order 2 is closer than the central flow: ratio of distances",
            distances.loc[RMSPROP, CENTRAL] / distances.loc[RMSPROP, _two_steps(2)],
            1,
        ),
        *(_at_edge(name, tables["courses"]) for name in distances.index),
    ]


def _at_edge(name: str, courses: Table) -> Claim:
    found = courses[(courses["race"] == name) & (courses["model"] == RUN)]["sharpness"].dropna() / 2
    return Claim.at_most(
        f"{name} is at its own edge: how far the median of λ₀ over its threshold is from 1",
        abs(float(found.median()) - 1),
        0.15,
    )


def draw(config: Config, tables: Tables) -> Figure:
    columns = {"sharpness": "λ₀ over its threshold, times 2", "loss": "loss at the centre", "amplitude": "amplitude"}
    return _league.draw(tables, columns)


def explore(config: Config, tables: Tables) -> dict[str, Any]:
    return _league.explore(tables)


SETTINGS = {
    "quick": Config(steps=100),
    "cpu": Config(),
    "paper": Config(),
}
