"""What an experiment is: settings, a run that gives tables, claims about them, and a figure."""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from matplotlib.figure import Figure

Profile = Literal["quick", "cpu", "paper"]
PROFILES: tuple[Profile, ...] = ("quick", "cpu", "paper")
Table = Any  # a pandas DataFrame; its own annotations don't know what a column holds
Tables = dict[str, Table]

_HOLDS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq}


@dataclass(frozen=True)
class Claim:
    """A sentence, the number that was measured for it, and the bound that decides whether it holds.

    `Claim.below("the error", 0.2, 1)`, and `at_most`, `above`, `at_least` and `equal`, make one.

    Attributes:
        sentence: What is claimed, in plain words.
        measured: The number; NaN where it could not be measured, and then the claim does not hold.
        comparison: "<", "<=", ">", ">=" or "==".
        limit: What `measured` is compared with.
        note: Why the measurement differs from the paper's words, where it does; or how it was made.
    """

    sentence: str
    measured: float
    comparison: str
    limit: float
    note: str = ""

    @classmethod
    def below(cls, sentence: str, measured: float, limit: float, note: str = "") -> "Claim":
        """Returns the claim that a number is below a limit."""
        return cls(sentence, measured, "<", limit, note)

    @classmethod
    def at_most(cls, sentence: str, measured: float, limit: float, note: str = "") -> "Claim":
        """Returns the claim that a number is a limit at most."""
        return cls(sentence, measured, "<=", limit, note)

    @classmethod
    def above(cls, sentence: str, measured: float, limit: float, note: str = "") -> "Claim":
        """Returns the claim that a number is above a limit."""
        return cls(sentence, measured, ">", limit, note)

    @classmethod
    def at_least(cls, sentence: str, measured: float, limit: float, note: str = "") -> "Claim":
        """Returns the claim that a number is a limit at least."""
        return cls(sentence, measured, ">=", limit, note)

    @classmethod
    def equal(cls, sentence: str, measured: float, limit: float, note: str = "") -> "Claim":
        """Returns the claim that a number is another one."""
        return cls(sentence, measured, "==", limit, note)

    @property
    def held(self) -> bool:
        """Whether the measured number is within the bound."""
        return not math.isnan(self.measured) and bool(_HOLDS[self.comparison](self.measured, self.limit))

    @property
    def bound(self) -> str:
        """The bound as text, such as "< 1e-08"."""
        return f"{self.comparison} {self.limit:g}"


class Makeable(Protocol):
    """A training, or a sweep of them, that is made once and kept; two of the same settings are equal."""

    @property
    def label(self) -> str:
        """Its name."""
        ...

    def make(self) -> None:
        """Makes it, where it isn't there already."""
        ...


def _nothing_to_explore(config: Any, tables: Tables) -> Mapping[str, Any]:
    return {}


def _no_trainings(config: Any) -> Sequence[Makeable]:
    return ()


@dataclass(frozen=True)
class Experiment:
    """One experiment of the paper, or beyond it.

    Attributes:
        id: Its name on the command line.
        title: What it shows, as a short sentence.
        figure: Which figure, table or theorem of the paper it is; empty for one beyond the paper.
        paper_says: What the paper says, in our own words; empty for one beyond the paper.
        we_add: What we show besides, and how to read it.
        trainings: Takes the settings and returns the trainings that `run` asks for, which others may share.
        paper_setting: The paper's own setting.
        profiles: A frozen dataclass of settings for each profile.
        run: Takes the settings and returns named tables.
        claims: Takes settings and tables and returns the claims.
        draw: Takes settings and tables and returns the figure.
        explore: Takes settings and tables and returns interactive figures (plotly) by their captions.
        schema: Raised where a change of the code gives other tables: results of other numbers are not taken any more.
        stand_ins: By profile, what stands in for the paper's data or network, as a sentence; none for the paper's own.
    """

    id: str
    title: str
    paper_setting: str
    profiles: Mapping[Profile, Any]
    run: Callable[[Any], Tables]
    claims: Callable[[Any, Tables], Sequence[Claim]]
    draw: Callable[[Any, Tables], Figure]
    explore: Callable[[Any, Tables], Mapping[str, Any]] = _nothing_to_explore
    stand_ins: Mapping[Profile, str] = field(default_factory=dict)
    figure: str = ""
    paper_says: str = ""
    we_add: str = ""
    trainings: Callable[[Any], Sequence[Makeable]] = _no_trainings
    schema: int = 1
