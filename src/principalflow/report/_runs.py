"""Training runs as one page."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from principalflow import _checks
from principalflow.report import _page, _plots, _summary
from principalflow.report._run import Run, read

_TICKS = 60  # marks of events per run: more than these would touch each other


def write(runs: Mapping[str, Any], path: str | os.PathLike[str], *, title: str | None = None) -> Path:
    """Writes one HTML page that shows and compares training runs; it needs no network.

    Above the plots stands each run in words, and with several runs a table of what differs. All plots share their
    steps: zooming one zooms all. Long runs are drawn by the smallest and largest value of each of 2,000 stretches of
    steps, so that no spike is lost.

    Args:
        runs: Names and pandas DataFrames, with one row per recorded step. `step` and `loss` are needed;
            `learning_rate` and the columns of `principalflow.Record` are shown where they are there, NaN where a row
            has none; `events` may hold lists of sentences. Of `frame.attrs` the page shows `config` (a dict), `status`
            and `message`. A run without rows is left out, and the page says so.
        path: The file to write.
        title: The page's title; made from the names if left out.

    Returns:
        The path.

    Raises:
        ValueError: For no runs, only runs without rows, a table without steps or losses, or a path that is a folder.
        OSError: If the page can't be written.
        ImportError: Where plotly or jinja2 isn't installed.

    Example:
        >>> import tempfile
        >>> import pandas
        >>> from principalflow import report
        >>> frame = pandas.DataFrame({"step": [0, 1, 2], "loss": [2.0, 1.0, 0.5]})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = report.write({"first": frame}, f"{folder}/report.html").read_text(encoding="utf-8")
        >>> "The loss fell from 2 at step 0 to 0.5 at step 2" in page
        True
    """
    if not isinstance(runs, Mapping):
        raise ValueError(f"runs must be a mapping from names to tables, got {_checks.shown(runs)}.")
    if not runs:
        raise ValueError("runs must hold at least one run, got none.")
    empty = [str(name) for name, frame in runs.items() if getattr(frame, "empty", False)]
    if len(empty) == len(runs):
        raise ValueError(f"runs must hold a run with at least one row, got none in {', '.join(map(repr, empty))}.")
    page = _render([read(name, frame) for name, frame in runs.items() if str(name) not in empty], empty, title)
    return _page.save(page, path)


def _render(runs: list[Run], empty: list[str], title: str | None) -> str:
    drawn = _plots.draw(runs)
    plots = _plots.curves(drawn)
    data = {"plots": plots, "events": [_ticks(run.events) for run in runs], "steps": _steps(runs)}
    head, rows = _summary.comparison(runs)
    return _page.render(
        "runs",
        title or (f"Training run {runs[0].name}" if len(runs) == 1 else f"{len(runs)} training runs"),
        with_plots=bool(plots),
        runs=[(run, _summary.sentences(run)) for run in runs],
        head=head,
        rows=rows,
        empty=empty,
        once=_plots.dots(drawn),
        plots=plots,
        steps=data["steps"],
        thinned=_plots.is_thinned(runs),
        data=_page.embedded(data),
    )


def _steps(runs: list[Run]) -> list[int]:
    steps = [step for run in runs for step in (run.columns["step"].min(), run.columns["step"].max())]
    return [int(min(steps)), int(max(steps))]


def _ticks(events: list[tuple[int, str]]) -> dict[str, list[Any]]:
    """Returns where to mark events and what to say there; many are gathered into few marks."""
    size = -(-len(events) // _TICKS) or 1
    groups = [events[start : start + size] for start in range(0, len(events), size)]
    return {
        "x": [group[0][0] for group in groups],
        "text": [group[0][1] if len(group) == 1 else f"{group[0][1]} (and {len(group) - 1} more)" for group in groups],
    }
