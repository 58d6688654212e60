"""The picture of a recorded run."""

from typing import TYPE_CHECKING, Any

import numpy as np

from principalflow.descent import Descent
from principalflow.plot._axes import COLOURS, MARKERS, check_columns, pyplot, typical

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What is drawn of a record, besides its eigenvalues.
_RECORDED = ("step", "learning_rate", "loss", "coefficient_0_real", "next_projection_0", "drift_estimate")
_RECORDED += ("relative_progress", "loss_change")


def stability(records: Any) -> "Figure":
    r"""Draws a recorded run: loss, eigenvalues, stability coefficients, predictions, drift and relative progress.

    Steps whose next step raised the loss are shaded (paper, figures of sections 4.1, 5 and 6.1).

    Args:
        records: A path that `descend` recorded, or its `records`; or a monitor's table.

    Returns:
        The figure, of six axes.

    Raises:
        ValueError: For a path without records, or what are none.
        ImportError: Where matplotlib isn't installed.

    Example:
        >>> import principalflow as pf
        >>> path = pf.descend(pf.functions.banana(), [1.3, 1.5], h=0.001, steps=5, record=pf.Record())
        >>> len(pf.plot.stability(path).axes)
        6
    """
    records = records.records if isinstance(records, Descent) else records
    if records is None:
        raise ValueError("records must be recorded: pass record=principalflow.Record(...) to descend.")
    check_columns("records", records, _RECORDED, "a principalflow.Record")
    if not len(records["step"]):
        raise ValueError("records must have at least one row, got none.")
    measured = np.isfinite(np.asarray(records["learning_rate"], float))  # a monitor's other rows are of steps alone
    columns = {name: np.asarray(records[name])[measured] for name in records}
    steps, h = columns["step"], columns["learning_rate"]
    k = sum(name.startswith("eigenvalue_") for name in columns)
    figure = pyplot().figure(figsize=(15, 8), layout="constrained")
    loss, eigenvalues, coefficients, prediction, drift, progress = figure.subplots(2, 3).ravel()

    loss.semilogy(steps, columns["loss"], color="black")
    loss.set_title(r"loss $E$; shaded where the next step raises it")

    for i in range(k):
        style = {"color": COLOURS[i % len(COLOURS)], "linewidth": 1}
        eigenvalues.plot(steps, columns[f"eigenvalue_{i}"], **style, label=rf"$\lambda_{i}$")
        coefficients.plot(steps, columns[f"coefficient_{i}_real"], **style, label=rf"Re $sc_{i}$")
    own = columns.get("threshold", 2 / h)
    if np.allclose(own, 2 / h, equal_nan=True):
        eigenvalues.plot(steps, 2 / h, color="black", linestyle="--", linewidth=1, label="$2/h$")
        eigenvalues.plot(steps, 1 / h, color="black", linestyle=":", linewidth=1, label="$1/h$")
        eigenvalues.set_title("largest eigenvalues of the Hessian")
    else:
        eigenvalues.plot(steps, own, color="black", linestyle="--", linewidth=1, label="threshold")
        eigenvalues.set_title("largest eigenvalues, in the optimiser's metric")
    coefficients.axhline(0, color="black", linewidth=0.5)
    coefficients.set_yscale("symlog", linthresh=typical(columns["coefficient_0_real"]))
    coefficients.set_title("stability coefficients, real part")

    measured = columns["next_projection_0"]
    for index, (flow, label) in enumerate((("ngf", "NGF"), ("igr", "IGR flow"), ("pf", "principal flow"))):
        style = {"color": COLOURS[index], "marker": MARKERS[index], "linestyle": "", "markersize": 3}
        prediction.plot(measured, columns[f"next_projection_0_{flow}"], **style, label=label)
    prediction.axline((0, 0), slope=1, color="black", linewidth=0.8, label="exact")
    prediction.set_xscale("symlog", linthresh=typical(measured))
    prediction.set_yscale("symlog", linthresh=typical(measured))
    prediction.set_title(r"$\nabla E^T u_0$ after a step, predicted and measured")
    prediction.set_xlabel("measured")
    prediction.set_ylabel("predicted")

    drift.semilogy(steps, columns["drift_estimate"], color=COLOURS[0], label=r"estimate $\frac{h^2}{2}\|Hg\|$")
    if "drift" in columns:
        drift.semilogy(steps, columns["drift"], color=COLOURS[3], linestyle="--", label="measured")
    drift.set_title("drift of one step")

    progress.plot(steps, columns["relative_progress"], color="black")
    progress.axhline(0, color="black", linestyle="--", linewidth=1)
    progress.set_title("relative progress ratio, 0 at the edge")

    width = np.min(np.diff(steps)) if len(steps) > 1 else 1
    rises = [(step - width / 2, width) for step in steps[columns["loss_change"] > 0]]
    for ax in (loss, eigenvalues, coefficients, drift, progress):
        ax.broken_barh(rises, (0, 1), transform=ax.get_xaxis_transform(), color="grey", alpha=0.2, linewidth=0)
        ax.set_xlabel("gradient descent step")
    for ax in (coefficients, prediction, drift):
        ax.legend()
    eigenvalues.legend(loc="lower right")
    return figure
