"""How Hessian products are made: exactly, or where PyTorch has no second derivative by differences of the gradient."""

# pyright: reportMissingImports=false

import math
from collections.abc import Callable
from functools import cache
from typing import Literal, TypeVar

import torch
from torch import Tensor

from principalflow import _checks
from principalflow.torch._graph import NoDerivativeError

Option = Literal["auto", "exact", "differences"]
# The gradient at the parameters plus a flat vector.
Slope = Callable[[Tensor], Tensor]

_T = TypeVar("_T")

# Trial steps of differences are four times as long as the one before, this often either way.
_FACTOR, _MOST_TRIALS = 4.0, 8
# After so many products the step is looked for again: a loss may become sharper along a training.
_PRODUCTS_PER_TRIAL = 100
# Exact products that are further from differences than their error and this, relatively, are wrong.
_TOO_FAR = 0.02


class Products:
    """Which way products are made; "auto" is exactly, until that fails.

    Attributes:
        is_exact: Whether they are exact so far.
        differences: Those of the gradient.
        suspects: Functions with a backward pass of their own, of which PyTorch can't know whether it has a derivative.
    """

    def __init__(self, option: Option):
        _checks.one_of("products", option, ("auto", "exact", "differences"))
        self._option, self._why = option, "as was asked for"
        self.is_exact, self.differences, self.suspects = option != "differences", Differences(), list[str]()

    @property
    def how(self) -> str:
        """How products are made, in a sentence."""
        if self.is_exact:
            return "exactly, by two backward passes"
        error = self.differences.error
        known = "" if math.isnan(error) else f", with an error of about {error:.0e}"
        return f"by differences of the gradient{known}: {self._why}"

    def attempt(self, exactly: Callable[[], _T], otherwise: Callable[[], _T]) -> _T:
        """Returns what `exactly` does; where there is no derivative, from then on, what `otherwise` does.

        Raises:
            ValueError: Where there is no derivative and exact products were asked for.
        """
        if self.is_exact:
            try:
                found = exactly()
                if self.is_exact:  # `verify` may have found otherwise
                    return found
            except NoDerivativeError as error:
                self.give_up(str(error))
        return otherwise()

    def verify(self, exactly: Callable[[Tensor], Tensor], slope: Slope, gradient: Callable[[], Tensor]) -> None:
        """Holds exact products against differences if there are suspects: PyTorch takes what it can't see for constant.

        Raises:
            ValueError: Where they differ and exact products were asked for.
        """
        if not self.suspects:
            return
        names, self.suspects, along = ", ".join(self.suspects), [], gradient()
        found, expected = exactly(along), self.differences.times(slope, along, gradient)
        apart, size = float((found - expected).norm()), float(expected.norm())
        if apart > (_TOO_FAR + self.differences.error) * size:
            off = f"products through it would be off by {apart / (size or 1):.0%}"
            self.give_up(f"the backward pass of {names} can't be differentiated, and {off}")

    def give_up(self, why: str) -> None:
        """Goes over to differences, or raises a ValueError if exact products were asked for."""
        if self._option == "exact":
            raise ValueError(f"products must be 'auto' or 'differences' here: {why}.")
        self.is_exact, self._why = False, why


class Differences:
    r"""Hessian products $Hv \approx (g(\theta + e v) - g(\theta - e v)) / 2e$, two gradients each.

    The longer the step $\|ev\|$, the more of higher derivatives comes in, as its square; the shorter, the more of the
    gradient's rounding, as its inverse. On small networks and transformers, trained or not, the best step was 1 to 3
    times the cube root of the rounding unit (0.005 to 0.015 in single precision, with errors of 1e-5 to 2e-3 along
    sharp directions); sharper losses need a shorter one. So it is tried out, along $Hg$, which lies in the directions
    of large curvature: from there on by factors of 4, to where two neighbours agree best. The step is between these.

    Attributes:
        error: How far these two products are apart, relatively: an estimate of the error that is rather too large. NaN
            before the first product.
    """

    def __init__(self):
        self.error, self._step, self._left = math.nan, 0.0, 0

    def times(self, slope: Slope, v: Tensor, gradient: Callable[[], Tensor]) -> Tensor:
        """Returns the Hessian times a vector."""
        if not self._left:
            self._try_out(slope, v, gradient())
        self._left -= 1
        return _central(slope, v, self._step)

    def third(self, product: Callable[[Tensor], Tensor], u: Tensor) -> Tensor:
        """Returns third derivatives: the difference along u of products, as a function of where they are made."""
        error = max(self.error, torch.finfo(u.dtype).eps) if self._step else torch.finfo(u.dtype).eps
        return _central(product, u, 2 * error ** (1 / 3))

    def _try_out(self, slope: Slope, v: Tensor, gradient: Tensor) -> None:
        shortest = (self._step or 2 * torch.finfo(v.dtype).eps ** (1 / 3)) / _FACTOR**0.5
        along = gradient if gradient.any() else v
        sharp = _central(slope, along, shortest)
        along = sharp if sharp.any() and sharp.isfinite().all() else along

        @cache
        def product(i: int) -> Tensor:
            return _central(slope, along, shortest * _FACTOR**i)

        @cache
        def apart(i: int) -> float:
            size = float(product(i).norm())
            found = float((product(i) - product(i + 1)).norm()) / size if size else 0.0
            return found if math.isfinite(found) else math.inf

        best, good = 0, 30 * torch.finfo(v.dtype).eps ** (2 / 3)
        for direction in (-1, 1):
            while apart(best) > good and abs(best) < _MOST_TRIALS and apart(best + direction) < apart(best):
                best += direction
        self.error, self._step, self._left = apart(best), shortest * _FACTOR ** (best + 0.5), _PRODUCTS_PER_TRIAL


def _central(slope: Slope, v: Tensor, step: float) -> Tensor:
    """Returns the central difference along v, with a step of this length."""
    length = float(v.norm())
    if not length or not math.isfinite(length):
        return 0.0 * v
    ahead = (step / length) * v
    return (length / (2 * step)) * (slope(ahead) - slope(-ahead))
