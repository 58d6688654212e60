"""What the page draws: plots, each of one or more views, each of lines."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from principalflow.plot import typical
from principalflow.report._points import points
from principalflow.report._run import RELATIVE, SCALED, THRESHOLD, Run, edges, of_descent

Drawing = dict[str, Any]

_BUCKETS = 2000
_DASHED = (THRESHOLD, "test_loss", "loss_change_discrete", "loss_change_continuous", "drift")
_DIRECTION = re.compile(r"(.+?)_(\d+)(_.+)?")
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


def draw(runs: list[Run]) -> list[Drawing]:
    """Returns the plots for which something was recorded, from the top of the page to its bottom."""
    makers = (_loss, _sharpness, _coefficients, _loss_change, _drift, _rate, _accuracy)
    plots = [make(runs) for make in makers]
    drawn = {line["column"] for plot in plots for view in plot["views"] for line in view["lines"]}
    return [plot for plot in [*plots, _others(runs, drawn)] if plot["views"]]


def curves(plots: list[Drawing]) -> list[Drawing]:
    """Returns the plots, without the views in which nothing has two points to connect."""
    plots = [plot | {"views": [view for view in plot["views"] if _is_curve(view)]} for plot in plots]
    return [plot for plot in plots if plot["views"]]


def dots(plots: list[Drawing]) -> list[tuple[str, str, str]]:
    """Returns what `curves` leaves out, as rows of a table: quantity, step and values."""
    rows = []
    for view in (view for plot in plots for view in plot["views"] if not _is_curve(view)):
        found = [(line["name"], *_finite(line)[0]) for line in view["lines"] if len(_finite(line)) == 1]
        steps = sorted({step for _, step, _ in found})
        values = [f"{value:.4g}" if name == view["axis"] else f"{name}: {value:.4g}" for name, _, value in found]
        if found:
            rows.append((view["axis"], ", ".join(f"{step:,}" for step in steps), "; ".join(values)))
    return rows


def _is_curve(view: Drawing) -> bool:
    return any(len(_finite(line)) > 1 for line in view["lines"] if line["column"] != THRESHOLD)


def _finite(line: Drawing) -> list[tuple[float, float]]:
    return [(x, y) for x, y in zip(line["x"], line["y"], strict=True) if y is not None]


def is_thinned(runs: list[Run]) -> bool:
    """Returns whether some lines have more points than are drawn."""
    return any(len(run.columns["step"]) > 2 * _buckets(runs) for run in runs)


def _loss(runs: list[Run]) -> Drawing:
    lines = _lines(runs, {"loss": "loss", "test_loss": "test loss"})
    return _plot(
        "loss",
        "Loss",
        "The loss E that training minimises. Small steps bring it down smoothly; where it jumps up and comes back, "
        "steps overshoot, most often in the sharpest directions (section 5 of the paper).",
        [_view("loss", "loss E", lines)],
        log=True,
    )


def _sharpness(runs: list[Run]) -> Drawing:
    directions = range(max(run.k for run in runs))
    if len(runs) > 1:  # their rates may differ, and hλ compares them
        views = [view for i in directions for view in (_scaled(runs, [i]), _eigenvalues(runs, [i]))]
    else:
        views = [_eigenvalues(runs, directions), _scaled(runs, directions)]
    return _plot(
        "sharpness",
        "Sharpness",
        "The largest eigenvalues λ of the Hessian: how sharply the loss bends, λ₀ in the sharpest direction."
        + _threshold(runs)
        + _metric(runs)
        + _unknown(runs),
        views,
        log=False,
    )


def _eigenvalues(runs: list[Run], directions: Sequence[int]) -> Drawing:
    labels = {f"eigenvalue_{i}": f"λ{_subscript(i)}" for i in directions}
    label = "λ" if len(runs) == 1 else f"λ{_subscript(directions[0])}"
    known = edges(runs)
    threshold = known[0] if len(known) == 1 else "threshold"
    return _view(label, "eigenvalue λ", _lines(runs, labels | {THRESHOLD: threshold}))


def _scaled(runs: list[Run], directions: Sequence[int]) -> Drawing:
    column, name, level = (SCALED, "h λ{}", 2) if of_descent(runs) else (RELATIVE, "λ{} / threshold", 1)
    labels = {column.format(i): name.format(_subscript(i)) for i in directions}
    label = name.format("" if len(runs) == 1 else _subscript(directions[0]))
    return _view(label, name.format(""), _lines(runs, labels), level)


def _threshold(runs: list[Run]) -> str:
    """Returns what the dashed line is, if there is one."""
    known = edges(runs)
    if not known:
        return ""
    line = f"λ = {known[0]} with learning rate h" if "/h" in known[0] else known[0]
    line += "" if of_descent(runs) else " (2/h for plain descent)"
    if len(known) > 1:
        line = f"a run's own threshold for λ ({', '.join(known[:-1])} or {known[-1]} with learning rate h)"
    return (
        f" Above the dashed line, {line}, each step overshoots further than the one before; training often rises to "
        "this edge and stays near it (sections 3.1 and 5)."
    )


def _metric(runs: list[Run]) -> str:
    """Returns whose curvature is that in a metric of its own, and which one that is."""
    names = sorted({run.metric for run in runs if run.metric})
    if not names:
        return ""
    return (
        f" For {_listed(names)}, λ is the curvature in the metric in which steps are taken, of P^(-1/2) H P^(-1/2): H "
        "is the Hessian, and P what gradients are divided by, the root of a running average of their squares. λ₀ of H "
        "itself does not tell whether these steps are stable."
    )


def _unknown(runs: list[Run]) -> str:
    names = sorted({run.optimizer for run in runs if run.unknown})
    return f" No threshold is known for {_listed(names)}, so none is drawn there." if names else ""


def _of_which_step(runs: list[Run]) -> str:
    """Returns that a quantity is of a step which isn't the optimiser's, where that is so."""
    if of_descent(runs) and not any(run.metric for run in runs):
        return ""
    return " Momentum has no part in this: it is of a step down the gradient alone, in the optimiser's metric."


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _coefficients(runs: list[Run]) -> Drawing:
    columns = {f"coefficient_{i}_real": f"Re sc{_subscript(i)}" for i in range(max(run.k for run in runs))}
    return _plot(
        "coefficients",
        "Stability coefficients",
        "The real part of the stability coefficient sc of each direction. Below zero, the step goes downhill along it; "
        "above, it climbs, and where it climbs much the loss is about to rise (sections 3.1 and 5)."
        + _of_which_step(runs),
        _views(runs, columns, "Re sc", level=0),
        log=True,
    )


def _loss_change(runs: list[Run]) -> Drawing:
    columns = {
        "loss_change": "measured",
        "loss_change_discrete": "predicted, discrete",
        "loss_change_continuous": "predicted, principal flow",
    }
    axis = "change of the loss" if len(runs) == 1 else "change of the loss, {}"
    views = [_view(run.name, axis.format(run.name), _lines([run], columns), level=0) for run in runs]
    return _plot(
        "loss-change",
        "Change of the loss in one step",
        "What a step of plain gradient descent does to the loss where the curvature was measured, beside two "
        "predictions from gradient and Hessian before it: of the step itself to second order, and of the principal "
        "flow. Above zero the loss rises; where measured and predicted agree, the curvature explains "
        "the change (sections 5 and A.8.1)." + _of_which_step(runs),
        views,
        log=True,
    )


def _drift(runs: list[Run]) -> Drawing:
    lines = _lines(runs, {"drift_estimate": "estimate", "drift": "measured"})
    return _plot(
        "drift",
        "Drift",
        "How far one step lands from where the gradient flow, descent with infinitely small steps, would arrive. Much "
        "drift means that the learning rate is large for the curvature (section 6)." + _of_which_step(runs),
        [_view("drift", "distance in parameters", lines)],
        log=True,
    )


def _rate(runs: list[Run]) -> Drawing:
    return _plot(
        "rate",
        "Learning rate",
        "The learning rate h of each step. Where it falls, the threshold for λ rises, 2/h for plain descent; "
        "drift-adjusted rates (DAL) set it from the drift (section 6).",
        [_view("rate", "learning rate h", _lines(runs, {"learning_rate": "learning rate"}))],
        log=False,
    )


def _accuracy(runs: list[Run]) -> Drawing:
    lines = _lines(runs, {"test_accuracy": "test", "train_accuracy": "training"})
    return _plot(
        "accuracy",
        "Accuracy",
        "The share of samples that are classified correctly. Where training data do better than test data, the model "
        "has learnt some of them by heart.",
        [_view("accuracy", "accuracy", lines)],
    )


def _others(runs: list[Run], drawn: set[str]) -> Drawing:
    made = {column.format(i) for column in (SCALED, RELATIVE) for i in range(max(run.k for run in runs))}
    known = drawn | made | {"step", THRESHOLD, "edge", "stable_rate"}
    columns = dict.fromkeys(name for run in runs for name in run.columns if name not in known)
    families: dict[str, dict[str, str]] = {}
    for name in columns:
        match = _DIRECTION.fullmatch(name)
        family = f"{match[1]}_i{match[3] or ''}" if match else name
        families.setdefault(family, {})[name] = name
    views = [view for family, members in families.items() for view in _views(runs, members, family)]
    return _plot(
        "others",
        "Also recorded",
        "Every other number that the runs hold, as it was recorded; i counts the directions of largest curvature.",
        views,
        log=False,
    )


def _views(runs: list[Run], columns: dict[str, str], axis: str, level: float | None = None) -> list[Drawing]:
    """Returns one view of all columns, or with several runs one of each column, so that lines stay few."""
    if len(runs) == 1:
        return [_view(axis, axis, _lines(runs, columns), level)]
    return [_view(label, label, _lines(runs, {name: label}), level) for name, label in columns.items()]


def _plot(identity: str, title: str, text: str, views: list[Drawing], log: bool | None = None) -> Drawing:
    """A plot; `log` is whether its axis starts logarithmic, None where that makes no sense."""
    return {
        "id": identity,
        "title": title,
        "text": text,
        "views": [view for view in views if view["lines"]],
        "log": log,
    }


def _view(label: str, axis: str, lines: list[Drawing], level: float | None = None) -> Drawing:
    """A view; `level` is where a dashed line crosses it, `unit` from where on values of both signs are compressed."""
    values = np.array([y for line in lines for y in line["y"]], dtype=float)
    unit = typical(values) if np.any(values < 0) else None
    return {"label": label, "axis": axis, "lines": lines, "level": level, "unit": unit}


def _lines(runs: list[Run], labels: dict[str, str]) -> list[Drawing]:
    """Returns one line for each run and column; colours tell runs apart, or with one run its columns."""
    several = len(runs) > 1
    labels = {column: label for column, label in labels.items() if any(column in run.columns for run in runs)}
    lines = []
    for r, run in enumerate(runs):
        for c, (column, label) in enumerate(labels.items()):
            steps, values = run.recorded("step", column)
            if not len(values):
                continue
            name = label if not several else f"{run.name}: {label}" if len(labels) > 1 else run.name
            dashed = c > 0 if several else column in _DASHED
            colour = r if several else None if column == THRESHOLD else c
            line = {"name": name, "column": column, "colour": colour, "dashed": dashed, "run": run.name}
            line["diverged"] = run.diverged
            lines.append(line | points(steps, values, _buckets(runs)))
    return lines


def _buckets(runs: list[Run]) -> int:
    return max(_BUCKETS // len(runs), 250)


def _subscript(i: int) -> str:
    return str(i).translate(_SUBSCRIPTS)
