"""Every flow on the same problems: which model of descent is closest where, and at what cost (beyond the paper)."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from principalflow import data as datasets
from principalflow.descent import descend
from principalflow.flows import Principal, SpectralFlow
from principalflow.functions import banana, cosine_valley
from principalflow.models import MLP, loss
from principalflow.objective import Objective
from principalflow.reproduce._counted import COMPLEX, CONTRACTION, PRODUCT, measure
from principalflow.reproduce._experiment import Claim, Experiment, Table, Tables
from principalflow.reproduce._flows import COLOURS, named, stack
from principalflow.reproduce.quadratic_2d import valley
from principalflow.spectrum import top_eigenpairs

ORDERS = tuple(f"order {n}" for n in range(1, 6))
COMPLEX_FLOWS = ("PF", "PF, principal branch", "PF with third-order term")
FLOWS = ("NGF", "IGR flow", "third-order flow", *ORDERS, *COMPLEX_FLOWS)
QUADRATIC, SMALL, EDGE, MNIST = "quadratic valley", "small MLP, h λ₀ = 0.5", "digits MLP at the edge", "MNIST MLP"


@dataclass(frozen=True)
class Config:
    """The problems, and how well flows are followed.

    Rates of the small MLP are h λ₀ at its start. The digits MLP is trained at its rate for each of `digits_training`
    numbers of steps: before, near and at the edge. The MNIST MLP (no samples: left out) is trained for
    `mnist_training` steps at `mnist_h`, and then followed at the rate that puts it at `mnist_h_lambda`. Tolerances are
    relative to descent's step.
    """

    diagonal: tuple[float, float] = (1.0, 0.01)
    quadratic_h: float = 0.9
    banana_rates: tuple[float, ...] = (0.0006, 0.0017)
    cosine_start: float = -2.0
    cosine_h: float = 0.85
    small_rates: tuple[float, ...] = (0.5, 1.5, 2.5)
    digits_samples: int = 600
    digits_h: float = 0.0575
    digits_training: tuple[int, int, int] = (50, 200, 1600)
    mnist_samples: int = 0
    mnist_h: float = 0.01
    mnist_training: int = 30
    mnist_h_lambda: float = 1.9
    mnist_steps: int = 1
    steps: int = 5
    tolerance: float = 1e-4
    max_evaluations: int = 301
    network_tolerance: float = 1e-3
    network_max_evaluations: int = 121
    seed: int = 0


class _Problem(NamedTuple):
    name: str
    objective: Objective
    theta: Any
    h: float
    steps: int


def run(config: Config) -> Tables:
    errors, facts = {}, []
    for name, objective, theta, h, steps in _problems(config):
        large = objective.theta.size > 1000
        tolerance = config.network_tolerance if large else config.tolerance
        most = config.network_max_evaluations if large else config.max_evaluations
        flows = {flow: _krylov_within(tolerance, of) for flow, of in named(h, FLOWS).items()}
        errors[name] = measure(objective, theta, h, steps, flows, tolerance, most)
        facts.append((name, objective.theta.size, h, h * _sharpness(objective, theta), tolerance))
    columns = ["problem", "parameters", "h", "h_lambda", "tolerance"]
    return {"errors": stack(errors, "problem"), "problems": pandas.DataFrame(facts, columns=columns)}


def claims(config: Config, tables: Tables) -> list[Claim]:
    one, five = (_errors(tables, step) for step in (1, config.steps))
    h_lambda = tables["problems"].set_index("problem")["h_lambda"]
    below, above = (list(h_lambda.index[h_lambda < 1]), list(h_lambda.index[h_lambda >= 1]))
    pairs = one.loc[["NGF", *ORDERS], below].to_numpy()
    found = [
        Claim(
            "On the quadratic the PF is descent: its error after five steps, up to the solver's tolerance",
            five.loc["PF", QUADRATIC],
            "<",
            config.steps * config.tolerance,
            note=f"{_summary(tables, config)} A cost counts every evaluation of a field and every Hessian product in "
            f"it: a gradient is 1, a product {PRODUCT}, a contraction of third derivatives {CONTRACTION}, and at "
            f"complex parameters {COMPLEX} times as much. An error is the distance from descent over the length of its "
            "last step, imaginary part included.",
        ),
        Claim(
            "There no real flow is near it: the smallest error of one after five steps",
            five.loc[[*FLOWS[:3], *ORDERS], QUADRATIC].min(),
            ">",
            0.1,
        ),
        Claim(
            "Where h λ₀ is below 1, each order of backward error analysis improves on the one before, in one step: "
            "share of the improvements",
            float(np.mean(pairs[1:] < pairs[:-1])),
            "==",
            1,
            note="The orders are sure to improve only as h goes to zero. On the cosine valley the curvature changes "
            "within one step by more than itself, and the later terms of the series grow.",
        ),
        Claim(
            "On the small MLP at h λ₀ = 0.5 order 5, which needs no Hessian, is closer than the PF in one step: the "
            "PF's error over its",
            one.loc["PF", SMALL] / one.loc["order 5", SMALL],
            ">",
            1,
        ),
        Claim(
            "There it is also cheaper: the PF's cost over its",
            _costs(tables).loc["PF", SMALL] / _costs(tables).loc["order 5", SMALL],
            ">",
            10,
        ),
        *(
            Claim(
                f"Where h λ₀ is above 1, the closest flow after {steps} is a principal one: share of such problems",
                float(np.mean([closest[name] in ("PF", "PF with third-order term") for name in above])),
                "==",
                1,
                note=f"Above 1 are: {_listed(closest[above])}. A curvature above 1/h matters only by the gradient's "
                "share along it: early in training that share is next to nothing, and a real flow is closer. At "
                "h λ₀ = 2.5 the small MLP's first step is so long that no expansion at its start holds.",
            )
            for steps, closest in (
                ("one step", one.idxmin()),
                ("five steps", five[five.columns.drop(MNIST, "ignore")].idxmin()),
            )
        ),
        Claim(
            "The third-order term brings the PF closer to descent in one step: share of the problems",
            float(np.mean(one.loc["PF with third-order term"] < one.loc["PF"])),
            ">",
            0.5,
        ),
    ]
    found += [
        Claim(
            f"At the edge, after {steps} {'step' if steps == 1 else 'steps'}, the PF beats the {rival} by 5 times "
            "and more: ratio of errors",
            _errors(tables, steps).loc[rival, EDGE] / _errors(tables, steps).loc["PF", EDGE],
            ">=",
            5,
            note=_why_not(tables, rival, steps),
        )
        for steps in (1, 2)
        for rival in ("NGF", "IGR flow", "PF, principal branch")
    ]
    for name, most in ((EDGE, 30), (MNIST, 60)):
        if name in one:
            found += _krylov_claims(tables, name, most)
    if MNIST in one:
        rivals = one.loc[["NGF", "IGR flow"], MNIST].min()
        sentence = "On the MNIST MLP the PF beats the NGF and the IGR flow in one step: the smaller ratio of errors"
        found.append(Claim(sentence, rivals / one.loc["PF", MNIST], ">", 1))
    return found


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(1.35 * len(tables["problems"]) + 3, 15), layout="constrained")
    first, last, cost = figure.subplots(3, 1)
    for ax, steps in ((first, 1), (last, config.steps)):
        errors = _errors(tables, steps)
        _heat_map(ax, errors, tables, (-4, 0), "log10 of the relative error")
        ax.set_title(f"error after {steps} {'step' if steps == 1 else 'steps'}, over the length of descent's step")
    _heat_map(cost, _costs(tables), tables, (0, 5), "log10 of the cost")
    cost.set_title("cost of the first step, in gradients")
    return figure


def explore(config: Config, tables: Tables) -> dict[str, Any]:
    """Error against cost, and all numbers."""
    import plotly.graph_objects as go

    errors, scatter = tables["errors"], go.Figure()
    for name in FLOWS:
        rows = errors[(errors["flow"] == name) & (errors["step"] == 1)]
        marker = {"color": COLOURS.get(name, "#999999"), "size": 9}
        text = rows["problem"]
        scatter.add_scatter(
            x=rows["cost"], y=rows["relative_error"], mode="markers", name=name, text=text, marker=marker
        )
    scatter.update_xaxes(type="log", title="cost of the first step, in gradients")
    scatter.update_yaxes(type="log", title="error over the length of descent's step", exponentformat="e")
    shown = errors.assign(relative_error=errors["relative_error"].map("{:.2g}".format), cost=errors["cost"].round())
    columns = ["problem", "flow", "step", "relative_error", "cost", "evaluations", "most_products", "status"]
    cells = {"values": [shown[name] for name in columns]}
    table = go.Figure(go.Table(header={"values": [name.replace("_", " ") for name in columns]}, cells=cells))
    return {
        "Error against cost in one step: the best are at the lower left. Point at a dot to see its problem.": scatter,
        "All numbers. A flow that ended early (stuck at a jump of its field, or diverged) has no later rows.": table,
    }


def _problems(config: Config) -> Iterator[_Problem]:
    yield _Problem(QUADRATIC, valley(config.diagonal), np.ones(2), config.quadratic_h, config.steps)
    objective = banana()
    for h in config.banana_rates:
        yield _Problem(f"banana, h = {h:g}", objective, objective.theta, h, config.steps)
    yield _Problem("cosine valley", cosine_valley(), np.array([config.cosine_start]), config.cosine_h, config.steps)
    random = np.random.default_rng(config.seed)
    objective = _network((10,), random.standard_normal((5, 2)), random.standard_normal((5, 1)), config.seed)
    for z in config.small_rates:
        h = z / _sharpness(objective, objective.theta)
        yield _Problem(f"small MLP, h λ₀ = {z:g}", objective, objective.theta, h, config.steps)
    digits = datasets.load("digits", config.digits_samples, standardize=False, one_hot=True)
    objective = _network((32, 32), digits.inputs, digits.labels, config.seed)
    path = descend(objective, objective.theta, config.digits_h, max(config.digits_training)).thetas
    for where, trained in zip(("before", "near", "at"), config.digits_training, strict=True):
        yield _Problem(f"digits MLP {where} the edge", objective, path[trained], config.digits_h, config.steps)
    if config.mnist_samples:
        mnist = datasets.load("mnist", config.mnist_samples, 0, one_hot=True)
        objective = _network((100, 100, 100), mnist.inputs, mnist.labels, config.seed)
        theta = descend(objective, objective.theta, config.mnist_h, config.mnist_training).thetas[-1]
        h = config.mnist_h_lambda / _sharpness(objective, theta)
        yield _Problem(MNIST, objective, theta, h, config.mnist_steps)


def _network(hidden: tuple[int, ...], inputs: NDArray, targets: NDArray, seed: int) -> Objective:
    """The mean square error of a tanh network, which is holomorphic."""
    inputs, targets = inputs.reshape(len(inputs), -1).astype(float), targets.astype(float)
    network = MLP(inputs.shape[1], hidden, targets.shape[1], jax.random.key(seed), activation="tanh")
    return Objective(loss("mean-square"), network, (inputs, targets))


def _krylov_within(tolerance: float, flow: SpectralFlow) -> SpectralFlow:
    """Makes the Krylov method ten times as exact as the solver, with matrices as small as that allows."""
    return dataclasses.replace(flow, rtol=tolerance / 10, max_products=40) if isinstance(flow, Principal) else flow


def _sharpness(objective: Objective, theta: Any) -> float:
    if objective.theta.size <= 100:
        return float(np.linalg.eigvalsh(objective.hessian(theta))[-1])
    return float(top_eigenpairs(objective, theta, 1).values[0])


def _errors(tables: Tables, step: int) -> Table:
    """Relative errors after so many steps, flows by problems; NaN where a flow ended early or a problem is shorter."""
    return _grid(tables, "relative_error", step)


def _costs(tables: Tables) -> Table:
    return _grid(tables, "cost", 1)


def _grid(tables: Tables, column: str, step: int) -> Table:
    rows = tables["errors"]
    grid = rows[rows["step"] == step].pivot_table(column, "flow", "problem", dropna=False)
    return grid.reindex(index=list(FLOWS), columns=list(tables["problems"]["problem"]))


def _summary(tables: Tables, config: Config) -> str:
    """Which flow to use when, in plain words, with the winners."""
    return (
        "Which flow to use when: for small curvature (h λ₀ well below 1) a real flow of backward error analysis, as high "
        "an order as its gradients are worth; at the edge of stability the PF on the continuous branch, for a few "
        "steps, if its Hessian products can be paid; with the third-order term where third derivatives are affordable; "
        "the NGF where only the direction of travel matters. Closest after one step: "
        f"{_listed(_errors(tables, 1).idxmin())}."
    )


def _listed(closest: Any) -> str:
    return "; ".join(f"{name}: {flow}" for name, flow in closest.items())


def _why_not(tables: Tables, rival: str, steps: int) -> str:
    if rival != "PF, principal branch":
        return ""
    rows = tables["errors"]
    ends = rows[(rows["problem"] == EDGE) & (rows["flow"] == rival)]["status"].iloc[-1]
    return "At real parameters the two branches are the same field, so they part only once the path has left them. " + (
        "Here the principal branch got stuck at its jump: it has no error to compare." if ends == "stuck" else ""
    )


def _krylov_claims(tables: Tables, name: str, most: int) -> list[Claim]:
    rows = tables["errors"]
    rows = rows[(rows["problem"] == name) & rows["flow"].isin(COMPLEX_FLOWS)]
    size = int(tables["problems"].set_index("problem").loc[name, "parameters"])
    return [
        Claim(
            f"{name}, {size:,} parameters: the complex flows need no eigendecomposition; Hessian products of a field, "
            "at most",
            rows["most_products"].max(),
            "<=",
            most,
            note="The paper calls the flow computationally prohibitive at this size.",
        ),
        Claim("All of these fields converged: share of the steps", rows["converged"].mean(), "==", 1),
    ]


def _heat_map(ax: Axes, grid: Table, tables: Tables, limits: tuple[float, float], label: str) -> None:
    values = np.log10(grid.to_numpy(dtype=float))
    image = ax.imshow(values, cmap="cividis_r", vmin=limits[0], vmax=limits[1], aspect="auto")
    for (row, column), value in np.ndenumerate(grid.to_numpy(dtype=float)):
        shade = (values[row, column] - limits[0]) / (limits[1] - limits[0])
        text = "–" if np.isnan(value) else f"{value:.2g}" if value < 1000 else f"{value:.0f}"
        ax.text(column, row, text, ha="center", va="center", fontsize=8, color="white" if shade > 0.6 else "black")
    names = [
        name.replace(", ", "\n").replace(" MLP ", " MLP\n") + ("" if "λ₀" in name else f"\nh λ₀ = {z:.2f}")
        for name, z in zip(tables["problems"]["problem"], tables["problems"]["h_lambda"], strict=True)
    ]
    ax.set_xticks(range(len(names)), names, fontsize=8)
    ax.set_yticks(range(len(grid)), list(grid.index))
    ax.figure.colorbar(image, ax=ax, label=label, extend="both")


EXPERIMENT = Experiment(
    id="flow-league",
    title="Every flow on the same problems: which is closest, at what cost",
    figure="",
    paper_says=(
        "Nothing of this kind: the paper compares the NGF, the IGR flow and the PF one experiment at a time, and calls "
        "the PF computationally prohibitive for networks. Here all flows run on the same problems: those, the "
        "third-order flow, five orders of backward error analysis, both branches of the PF's logarithm, and the PF "
        "with its third-order term. A dash means that the flow ended early: it was stuck at a jump of its field, or "
        "diverged."
    ),
    paper_setting="None: this is beyond the paper.",
    profiles={
        "quick": Config(),
        "cpu": Config(mnist_samples=5000),
        "paper": Config(mnist_samples=60_000, mnist_steps=5),
    },
    run=run,
    claims=claims,
    draw=draw,
    explore=explore,
)
