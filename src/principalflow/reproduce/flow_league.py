"""Every flow on the same problems: which model of descent is closest where, and at what cost (beyond the paper)."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from principalflow import data as datasets
from principalflow._lab import Claim, Table, Tables
from principalflow.descent import descend
from principalflow.flows import COMPLEX_COST, CONTRACTION_COST, PRODUCT_COST, Principal, SpectralFlow, compare
from principalflow.functions import banana, cosine_valley
from principalflow.models import MLP, loss
from principalflow.objective import Objective
from principalflow.reproduce._flows import COLOURS, named, stack
from principalflow.reproduce._tracking import spectra
from principalflow.reproduce.quadratic_2d import valley
from principalflow.spectrum import sharpness

ORDERS = tuple(f"order {n}" for n in range(1, 6))
JUMPING = "PF, principal branch"
COMPLEX_FLOWS = ("PF", JUMPING, "PF with third-order term")
REAL_FLOWS = ("NGF", "IGR flow", "third-order flow", *ORDERS)
FLOWS = (*REAL_FLOWS, *COMPLEX_FLOWS)
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
    digits_samples: int = 200
    digits_h: float = 0.0575
    digits_training: tuple[int, int, int] = (25, 100, 1600)
    mnist_samples: int = 0
    mnist_h: float = 0.01
    mnist_training: int = 30
    mnist_h_lambda: float = 1.9
    mnist_steps: int = 1
    steps: int = 5
    tolerance: float = 1e-4
    max_steps: int = 40
    euler_steps: int = 40
    max_products: int = 40
    network_tolerance: float = 2e-3
    network_max_steps: int = 20
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
        most = config.network_max_steps if large else config.max_steps
        flows = {flow: _krylov_within(tolerance, config.max_products, of) for flow, of in named(h, FLOWS).items()}
        smooth, jumping = ({n: of for n, of in flows.items() if (n == JUMPING) is jumps} for jumps in (False, True))
        follow = partial(compare, objective, theta, h, rtol=tolerance, kinds=["global"], progress=False)
        # Where a branch jumps, any number of steps is in vain. Euler's are dear, so two of descent are enough.
        parts = [follow(steps, smooth, max_steps=most)]
        if jumping:
            parts.append(follow(min(steps, 2), jumping, max_steps=most // 4, step=h / config.euler_steps))
        errors[name] = pandas.concat(parts, ignore_index=True)
        facts.append((name, objective.theta.size, h, h * _sharpness(objective, theta), tolerance))
    columns = ["problem", "parameters", "h", "h_lambda", "tolerance"]
    return {"errors": stack(errors, "problem"), "problems": pandas.DataFrame(facts, columns=columns)}


def claims(config: Config, tables: Tables) -> list[Claim]:
    one, five = _errors(tables, 1), _errors(tables, config.steps)
    cost, h_lambda = _costs(tables), tables["problems"].set_index("problem")["h_lambda"]
    orders = one.loc[["NGF", *ORDERS], h_lambda < 1].to_numpy()
    with_term, without = one.loc["PF with third-order term"], one.loc["PF"]
    found = [
        Claim.below(
            "On the quadratic the PF is descent, up to the solver's tolerance: its error after five steps",
            _grid(tables, "relative_error", config.steps).loc["PF", QUADRATIC],
            config.steps * config.tolerance,
            note="An error is the distance from descent over the length of its last step, imaginary part included. A "
            f"cost counts every evaluation of a field: a gradient is 1, a Hessian product {PRODUCT_COST}, a "
            f"contraction of third derivatives {CONTRACTION_COST}, and at complex parameters {COMPLEX_COST} times as "
            "much.",
        ),
        Claim.above(
            "There no real flow is near it: the smallest error of one after five steps",
            five.loc[list(REAL_FLOWS), QUADRATIC].min(),
            0.1,
        ),
        Claim.equal(
            "Where h λ₀ is below 1, each order of backward error analysis is closer in one step than the one before: "
            "share of the comparisons",
            float(np.mean(orders[1:] < orders[:-1])),
            1,
            note="It is sure only for h near zero; on the cosine valley the curvature changes by more than itself "
            f"within one step. Where it does not hold: {_out_of_order(one.loc[['NGF', *ORDERS], h_lambda < 1])}.",
        ),
        Claim.above(
            "On the small MLP at h λ₀ = 0.5 order 5, which needs no Hessian, is closer in one step than the PF: the "
            "PF's error over its",
            one.loc["PF", SMALL] / one.loc["order 5", SMALL],
            1,
        ),
        Claim.above(
            "There it is also cheaper: the PF's cost over its", cost.loc["PF", SMALL] / cost.loc["order 5", SMALL], 10
        ),
        *(_principal_is_closest(tables, steps) for steps in (1, config.steps)),
        Claim.above(
            "Where the third-order term matters, it brings the PF closer to descent in one step: share of the problems",
            float(np.mean((with_term < without)[(with_term - without).abs() > 0])),
            0.5,
        ),
        *(
            _edge_claim(tables, steps, rival)
            for steps in (1, 2)
            for rival in ("NGF", "IGR flow", "PF, principal branch")
        ),
        *_krylov_claims(tables, EDGE, 30),
    ]
    if MNIST in one:
        ratio = one.loc[["NGF", "IGR flow"], MNIST].min() / one.loc["PF", MNIST]
        sentence = (
            "On the MNIST MLP the PF is closer in one step than the NGF and the IGR flow: the smaller ratio of errors"
        )
        found += [*_krylov_claims(tables, MNIST, 60), Claim.above(sentence, ratio, 1)]
    return found


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(1.35 * len(tables["problems"]) + 3, 15), layout="constrained")
    first, last, cost = figure.subplots(3, 1)
    for ax, steps in ((first, 1), (last, config.steps)):
        errors = _errors(tables, steps)
        _heat_map(ax, errors, tables, (-4, 0), "log10 of the relative error")
        ax.set_title(f"error after {_steps(steps)}, over descent's step; at least the solver's tolerance")
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
    columns = ["problem", "flow", "step", "relative_error", "cost", "evaluations", "most_products", "solver", "status"]
    cells = {"values": [shown[name] for name in columns]}
    table = go.Figure(go.Table(header={"values": [name.replace("_", " ") for name in columns]}, cells=cells))
    return {
        "Error against cost in one step: the best are at the lower left. Point at a dot to see its problem.": scatter,
        "All numbers. Euler: the solver was stuck at a jump, and Euler's steps went on for it.": table,
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
    digits = datasets.load("digits", samples=config.digits_samples, standardize=False, one_hot=True)
    objective = _network((32, 32), digits.inputs, digits.labels, config.seed)
    path = descend(objective, objective.theta, config.digits_h, max(config.digits_training)).thetas
    for where, trained in zip(("before", "near", "at"), config.digits_training, strict=True):
        yield _Problem(f"digits MLP {where} the edge", objective, path[trained], config.digits_h, config.steps)
    if config.mnist_samples:
        mnist = datasets.load("mnist", samples=config.mnist_samples, test_samples=0, one_hot=True)
        objective = _network((100, 100, 100), mnist.inputs, mnist.labels, config.seed)
        theta = descend(objective, objective.theta, config.mnist_h, config.mnist_training).thetas[-1]
        h = config.mnist_h_lambda / _sharpness(objective, theta)
        yield _Problem(MNIST, objective, theta, h, config.mnist_steps)


def _network(hidden: tuple[int, ...], inputs: NDArray, targets: NDArray, seed: int) -> Objective:
    """The mean square error of a tanh network, which is holomorphic."""
    inputs, targets = inputs.reshape(len(inputs), -1).astype(float), targets.astype(float)
    network = MLP(inputs.shape[1], hidden, targets.shape[1], jax.random.key(seed), activation="tanh")
    return Objective(loss("mean-square"), network, (inputs, targets))


def _krylov_within(tolerance: float, most: int, flow: SpectralFlow) -> SpectralFlow:
    """Makes the Krylov method five times as exact as the solver, with as many products at most."""
    return dataclasses.replace(flow, rtol=tolerance / 5, max_products=most) if isinstance(flow, Principal) else flow


def _sharpness(objective: Objective, theta: Any) -> float:
    if objective.theta.size <= 100:
        return float(spectra(objective, np.asarray(theta)[None])[0, 0])
    return float(sharpness(objective, [theta])[0])


def _errors(tables: Tables, step: int) -> Table:
    """Relative errors after so many steps; those below the solver's tolerance can't be told apart, and become it."""
    tolerance = tables["problems"].set_index("problem")["tolerance"]
    return _grid(tables, "relative_error", step).clip(lower=tolerance, axis=1)


def _grid(tables: Tables, column: str, step: int) -> Table:
    """A column after so many steps, flows by problems; NaN where a flow ended early or a problem has fewer steps."""
    rows = tables["errors"]
    grid = rows[rows["step"] == step].pivot_table(column, "flow", "problem", dropna=False)
    return grid.reindex(index=list(FLOWS), columns=list(tables["problems"]["problem"]))


def _costs(tables: Tables) -> Table:
    """What the first step of each flow cost, where it came to its end."""
    return _grid(tables, "cost", 1).where(_grid(tables, "relative_error", 1).notna())


def _principal_is_closest(tables: Tables, steps: int) -> Claim:
    h_lambda = tables["problems"].set_index("problem")["h_lambda"]
    errors = _errors(tables, steps).dropna(axis=1, how="all")
    above = errors.loc[:, h_lambda[errors.columns] > 1]
    return Claim.equal(
        f"Where h λ₀ is above 1, no flow is closer after {_steps(steps)} than the PF or the PF with the third-order "
        "term: share of the problems",
        float(np.mean(above.loc[["PF", "PF with third-order term"]].min() <= above.min())),
        1,
        note=f"{_ADVICE if steps == 1 else ''}The closest after {_steps(steps)}: {_closest(errors)}.",
    )


def _edge_claim(tables: Tables, steps: int, rival: str) -> Claim:
    errors, rows = _errors(tables, steps).loc[:, EDGE], tables["errors"]
    how = rows[(rows["problem"] == EDGE) & (rows["flow"] == rival) & (rows["step"] == steps)]["solver"]
    note = (
        "The adaptive solver got stuck where the principal branch jumps, and Euler's steps went on in its place. At "
        "real parameters both branches are the same field; they part once the path has left them. Euler's own error "
        "is then a part of what is measured, and larger than it would be for a smooth field."
        if "euler" in how.to_numpy()
        else ""
    )
    return Claim.at_least(
        f"At the edge the PF is closer by 5 times and more after {_steps(steps)}: error of the {rival} over its",
        errors[rival] / errors["PF"],
        5,
        note=note,
    )


def _krylov_claims(tables: Tables, name: str, most: int) -> list[Claim]:
    rows = tables["errors"]
    rows = rows[(rows["problem"] == name) & rows["flow"].isin(("PF", "PF with third-order term"))]
    size = int(tables["problems"].set_index("problem").loc[name, "parameters"])
    return [
        Claim.at_most(
            f"{name}, {size:,} parameters: the complex flows run without an eigendecomposition; Hessian products of a "
            "field, at most",
            float(rows["most_products"].max()),
            most,
            note="The paper calls the flow computationally prohibitive at this size. A field takes more products where "
            "its path leads past an eigenvalue of 1/h, next to which the logarithm is steep; on the principal branch, "
            "which is not counted here, it need not settle at all where an eigenvalue is at the jump.",
        ),
        Claim.equal("All of these fields converged: share of the steps", float(rows["converged"].mean()), 1),
    ]


_ADVICE = (
    "Which flow to use when: well below h λ₀ = 1 a flow of backward error analysis, of as high an order as can be "
    "paid; at the edge of stability the PF on the continuous branch, for a few steps, if its Hessian products can be "
    "paid, and with the third-order term where third derivatives can; the NGF where a rough direction is enough. "
    "A curvature above 1/h matters only by the gradient's share along it: before the edge that is next to nothing. "
)


def _out_of_order(errors: Table) -> str:
    worse = ~errors.diff().iloc[1:].lt(0)
    return "; ".join(f"{name}, {flow}" for name in worse for flow in worse.index[worse[name]]) or "nowhere"


def _closest(errors: Table) -> str:
    winners = {name: list(column.index[column == column.min()]) for name, column in errors.items()}
    return "; ".join(
        f"{name}: {', '.join(flows) if len(flows) < 4 else f'{len(flows)} flows alike'}"
        for name, flows in winners.items()
    )


def _steps(steps: int) -> str:
    return f"{steps} step{'s' * (steps > 1)}"


def _heat_map(ax: Axes, grid: Table, tables: Tables, limits: tuple[float, float], label: str) -> None:
    numbers = grid.to_numpy(dtype=float)
    shades = (np.log10(numbers) - limits[0]) / (limits[1] - limits[0])
    image = ax.imshow(np.log10(numbers), cmap="cividis_r", vmin=limits[0], vmax=limits[1], aspect="auto")
    for (row, column), number in np.ndenumerate(numbers):
        colour = "white" if shades[row, column] > 0.6 else "black"
        ax.text(column, row, _short(number), ha="center", va="center", fontsize=8, color=colour)
    problems = tables["problems"][["problem", "h_lambda"]].itertuples(index=False)
    names = [name if "λ₀" in name else f"{name}, h λ₀ = {h_lambda:.2f}" for name, h_lambda in problems]
    ax.set_xticks(range(len(names)), [_in_lines(name) for name in names], fontsize=8)
    ax.set_yticks(range(len(grid)), list(grid.index))
    ax.figure.colorbar(image, ax=ax, label=label, extend="both")


def _short(number: float) -> str:
    if np.isnan(number):
        return "–"
    return f"{number:.2g}" if number < 10 else f"{number:,.0f}" if number < 1e6 else f"{number:.0e}"


def _in_lines(name: str) -> str:
    return name.replace(", ", "\n").replace(" MLP ", " MLP\n").replace(" the edge", "\nthe edge")


_MORE = Config(digits_samples=600, network_tolerance=1e-3, euler_steps=200, max_products=60)
SETTINGS = {
    "quick": Config(),
    "cpu": dataclasses.replace(_MORE, mnist_samples=5000),
    "paper": dataclasses.replace(_MORE, mnist_samples=60_000, mnist_steps=5),
}
