"""What the experiments on DAL ask of the tables of their sweeps."""

import numpy as np
import pandas

from principalflow._lab import Claim, Table
from principalflow.reproduce._statistics import Correlation
from principalflow.reproduce._sweeps import FIXED

DAL, HALF = "DAL", "DAL-0.5"
STEPS_NOT_COST = "Counted in steps; one of DAL's costs about three gradients."


def settings(table: Table) -> list[tuple[str, Table]]:
    """Returns the settings, network, data and batch, with their rows of a table."""
    return list(table.groupby("setting", sort=False))


def is_full_batch(rows: Table) -> bool:
    """Returns whether the setting of these rows has all samples at each step, so that each loss is of all."""
    return bool(rows["full_batch"].iloc[0])


def of(table: Table, setting: str) -> Table:
    """Returns the rows of one setting."""
    return table[table["setting"] == setting]


def named(contenders: Table, name: str) -> Table:
    """Returns one row by the contender's name; NaN where there is none, as it would be in a setting without it."""
    rows = contenders[contenders["contender"] == name]
    return rows.iloc[0] if len(rows) else pandas.Series({**dict.fromkeys(contenders, np.nan), "contender": name})


def fixed_rates(table: Table) -> Table:
    """Returns the rows of descent at fixed rates, without momentum or Adam."""
    return table[table["family"] == FIXED]


def lowest_loss(contenders: Table) -> Table:
    """Returns the contender with the lowest last loss on average over the seeds; NaN where all of them diverged."""
    best = contenders.loc[contenders["last_loss"].idxmin()]
    return best if best["last_loss"] < np.inf else named(contenders, "none")


def best_test(contenders: Table) -> Table:
    """Returns the contender with the best test accuracy on average over the seeds, such as of `fixed_rates`."""
    return contenders.loc[contenders["test_accuracy"].fillna(-1).idxmax()]


def accuracy(row: Table) -> str:
    """Returns mean and spread of a test accuracy, in words."""
    if np.isnan(row["test_accuracy"]):
        return f"none, since {row['diverged']:g} of its seeds diverged"
    return f"{100 * row['test_accuracy']:.1f}% ± {100 * row['test_accuracy_spread']:.1f}"


def end_of_sweep(best: Table, rates: Table) -> str:
    """Returns what to add to a note where the best rate is the lowest or highest one, so that there may be better."""
    ends = {rates["rate"].min(): "lowest", rates["rate"].max(): "highest"}
    return f" It is the {ends[best['rate']]} rate of the sweep." if best["rate"] in ends else ""


def correlation_claim(sentence: str, found: Correlation, sign: int, note: str = "") -> Claim:
    """Returns the claim that a rank correlation has a sign: that its whole 95% interval is above 0, or below it."""
    claim, end, measured = (Claim.above, "lower", found.low) if sign > 0 else (Claim.below, "upper", found.high)
    words = f"{sentence}: the {end} end of the rank correlation's 95% interval"
    note = f"The correlation is {found}; runs are taken as independent. {note}".strip()
    return claim(words, measured, 0, note=note)


def ratio(one: float, other: float) -> float:
    """Returns a ratio; NaN where it says nothing, since the other one is zero or diverged."""
    return one / other if 0 < other < np.inf else np.nan
