"""Models of the long run beside the run itself: what both leagues at the edge of stability measure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas
from jaxtyping import PyTree
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from principalflow import data as datasets
from principalflow._lab import Table, Tables
from principalflow.flows import Central, CentralRMSProp, Flow, Rod, StepFlow, integrate
from principalflow.objective import Objective, Vector
from principalflow.reproduce._flows import COLOURS
from principalflow.spectrum import top_eigenpairs

# Three successive iterates make a centre and an amplitude, the middle one being both at once.
_MIDDLE, _ALTERNATING = np.array([1, 2, 1]) / 4, np.array([1, -2, 1]) / 4
# Flows whose state is a centre, and how many steps it is behind that of three iterates from its time on.
_BEHIND = {Central: 1.0, CentralRMSProp: 1.0, Rod: 0.5}
# The first spike is the first maximum of the amplitude that is so large beside the largest of the run.
_SPIKE = 0.2
# The share of the course over whose end centres are averaged, for models of the mean over time, which have no spikes.
_LAST = 0.5
# How far aside the run begins a second time, to see how well its path is determined.
_ASIDE = 1e-9
RUN, BESIDE = "the run itself", "the run itself, from 1e-9 away"
COLUMNS = {
    "distance": "distance at the end, over the path's length",
    "mean_distance": "distance of the means over the last half",
    "sharpness_error": "error of λ₀ over its threshold, times 2",
    "loss_error": "error of the centre's loss",
    "mean_loss_error": "error of the mean loss",
    "spike_error": "steps by which the first spike is late",
    "gradients": "gradients a step",
}


@dataclass(frozen=True)
class Race:
    """A run from a start on, which models are to follow.

    Attributes:
        name: Its name in tables and figures.
        objective: The loss.
        start: The parameters at the start.
        steps: How many steps.
        h: The time that flows have for a step.
        threshold: The sharpness at the edge.
        step: `step(objective, state)` gives the run's next state.
        begin: `begin(theta)` gives its state at parameters.
        parameters: `parameters(state)` gives these back.
        metric: `metric(state)` gives the preconditioner in which the sharpness counts; None for the Hessian's own.
    """

    name: str
    objective: Objective
    start: Vector
    steps: int
    h: float
    threshold: float
    step: Callable[[Objective, PyTree], PyTree]
    begin: Callable[[Vector], PyTree] = lambda theta: theta
    parameters: Callable[[PyTree], Vector] = lambda state: state
    metric: Callable[[PyTree], PyTree] | None = None


@dataclass(frozen=True)
class Model:
    """A flow that follows a run.

    Attributes:
        flow: The flow.
        way: How `integrate` is to follow it.
    """

    flow: Flow
    way: Mapping[str, Any] = field(default_factory=dict)

    @property
    def behind(self) -> float:
        """How many steps its state is behind the centre of the three iterates from its time on."""
        return next((steps for kind, steps in _BEHIND.items() if isinstance(self.flow, kind)), 0.0)


class Look(NamedTuple):
    """What there is to see at one time.

    Attributes:
        centre: The centre.
        loss: The loss there.
        mean_loss: The loss averaged over the oscillation.
        amplitude: How far it swings; NaN where a model doesn't say.
        state: What the metric is of.
    """

    centre: Vector
    loss: float
    mean_loss: float
    amplitude: float
    state: PyTree


def images(data: str, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns so many images of a data set, with one-hot labels, in double precision."""
    found = datasets.load(data, samples=samples, test_samples=0, standardize=data != "digits", one_hot=True)
    return found.inputs.astype(float), found.labels.astype(float)


def follow(race: Race, models: Mapping[str, Model], every: int, looks: int) -> Tables:
    """Returns how far each model is from the run, and the courses of all.

    Args:
        race: The run.
        models: By their names.
        every: How many steps lie between two points of a course.
        looks: At how many of these the sharpness is measured.

    Returns:
        `errors` with a row for each model, in the columns of `COLUMNS` and `status` and `message`; and `courses` with
        the `step`, `loss`, `mean_loss`, `amplitude` and, where it was measured, `sharpness` over its threshold times 2,
        of each model and of the run.
    """
    times = np.arange(0, race.steps + 1, every)
    seen = np.unique(np.linspace(0, len(times) - 1, looks).round().astype(int))
    run = _Run(race)
    truth = [run.look(states) for states in run.from_start(race.start, times)]
    length = run.length
    aside = np.random.default_rng(0).standard_normal(race.start.size)
    beside = race.start + _ASIDE * aside / np.linalg.norm(aside)
    again = [run.look(states) for states in run.from_start(beside, times)]
    reference = _course(race, RUN, times, truth, seen)
    courses, errors = [reference], []

    def add(name: str, found: Sequence[Look], **more: Any) -> None:
        course = _course(race, name, times, found, seen)
        courses.append(course)
        distances = {
            column: _distance(found, truth, last) / length
            for column, last in (("distance", 1), ("mean_distance", ceil(_LAST * len(truth))))
        }
        errors.append({"race": race.name, "model": name, **distances, **_errors(course, reference), **more})

    add(BESIDE, again, gradients=1.0, status="", message="")
    for name, model in models.items():
        solution = integrate(
            model.flow,
            race.objective,
            race.start,
            race.h * (race.steps + model.behind),
            saves=race.h * (times + model.behind),
            progress=False,
            **model.way,
        )
        found = [run.seen(model, state) for state in solution.states]
        gradients = solution.cost * race.h / solution.time
        add(name, found, gradients=gradients, status=str(solution.status), message=solution.message)
    return {"errors": pandas.DataFrame(errors), "courses": pandas.concat(courses, ignore_index=True)}


