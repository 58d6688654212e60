"""Prints what `principalflow reproduce` saved as tables for these docs.

The first argument is a claims.json, whose claims are printed (of the experiments that are named after it), the
contenders.parquet of an experiment on DAL, whose contenders are, or the errors of a league at the edge of stability.
"""

import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def table(claims: list[dict], experiment: str) -> str:
    """Returns the Markdown table of one experiment's claims."""
    rows = [claim for claim in claims if claim["experiment"] == experiment]
    lines = ["| claim | measured | asked | held |", "|---|---|---|---|"]
    for row in rows:
        measured = row["measured"]
        told = {"inf": "∞", "nan": "not measured", None: "not measured"}.get(measured) or f"{measured:.3g}"
        sentence = row["claim"].replace("|", "\\|")
        lines.append(f"| {sentence} | {told} | {row['bound']} | {'yes' if row['held'] else 'no'} |")
    return "\n".join(lines)


def contenders(rows: Sequence[Mapping[str, Any]], setting: str) -> str:
    """Returns the Markdown table of one setting's contenders, the lowest last loss first."""
    lines = ["| | last loss | test accuracy | largest rise | steps that rise |", "|---|---|---|---|---|"]
    for row in sorted((row for row in rows if row["setting"] == setting), key=lambda row: row["last_loss"]):
        name, lost = row["contender"], int(row["diverged"])
        if lost:
            lines.append(f"| {name} | diverged in {lost} of 3 seeds | | | |")
            continue
        accuracy = f"{100 * row['test_accuracy']:.1f}% ± {100 * row['test_accuracy_spread']:.1f}"
        percent = 100 * row["largest_rise"]
        rise = "none" if percent == 0 else f"{percent:.2g}%" if percent < 10 else f"{percent:.0f}%"
        lines.append(f"| {name} | {row['last_loss']:.3g} | {accuracy} | {rise} | {row['rises']:.1f} |")
    return "\n".join(lines)


def distances(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the Markdown table of a league's distances, in hundredths of the path's length."""
    names = list(dict.fromkeys(item["model"] for item in rows))
    found = {(item["race"], item["model"]): item["distance"] for item in rows}
    lines = [f"| | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for first in dict.fromkeys(item["race"] for item in rows):
        values = (found.get((first, name)) for name in names)
        cells = ["" if value is None else "–" if math.isnan(value) else f"{100 * value:.2g}" for value in values]
        lines.append(f"| {first} | {' | '.join(cells)} |")
    return "\n".join(lines)


def medians(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the Markdown table of a league's models: medians over the races that they finished, and how many."""
    columns = {
        "mean_distance": "averaged at the end",
        "sharpness_error": "error of hλ₀",
        "loss_error": "of the centre's loss",
        "mean_loss_error": "of the mean loss",
        "spike_error": "first spike off by",
        "gradients": "gradients a step",
    }
    lines = [f"| | finished | {' | '.join(columns.values())} |", "|---" * (len(columns) + 2) + "|"]
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        finished = [row for row in own if not math.isnan(row["distance"])]
        cells = [f"{len(finished)} of {len(own)}"]
        for column in columns:
            values = [abs(row[column]) for row in finished if not math.isnan(row[column])]
            cells.append(f"{statistics.median(values):.2g}" if values else "–")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main(path: Path, names: Sequence[str]) -> None:
    """Prints the tables."""
    if path.suffix == ".parquet":
        import pandas

        rows = pandas.read_parquet(path).to_dict("records")
        if "race" in rows[0]:
            print(f"{distances(rows)}\n\n{medians(rows)}")
            return
        for setting in dict.fromkeys(row["setting"] for row in rows):
            print(f"{setting}\n\n{contenders(rows, setting)}\n")
        return
    saved = json.loads(path.read_text(encoding="utf-8"))
    for name in names or dict.fromkeys(claim["experiment"] for claim in saved):
        print(f"{name}\n\n{table(saved, name)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
