"""What DAL and CDAT share in PyTorch: a step with a rate from the curvature along an update."""

# PyTorch is optional, and its foreach functions are public in its documentation only by their underscored names.
# pyright: reportMissingImports=false, reportPrivateImportUsage=false

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from principalflow.torch._derivatives import Closure, by_finite_difference, exactly

# What a subclass measures: a number, several, or a tensor for each parameter.
Measured = Any


class NonFiniteWarning(UserWarning):
    """A gradient or a curvature is not finite, and the parameters become so too."""


class Along(torch.optim.Optimizer):
    """A step along an update that a subclass proposes, with a rate from the curvature that it measures there.

    All options and what is remembered are in the groups, so that `state_dict`, copies and pickles carry them.
    """

    # Options that groups may have for themselves, those that are one for all, what is remembered, and where the rate
    # is repeated, to see whether somebody else wrote `lr`.
    _OWN: ClassVar[tuple[str, ...]]
    _SHARED: ClassVar[tuple[str, ...]]
    _MEMORY: ClassVar[tuple[str, ...]]
    _RATE: ClassVar[str]

    @property
    def curvature(self) -> float:
        """The measured (or averaged) curvature that the last rate comes from."""
        return self.param_groups[0]["measured_curvature"]

    @property
    def count(self) -> int:
        """How many steps were taken."""
        return self.param_groups[0]["count"]

    @property
    def nonfinite(self) -> int:
        """How many steps had a gradient or a curvature that was not finite."""
        return self.param_groups[0]["nonfinite"]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group, checking its options and parameters."""
        super().add_param_group(param_group)
        group, first = self.param_groups[-1], self.param_groups[0]
        try:
            unknown = sorted(set(group) - set(self.defaults) - {"params", "param_names", "initial_lr"})
            if unknown:
                raise ValueError(f"a group may have the options {', '.join(self._OWN)}, got {', '.join(unknown)}.")
            self._check_options(group)
            for name in self._SHARED:
                if group[name] != first[name]:
                    raise ValueError(f"{name} is one for all groups, got {group[name]!r} beside {first[name]!r}.")
            for p in group["params"]:
                self._check_parameter(p, group)
        except ValueError:
            self.param_groups.pop()
            raise
        group.update({name: first[name] for name in self._MEMORY})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what `state_dict` returned, options included."""
        for group in state_dict["param_groups"]:
            missing = sorted(set(self.defaults) - set(group))
            if missing:
                ours = type(self).__name__
                raise ValueError(f"state_dict must be one of {ours}'s, got one without {', '.join(missing)}.")
        super().load_state_dict(state_dict)

    @torch.no_grad()
    def step(self, closure: Closure | Sequence[Closure] | None = None) -> Tensor:  # pyright: ignore
        """Takes one step and returns the loss before it.

        Args:
            closure: Computes the loss, as the class says. A list of them accumulates.

        Returns:
            The loss, the sum over the closures.

        Raises:
            RuntimeError: Where the closure, the model or a scheduler doesn't fit, with the remedy.
            ValueError: For a group's option that was set out of its range.
        """
        name = type(self).__name__
        closures: list[Any] = list(closure) if isinstance(closure, Sequence) else [closure]
        if not closures or not all(map(callable, closures)):
            needed = "step(lambda: criterion(model(x), y))"
            raise RuntimeError(f"{name} measures curvature, so step needs a closure: {needed}.")
        for i, group in enumerate(self.param_groups):
            self._check_options(group, scheduled=True)
            self._refuse_other_writers(group, i)
        shared = self.param_groups[0]
        params = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        due = self._is_due()

        differentiate = exactly if shared["curvature"] == "hvp" else by_finite_difference
        loss, gradient, hessian_times = differentiate(closures, params, again=due)
        for p, g in zip(params, gradient, strict=True):
            p.grad = g
        along, length, undo = self._proposed(params)
        finite = math.isfinite(length)
        measured: Measured = math.nan
        if due and finite:
            measured = self._measure(params, along, length, hessian_times)
            values = measured.values() if isinstance(measured, dict) else [torch.tensor(measured)]
            finite = all(bool(value.isfinite().all()) for value in values)
        if not finite:
            self._remember(nonfinite=shared["nonfinite"] + 1)
            if shared["skip_nonfinite"]:
                undo()
                return loss
            warnings.warn(
                "a gradient or curvature is not finite, and the step is taken as it is. "
                f"{name}(..., skip_nonfinite=True) skips such steps.",
                NonFiniteWarning,
                stacklevel=2,
            )
        if due:
            self._keep(measured, length)
        # As in JAX's `held`: nothing else would hold the sharpest directions before the next measurement.
        part = 1.0 if due or not length else min(1.0, shared["length"] / length)
        for group in self.param_groups:
            self._move(group, along, part)
        self._remember(count=shared["count"] + 1)
        return loss

    def _measure(
        self, params: list[Tensor], along: dict[Tensor, Tensor], length: float, hessian_times: Callable
    ) -> Measured:
        direction = {p: u / (length or 1.0) for p, u in along.items()}
        product = zip(params, hessian_times([direction.get(p) for p in params]), strict=True)
        return self._measured(direction, {p: Hd for p, Hd in product if Hd is not None}, length)

    @abstractmethod
    def _is_due(self) -> bool:
        """Returns whether to measure at this step."""

    @abstractmethod
    def _proposed(self, params: list[Tensor]) -> tuple[dict[Tensor, Tensor], float, Callable[[], None]]:
        """Returns the update, its length, NaN where a gradient is not finite, and what takes it back where skipped."""

    @abstractmethod
    def _measured(self, direction: dict[Tensor, Tensor], product: dict[Tensor, Tensor], length: float) -> Measured:
        """Returns the measurements, averaged if that is asked for, from the direction and the Hessian times it."""

    @abstractmethod
    def _keep(self, measured: Measured, length: float) -> None:
        """Remembers the measurements."""

    @abstractmethod
    def _move(self, group: dict[str, Any], along: dict[Tensor, Tensor], part: float) -> None:
        """Moves a group's parameters by this part of the step, and writes the rate into the group."""

    @abstractmethod
    def _check_options(self, group: dict[str, Any], scheduled: bool = False) -> None:
        """Makes a group's options numbers, if they are right; a schedule may take some down to 0."""

    def _remember(self, **values: float) -> None:
        for group in self.param_groups:
            group.update(values)

    def _newest_weight(self) -> float:
        """Returns the weight of a new measurement in the running average, corrected for its start as Adam's."""
        shared = self.param_groups[0]
        if shared["average"] is None:
            return 1.0
        return (1 - shared["average"]) / (1 - shared["average"] ** (shared["count"] // shared["every"] + 1))

    def _check_parameter(self, p: Tensor, group: dict[str, Any]) -> None:
        if not p.is_floating_point():
            raise ValueError(f"params must be real floating-point numbers, got {p.dtype}.")
        if hasattr(p, "device_mesh"):
            raise ValueError(
                f"params must not be sharded (DTensor): {type(self).__name__} would measure each part alone."
            )
        if group["curvature"] == "finite_difference" and torch.finfo(p.dtype).bits < 32:
            raise ValueError(
                f"a finite difference of {p.dtype} parameters is lost in rounding: use curvature='hvp', "
                "or keep the parameters in float32."
            )

    def _refuse_other_writers(self, group: dict[str, Any], index: int) -> None:
        lr, ours = group["lr"], group[self._RATE]
        if lr != ours and not math.isnan(ours):
            name, first = type(self).__name__, self._OWN[0]
            raise RuntimeError(
                f"somebody, perhaps a scheduler, set the lr of group {index} to {lr}, but {name} computes it: "
                f"schedule the group's '{first}' or 'max_learning_rate' instead."
            )


def nothing() -> None:
    """Takes nothing back, where an update changed nothing yet."""


def norm(tensors: Iterable[Tensor]) -> float:
    """Returns the Euclidean norm, in single precision at least, without overflow or underflow on the way."""
    wide = [_wide(t) for t in tensors if t.numel()]
    if not wide:
        return 0.0
    length = _gathered(wide).norm().item()
    if 1e-15 < length < math.inf:  # the squares of single precision are fine
        return length
    largest = _gathered(wide, order=math.inf).max().item()
    if not 0 < largest < math.inf:
        return largest
    return largest * _gathered([t / largest for t in wide]).norm().item()


def dot(pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
    """Returns the inner product, in single precision at least."""
    sums = [(_wide(a) * _wide(b)).sum() for a, b in pairs]
    return torch.stack([part.to(sums[0].device) for part in sums]).sum().item() if sums else 0.0


def number(value: float) -> Tensor:
    """Returns a number as a tensor."""
    return torch.tensor(value, dtype=torch.float64)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _gathered(tensors: list[Tensor], order: float = 2.0) -> Tensor:
    """Returns the norms of the tensors, on one device."""
    return torch.stack([norm.to(tensors[0].device) for norm in torch._foreach_norm(tensors, order)])