def _distance(found: Sequence[Look], truth: Sequence[Look], last: int) -> float:
    """Returns the distance of the means over so many last centres; NaN for what didn't come to the end."""
    if len(found) < len(truth):
        return np.nan
    means = (jnp.mean(jnp.stack([look.centre for look in looks[-last:]]), axis=0) for looks in (found, truth))
    return float(jnp.linalg.norm(jnp.subtract(*means)))


class _Run:
    """Steps of the run, compiled once."""

    def __init__(self, race: Race):
        self._race, self.length = race, 0.0
        self._value, self._steps = race.objective.value, eqx.filter_jit(race.step)

    def three(self, state: PyTree) -> list[PyTree]:
        """Returns a state and the two after it."""
        second = self._step(state)
        return [state, second, self._step(second)]

    def from_start(self, theta: Vector, times: np.ndarray) -> Iterator[list[PyTree]]:
        """Yields three successive states at each of the times, and adds up the length of the path of centres."""
        states, before, self.length = self.three(self._race.begin(theta)), None, 0.0
        for n in range(int(times[-1]) + 1):
            centre = self._combined(_MIDDLE, states)
            self.length += 0.0 if before is None else float(jnp.linalg.norm(centre - before))
            before = centre
            if n in times:
                yield states
            states = [*states[1:], self._step(states[-1])]

    def _step(self, state: PyTree) -> PyTree:
        return self._steps(self._race.objective, state)

    def look(self, states: Sequence[PyTree]) -> Look:
        """Returns what is to be seen at three successive states."""
        centre = self._combined(_MIDDLE, states)
        losses = [float(self._value(self._race.parameters(state))) for state in states]
        amplitude = float(jnp.linalg.norm(self._combined(_ALTERNATING, states)))
        return Look(centre, float(self._value(centre)), float(_MIDDLE @ losses), amplitude, states[1])

    def seen(self, model: Model, state: PyTree) -> Look:
        """Returns what is to be seen of a model."""
        flow, objective = model.flow, self._race.objective
        if model.behind:
            centre = flow.parameters(state)
            amplitude = float(jnp.sqrt(jnp.trace(state.covariance))) if isinstance(flow, Rod) else np.nan
            return Look(centre, float(self._value(centre)), float(flow.mean_loss(objective, state)), amplitude, state)
        own = state if isinstance(flow, StepFlow) else self._race.begin(flow.parameters(state))
        return self.look(self.three(own))

    def _combined(self, weights: np.ndarray, states: Sequence[PyTree]) -> Vector:
        return jnp.tensordot(weights, jnp.stack([self._race.parameters(state) for state in states]), 1)


def _course(race: Race, name: str, times: np.ndarray, found: Sequence[Look], seen: np.ndarray) -> Table:
    """Returns the course of a model, with the sharpness at some of its points."""
    rows, guess = [], None
    for number, (time, look) in enumerate(zip(times, found, strict=False)):
        row = {"race": race.name, "model": name, "step": int(time), "sharpness": np.nan}
        if number in seen and np.isfinite(look.loss):
            metric = {} if race.metric is None else {"preconditioner": race.metric(look.state)}
            guess = top_eigenpairs(race.objective, look.centre, 1, guess=guess, tol=1e-3, **metric)
            row["sharpness"] = 2 * float(guess.values[0]) / race.threshold
        rows.append(row | {"loss": look.loss, "mean_loss": look.mean_loss, "amplitude": look.amplitude})
    return pandas.DataFrame(rows)


def _errors(course: Table, reference: Table) -> dict[str, float]:
    """Returns the mean errors of a course, as far as it goes."""
    if len(course) < len(reference):
        return dict.fromkeys(("sharpness_error", "loss_error", "mean_loss_error", "spike_error"), np.nan)
    apart = (course.select_dtypes("number") - reference.select_dtypes("number")).abs().mean()
    spike = first_spike(reference, reference)
    return {
        "sharpness_error": float(apart["sharpness"]),
        "loss_error": float(apart["loss"] / abs(reference["loss"].mean())),
        "mean_loss_error": float(apart["mean_loss"] / abs(reference["mean_loss"].mean())),
        "spike_error": first_spike(course, reference) - spike,
    }


