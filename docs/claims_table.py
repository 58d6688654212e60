"""Prints what `principalflow reproduce` saved as tables for these docs.

The first argument is a claims.json, whose claims are printed (of the experiments that are named after it), or the
contenders.parquet of an experiment on DAL, whose contenders are.
"""

import json
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


def main(path: Path, names: Sequence[str]) -> None:
    """Prints the tables."""
    if path.suffix == ".parquet":
        import pandas

        rows = pandas.read_parquet(path).to_dict("records")
        for setting in dict.fromkeys(row["setting"] for row in rows):
            print(f"{setting}\n\n{contenders(rows, setting)}\n")
        return
    saved = json.loads(path.read_text(encoding="utf-8"))
    for name in names or dict.fromkeys(claim["experiment"] for claim in saved):
        print(f"{name}\n\n{table(saved, name)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
