"""Prints the claims that `principalflow reproduce` saved in a claims.json (first argument) as tables for these docs."""

import json
import sys
from pathlib import Path


def table(claims: list[dict], experiment: str) -> str:
    """Returns the Markdown table of one experiment."""
    rows = [claim for claim in claims if claim["experiment"] == experiment]
    lines = ["| claim | measured | asked | held |", "|---|---|---|---|"]
    for row in rows:
        measured = "not to be had" if row["measured"] is None else f"{row['measured']:.3g}"
        sentence = row["claim"].replace("|", "\\|")
        lines.append(f"| {sentence} | {measured} | {row['bound']} | {'yes' if row['held'] else 'no'} |")
    return "\n".join(lines)


if __name__ == "__main__":
    saved = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for name in sys.argv[2:] or dict.fromkeys(claim["experiment"] for claim in saved):
        print(f"{name}\n\n{table(saved, name)}\n")