def first_spike(course: Table, reference: Table) -> float:
    """Returns the step of the first spike; NaN if there is none."""
    amplitude = course["amplitude"].to_numpy()
    higher = (amplitude[1:-1] >= amplitude[:-2]) & (amplitude[1:-1] > amplitude[2:])
    spikes = np.flatnonzero(higher & (amplitude[1:-1] > _SPIKE * reference["amplitude"].max())) + 1
    return float(course["step"].iloc[spikes[0]]) if len(spikes) else np.nan


def colours(names: Sequence[str]) -> dict[str, Any]:
    """Returns a colour for each model, that of the other experiments where they have one."""
    import matplotlib

    palette = iter(matplotlib.colormaps["tab20"].colors)  # pyright: ignore[reportAttributeAccessIssue]
    return {name: COLOURS.get(name) or next(palette) for name in names}


def draw(tables: Tables, columns: Mapping[str, str]) -> Figure:
    """Draws the courses of all races, a row for each, and the errors and prices of the models."""
    courses, errors = tables["courses"], tables["errors"]
    races = list(dict.fromkeys(courses["race"]))
    shade = colours([name for name in dict.fromkeys(courses["model"]) if name != BESIDE])
    width = len(columns) + 1
    figure = Figure(figsize=(4.5 * width, 3 * len(races) + 0.8), layout="constrained")
    grid = figure.subplots(len(races), width, squeeze=False)
    lines = {}
    for axes, race in zip(grid, races, strict=True):
        rows = courses[courses["race"] == race]
        for ax, (column, title) in zip(axes, columns.items(), strict=False):
            for name, course in rows[rows["model"] != BESIDE].groupby("model", sort=False):
                course = course.dropna(subset=[column])
                style = {"color": "black", "linewidth": 2.5} if name == RUN else {"color": shade[name]}
                (lines[name],) = ax.plot(course["step"], course[column], label=name, alpha=0.8, **style)
            _limit(ax, rows.loc[rows["model"] == RUN, column])
            if column == "sharpness":
                ax.axhline(2, color="grey", linestyle="--", linewidth=0.8)
            ax.set_title(f"{race}: {title}", fontsize=9)
            ax.set(xlabel="step")
        _draw_prices(axes[-1], errors[errors["race"] == race], shade)
    figure.legend(lines.values(), lines, loc="outside lower center", ncols=7)
    return figure


def _limit(ax: Axes, run: pandas.Series) -> None:
    """Shows what is about where the run is, on a logarithmic axis if that spans much."""
    low, high = run.min(), run.max()
    if low > 0 and high > 3 * low:
        ax.set_yscale("log")
        ax.set_ylim(low / (high / low) ** 0.3, high * (high / low) ** 0.3)
    elif high > low:
        ax.set_ylim(low - 0.4 * (high - low), high + 0.6 * (high - low))


def _draw_prices(ax: Axes, errors: Table, shade: Mapping[str, Any]) -> None:
    """Draws distance over price."""
    for _, row in errors[errors["model"] != BESIDE].iterrows():
        point = row["gradients"], row["distance"]
        ax.loglog(*point, "o", color=shade[row["model"]])
        ax.annotate(row["model"], point, fontsize=7, xytext=(4, 2), textcoords="offset points")
    ax.margins(0.2)
    ax.xaxis.set_minor_formatter("")
    ax.set_title("distance over price", fontsize=9)
    ax.set(xlabel="gradients a step", ylabel="distance over length")


def explore(tables: Tables) -> dict[str, Any]:
    """Returns the table of all errors, and distance against price of all races."""
    import plotly.graph_objects as go

    errors = tables["errors"]
    scatter = go.Figure()
    for name, rows in errors[errors["model"] != BESIDE].groupby("model", sort=False):
        scatter.add_scatter(x=rows["gradients"], y=rows["distance"], mode="markers", name=name, text=rows["race"])
    scatter.update_xaxes(type="log", title="gradients a step")
    scatter.update_yaxes(type="log", title="distance at the end, over the path's length", exponentformat="e")
    names = ["race", "model", *COLUMNS, "status"]
    cells = [errors[name].map(_short) if errors[name].dtype == float else errors[name] for name in names]
    header = [COLUMNS.get(name, name) for name in names]
    table = go.Figure(go.Table(header={"values": header}, cells={"values": cells}))
    return {
        "Distance against price: the best are at the lower left. Point at a dot to see its race.": scatter,
        "All numbers.": table,
    }


def _short(number: float) -> str:
    return "–" if np.isnan(number) else f"{number:.3g}"
