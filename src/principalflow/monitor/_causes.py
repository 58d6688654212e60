"""Why a loss spiked: the rows that led to it, and rules that read them."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from principalflow.monitor._spikes import Level, Spike
from principalflow.record import Row

# Signs of what is to come are looked for in so many rows before a spike; those before them are calm.
_LOOK = 30
# Early in a run, with fewer calm rows than this, it is the last few that are looked at.
_LEAST_CALM, FEW = 20, 5
# A run is young for so many rows.
_YOUNG = 30
# Steps are at the edge where most of the last few have a realised edge of at least this.
_AT_EDGE = 0.7
# Eigenvalues are known to a tolerance, so that this counts as the edge, too.
_MEASURED = 0.95
# On batches the edge is met earlier than on all data.
_NEAR = 0.5
# Directions that far beyond the edge would have grown at once: who has been calm there isn't driven by them, as where
# Adam has no gradients of some parameters yet.
_BEYOND, _CALM = 2.0, 5
# A rate that is higher by less than this wasn't raised.
_RAISED = 1.2
# Rates as close as that are one.
_SAME = 1.1
# Losses as close as that, relative to themselves, are of the same batch.
_SAME_LOSS = 1e-3
# The least surprise that counts as one.
_SURPRISE = 2.0
# What the step before did to its own batch is at most this share of the rise where a batch itself is bad.
_CARRIED = 0.25
# Steps were longer than usual where they were at least so many times as long.
LONGER = 1.5
# How much above what is usual one gradient must be for a burst.
_BURST = 3.0


class Lead:
    """The rows that led to a spike, its onset the last of them.

    Attributes:
        spike: The spike.
        rows: The rows.
        last: The number of the onset among them.
        calm: How many of them, from the oldest on, tell what is usual.
        measured: The rows with the curvature, older ones too; none where the run was calm far beyond the edge.
    """

    def __init__(self, spike: Spike):
        self.spike = spike
        self.rows = [*spike.before, spike.onset]
        self.last = len(spike.before)
        self.calm = self.last - _LOOK if self.last >= _LOOK + _LEAST_CALM else max(0, self.last - FEW)
        late = [row["edge"] for row in spike.measured[-_CALM:]]
        beyond = len(late) == _CALM and min(late) > _BEYOND
        self.measured = [] if beyond else spike.measured

    def __getitem__(self, name: str) -> np.ndarray:
        """A column, NaN where a row doesn't have it."""
        return np.array([row.get(name, math.nan) for row in self.rows], dtype=float)

    @property
    def has_steps(self) -> bool:
        """Whether the steps that led here are known."""
        return self.last > 0 and all("batch_loss" in row for row in self.rows[-2:])

    @property
    def has_curvature(self) -> bool:
        """Whether the curvature was measured, if only without a threshold."""
        return any("eigenvalue_0" in row for row in self.rows)

    @property
    def is_clipped(self) -> bool:
        """Whether gradients are known to be clipped."""
        return any(row.get("clipped", False) for row in self.rows)

    @property
    def on_batches(self) -> bool:
        """Whether the steps are on batches: the loss of one isn't where the one before left it."""
        return are_of_batches(self.rows)

    @property
    def is_young(self) -> bool:
        """Whether the run has just begun."""
        return self.spike.from_start and self.last < _YOUNG

    @property
    def edge(self) -> float:
        """The last sharpness over its threshold; NaN where none was measured."""
        return self.measured[-1]["edge"] if self.measured else math.nan

    def usual(self, name: str) -> float:
        """Returns the middle of the calm rows, of steps only those that moved; NaN where there are none."""
        values = self[name][: self.calm]
        return middle(values[values != 0] if name == "update_norm" else values)

    def out_of_line(self, values: np.ndarray, least: float = -math.inf) -> np.ndarray:
        """Returns which rows after the calm ones are above what these are used to."""
        level = Level(values[: self.calm])
        limit = max(level.limit, least) if level.is_known else math.inf
        return self.calm + np.flatnonzero(values[self.calm :] > limit)

    def realised(self, end: int) -> float:
        """Returns the realised edge that most of the few steps before a row had; infinite for steps up the slope."""
        few = slice(max(0, end - FEW), end)
        zeta, change = self["realised_edge"][few], self["batch_loss_change"][few]
        known = np.where(np.isnan(zeta), np.where(change > 0, math.inf, -math.inf), zeta)
        return float(np.sort(known)[len(known) // 4]) if known.size else math.nan


class Rise(NamedTuple):
    """A rate that was raised.

    Attributes:
        start: The last step that is known to have the rate before.
        stop: The first that is known to have the new one.
        factor: The new rate over the one before.
        rate: The new rate; NaN where it isn't known.
    """

    start: int
    stop: int
    factor: float
    rate: float = math.nan


def are_of_batches(rows: Sequence[Row]) -> bool:
    """Whether steps are on batches: the loss of one isn't where the one before left it."""
    before, change = (
        np.array([row.get(name, math.nan) for row in rows]) for name in ("batch_loss", "batch_loss_change")
    )
    left = before + change
    return bool(np.any(np.abs(before[1:] - left[:-1]) > _SAME_LOSS * np.abs(before[1:])))


def middle(values: np.ndarray) -> float:
    """Returns the median of what is known, NaN for nothing."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if known.size else math.nan


def is_bad_batch(lead: Lead) -> bool:
    """Whether the loss came with a batch: high before its step, while the steps before it did nothing unusual."""
    if not lead.has_steps or lead.calm < FEW:
        return False
    before, spike = lead.rows[-2], lead.spike
    carried, loss = before["batch_loss"] + before["batch_loss_change"], spike.onset["batch_loss"]
    rise = loss - spike.level if math.isfinite(loss) else math.inf
    if not carried - spike.level < _CARRIED * rise:
        return False
    longer = lead.out_of_line(lead["update_norm"], LONGER * lead.usual("update_norm"))
    return not np.any(longer < lead.last) and not lead.realised(lead.last) >= 1


def raised_rate(lead: Lead, *, late: bool) -> Rise | None:
    """Returns how the rate was raised, by what is known of it or by the steps: at once and of late, or in any way."""
    before, since = ([row for row in rows if _has_rate(row)] for rows in (lead.spike.before, lead.spike.since))
    known = [(row["step"], row["learning_rate"]) for row in (*before, *since[:1])]
    rise = _known_rise(known, lead.rows[lead.calm]["step"] if late else None)
    longer = _longer_steps(lead, late) if lead.has_steps and (rise or not since) else None
    if rise is None:
        rise = longer
    elif longer is not None and rise.start < longer.stop <= rise.stop:
        rise = rise._replace(start=longer.start, stop=longer.stop)  # they tell the very step
    return rise if rise is not None and _overshoots(lead, rise, late) else None


def _known_rise(known: list[tuple[int, float]], since: int | None) -> Rise | None:
    """Returns how a rate rose from its lowest to its last; with `since`, only if it did so at once and after that."""
    if since is not None:
        late = [i for i in range(1, len(known)) if known[i][0] >= since and known[i][1] >= _RAISED * known[i - 1][1]]
        known = known[late[0] - 1 :] if late else []
    if not known:
        return None
    lowest, last = min(rate for _, rate in known), known[-1][1]
    if not last >= _RAISED * lowest:
        return None
    start = max(step for step, rate in known if rate <= _SAME * lowest)
    stop = min(step for step, rate in known if step > start and rate >= last / _SAME)
    return Rise(start, stop, last / lowest, last)


def _longer_steps(lead: Lead, late: bool) -> Rise | None:
    """Returns how the steps got longer at once and for good, before the gradients did."""
    length, adaptive = lead["update_norm"], "surprise" in lead.spike.onset
    with np.errstate(invalid="ignore", divide="ignore"):
        pace = length if adaptive else length / lead["batch_gradient_norm"]
    pace = np.where(length > 0, pace, math.nan)  # as between the steps of optax.MultiSteps
    larger = np.concatenate([lead.out_of_line(lead[name]) for name in ("surprise", "batch_gradient_norm")])
    end = int(np.min(larger, initial=len(pace)))
    for start in lead.out_of_line(pace) if late else _jumps(pace):
        new, before = (part[~np.isnan(part)] for part in (pace[start:end], pace[:start]))
        old = middle(before[-FEW:])
        if np.sum(new >= LONGER * old) > len(new) / 2:
            return Rise(lead.rows[start - 1]["step"], lead.rows[start]["step"], middle(new) / old)
    return None


def _jumps(pace: np.ndarray) -> list[int]:
    """Returns where all that follows is above all before, as the step length over the gradient of plain descent."""
    rows = np.flatnonzero(~np.isnan(pace))
    if len(rows) <= FEW:
        return []
    highest, lowest = np.maximum.accumulate(pace[rows])[:-1], np.minimum.accumulate(pace[rows][::-1])[::-1][1:]
    return [int(row) for row in rows[1:][lowest >= _RAISED * highest]]


def _overshoots(lead: Lead, rise: Rise, otherwise: bool) -> bool:
    """Whether steps at a new rate went too far, by themselves or by the curvature; `otherwise` without either."""
    if lead.has_steps:
        return bool(np.any(lead["batch_loss_change"][-FEW:] > 0))
    if not lead.measured:
        return otherwise
    last = lead.measured[-1]
    return last["edge"] * max(1.0, rise.rate / last["learning_rate"]) >= _NEAR


def surprise_at(lead: Lead) -> int | None:
    """Returns the row where the squared gradient first left Adam's average behind, with the steps before it stable."""
    rows = lead.out_of_line(lead["surprise"], _SURPRISE)
    if not rows.size or lead.realised(int(rows[0])) >= _AT_EDGE:
        return None
    return int(rows[0])


def is_too_high_from_the_start(lead: Lead) -> bool:
    """Whether a young run overshoots, or the sharpness never was below its threshold."""
    if lead.is_young and lead.has_steps:
        return lead.realised(lead.last) >= _AT_EDGE
    return bool(lead.measured) and min(row["edge"] for row in lead.measured) > 1


def is_at_edge(lead: Lead) -> bool:
    """Whether the steps, or the curvature, came to the edge."""
    return is_measured_at_edge(lead) or (lead.has_steps and lead.realised(lead.last) >= _AT_EDGE)


def is_measured_at_edge(lead: Lead) -> bool:
    """Whether the sharpness was at its threshold."""
    return lead.edge >= _MEASURED


def burst_at(lead: Lead) -> int | None:
    """Returns the row at which the gradient alone became several times what it was."""
    norm = lead["batch_gradient_norm"]
    rows = lead.out_of_line(norm, _BURST * lead.usual("batch_gradient_norm"))
    sudden = rows.size and norm[rows[0]] >= _BURST * norm[rows[0] - 1]
    return int(rows[0]) if lead.has_steps and sudden else None


def _has_rate(row: Row) -> bool:
    return 0 < row.get("learning_rate", math.nan) < math.inf
