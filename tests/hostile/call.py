"""A row of the table of calls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from hostile.values import NOTHINGS, OBJECTIVES, SMALL, THETA, VECTORS

import principalflow as pf


@dataclass(frozen=True)
class Call:
    """One row: a public function, arguments that work, and for some of them what is thrown at it instead.

    Attributes:
        name: Its name below `principalflow`.
        function: The function, or what calls it and uses its result.
        good: Arguments that work.
        hostile: What is thrown at each.
        names: Names that an error may begin with besides those of the arguments.
        is_formula: Whether it computes a plain formula, whose result is as finite as its arguments.
    """

    name: str
    function: Callable
    good: dict[str, Any]
    hostile: dict[str, Sequence]
    names: tuple[str, ...] = ()
    is_formula: bool = False

    def cases(self, most: float, pairs: int) -> list[dict[str, Any]]:
        """Returns what is thrown at it, the same each time: `most` of its hostile arguments, and some pairs of them."""
        random = Random(self.name)
        singles = [{name: value} for name, values in self.hostile.items() for value in values]
        if len(singles) > most:
            singles = random.sample(singles, int(most))
        if len(self.hostile) < 2:
            return singles
        names = [random.sample(sorted(self.hostile), 2) for _ in range(pairs)]
        return [*singles, *({name: random.choice(self.hostile[name]) for name in some} for some in names)]


PLACE = dict(objective=OBJECTIVES, theta=VECTORS)
AT = dict(objective=SMALL, theta=THETA)
BOWL = pf.functions.quadratic(np.diag([1.0, 2.0, 3.0]))
SELECTS = (lambda path: "w" in path, lambda path: False, lambda path: None, lambda path: path, *NOTHINGS[:8])
