"""Copies what `principalflow reproduce --profile cpu` saved beside a page of these docs.

The arguments: the folder of the results, the page's folder, and the experiments whose contenders to keep, if any:
`python docs/keep_results.py results docs/results-dal dal drift-generalisation dal-momentum`. The errors of leagues are
always copied.
"""

import shutil
import sys
from pathlib import Path

import pandas


def main(results: Path, page: Path, experiments: list[str]) -> None:
    """Copies claims and figures, and puts the contenders of these experiments together, each once in a setting."""
    shutil.copy(results / "claims.json", page)
    for figure in results.glob("cpu/*/figure.png"):
        shutil.copy(figure, page / f"{figure.parent.name}.png")
    for errors in results.glob("cpu/edge-league*/errors.parquet"):
        shutil.copy(errors, page / f"{errors.parent.name}.parquet")
    if experiments:
        tables = [pandas.read_parquet(results / "cpu" / name / "contenders.parquet") for name in experiments]
        contenders = pandas.concat(tables).drop_duplicates(["setting", "contender"])
        contenders.to_parquet(page / "contenders.parquet", index=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
