"""What came out of trainings, as tables: a row for each step, and a row for each run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas
from numpy.typing import NDArray

from principalflow import _checks, runs
from principalflow.training._options import RESCALING, Options

# What the measures of a run follow from.
_MEASURED = "rate", "power", "seed", "status", "loss", "drift", "sharpness", "test_accuracy", "train_accuracy"

_Table = Any  # a pandas DataFrame; its own annotations don't know what a column holds


def steps(path: str | Path) -> pandas.DataFrame:
    r"""Returns a row for each step of a training, with the drift that it caused.

    Args:
        path: The directory of a single run, as `run` or `principalflow train` writes it.

    Returns:
        The columns: `rate` and `power` as they were asked for (NaN for none), `seed` and `status`; `step`,
        `learning_rate`, `update_norm` (without momentum), `loss` (of all samples: at each step on full batches, else
        where it was recorded), `sharpness` ($\lambda_0$, in the optimiser's metric), `measured_curvature`
        ($\|H\hat g\|$ of all samples), `test_accuracy` and `train_accuracy`; NaN where they weren't recorded.
        `curvature` ($\|H\hat g\|$) and `drift` ($\frac{h^2}2 \|H\hat g\| \|g\|$) are of each step: DAL's rate tells
        the curvature of its batch; where its cap hides it, and at fixed rates, it is that of all samples, interpolated
        between records. $g$ is of the batch. Of optimisers that rescale gradients, as Adam does, `update_norm`,
        curvatures and drift are NaN.

    Raises:
        ValueError: If it is a folder of several runs.
        RunError: If it is no run, or not that of a training.

    Example:
        >>> import tempfile
        >>> import principalflow as pf
        >>> options = pf.training.Options(data="iris", hidden=(4,), learning_rate=0.1, steps=20, record_every=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = pf.training.run(options, folder, progress=False)
        ...     table = pf.training.steps(folder)
        >>> len(table), bool(table["drift"].iloc[0] > 0)
        (21, True)
    """
    path = _checks.path("path", path)
    frame: _Table = runs.load(path)
    if "run" in frame:
        raise ValueError(f"path must be a single run, got the folder {path} of several.")
    if "step" not in frame or "learning_rate" not in frame:
        raise runs.RunError(f"{path} is not the run of a training: it has no steps with their rates.")
    o = Options.from_file(path / runs.CONFIG)
    gradient = "gradient_norm" if o.batch_size is None else "batch_gradient_norm"
    missing = frame["step"] * np.nan
    loss, recorded, norm = (frame.get(name, missing) for name in ("loss", "drift_estimate", "gradient_norm"))
    along = frame[gradient]
    if o.optimizer in RESCALING:  # the drift is that in another metric, and the step no multiple of the gradient
        recorded = along = missing
    rate = frame["learning_rate"].astype(float)
    measured = (2 * recorded / (rate**2 * norm)).astype(float)
    curvature = _curvature(o, frame["step"], rate, measured)
    return pandas.DataFrame(
        {
            "rate": np.nan if o.learning_rate is None else o.learning_rate,
            "power": o.power if o.optimizer == "dal" else np.nan,
            "seed": o.seed,
            "status": frame.attrs["status"],
            "step": frame["step"],
            "learning_rate": rate,
            "update_norm": (rate * along).astype(float),
            "loss": loss.astype(float),
            "sharpness": frame.get("eigenvalue_0", missing),
            "measured_curvature": measured,
            "curvature": curvature,
            "drift": (rate**2 / 2 * curvature * along).astype(float),
            "test_accuracy": frame.get("test_accuracy", missing),
            "train_accuracy": frame.get("train_accuracy", missing),
        }
    )


def measures(steps: _Table, by: Sequence[str]) -> pandas.DataFrame:
    """Returns a row of measures for each run.

    Args:
        steps: What `steps` returned, of several runs one below the other.
        by: The columns that tell the runs apart.

    Returns:
        These columns, `rate`, `power` and `seed`; `diverged` (a loss that isn't finite, or the last one above the
        first), `last_loss` (infinite if diverged), `rises` (how many of the recorded losses are above the one before),
        `largest_rise` (relative to the loss before; infinite for a loss that isn't finite), the last `test_accuracy`
        and `train_accuracy` (NaN if diverged), the mean `drift` of its steps, and the last `sharpness`.

    Raises:
        ValueError: If `steps` is no such table, or `by` has names that are none of its columns.

    Example:
        >>> import pandas
        >>> import principalflow as pf
        >>> steps = pandas.DataFrame({"step": [0, 1, 2], "loss": [3.0, 1.0, 2.0], "seed": 0, "status": "completed"})
        >>> others = ["rate", "power", "drift", "sharpness", "test_accuracy", "train_accuracy"]
        >>> table = pf.training.measures(steps.assign(**dict.fromkeys(others, 0.5)), by=["seed"])
        >>> table[["last_loss", "rises", "largest_rise"]].values.tolist()
        [[2.0, 1.0, 1.0]]
    """
    if not isinstance(steps, pandas.DataFrame) or not {*_MEASURED} <= {*steps}:
        raise ValueError(f"steps must be what training.steps returns, got {_checks.shown(steps)}.")
    names = by if isinstance(by, Sequence) and not isinstance(by, str) else ()
    if not names or not all(isinstance(name, str) and name in steps for name in names):
        raise ValueError(f"by must be columns of steps, one or more, got {_checks.shown(by)}.")
    names = list(dict.fromkeys([*by, "rate", "power", "seed"]))
    return pandas.DataFrame([_measures(rows, names) for _, rows in steps.groupby(list(by), sort=False, dropna=False)])


def _curvature(o: Options, step: _Table, rate: _Table, measured: _Table) -> NDArray:
    """Returns ‖Hĝ‖ at each step: from DAL's rate, else interpolated between records; NaN where there are none."""
    there = np.isfinite(measured) & (measured > 0)
    found = np.full(len(step), np.nan)
    if there.any():
        found = np.exp(np.interp(step, step[there], np.log(measured[there])))
    power = cast(float, o.power)
    if o.optimizer != "dal" or o.per_parameter or not power:
        return found
    by_rate = (o.factor / rate) ** (1 / power)  # an upper bound at the cap
    return np.where(rate < (1 - 1e-6) * o.max_learning_rate, by_rate, np.minimum(found, by_rate))


def _measures(rows: _Table, names: Sequence[str]) -> dict[str, Any]:
    first, losses = rows.iloc[0], rows["loss"].dropna().to_numpy()
    broken = first["status"] == "diverged"
    known = len(losses) > 0
    diverged = bool(broken or (known and losses[-1] > losses[0]))
    accuracies = {name: _last(rows[name]) for name in ("test_accuracy", "train_accuracy")}
    rise = np.max(np.diff(losses) / losses[:-1], initial=0.0)
    return {
        **{name: first[name] for name in names},
        "diverged": diverged,
        "last_loss": np.inf if diverged else losses[-1] if known else np.nan,
        "rises": int(np.sum(np.diff(losses) > 0)) + broken,
        "largest_rise": np.inf if broken else float(rise),
        **(dict.fromkeys(accuracies, np.nan) if diverged else accuracies),
        "drift": rows["drift"].iloc[:-1].mean(),  # the last row is of no step
        "sharpness": _last(rows["sharpness"]),
    }


def _last(column: _Table) -> float:
    there = column.dropna()
    return float(there.iloc[-1]) if len(there) else np.nan
