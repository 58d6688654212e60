"""DAL, the drift-adjusted learning rate, as a PyTorch optimiser."""

# PyTorch is optional, and its foreach functions are public in its documentation only by their underscored names.
# pyright: reportMissingImports=false, reportPrivateImportUsage=false

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from principalflow import _checks
from principalflow.drift import Curvature
from principalflow.torch._derivatives import Closure, by_finite_difference, exactly


class NonFiniteWarning(UserWarning):
    """A gradient or a curvature is not finite, and the parameters become so too."""


class DAL(torch.optim.Optimizer):
    r"""Gradient descent with the drift-adjusted learning rate, an optimiser without a rate to choose.

    A step is $\theta \leftarrow \theta - h(\theta)\, g$ with $h = \min(2/\|H \hat g\|^p, 5)$ and $\hat g = g/\|g\|$
    (paper, sections 6.2 and 6.3). It is the same as `principalflow.dal`, number for number.

    `step` needs a closure. With `curvature="hvp"` the closure returns the loss and does not call `backward`: gradient
    and Hessian product come from `torch.autograd.grad`. With `curvature="finite_difference"` it is the usual closure,
    which zeroes the gradients, calls `backward` and returns the loss; it runs twice where the curvature is measured,
    with the same random numbers. A list of closures accumulates: their losses are added up, one graph in memory at a
    time.

    The rate of the last step is `group["lr"]`, where loggers look for it, and the gradient of the last step is in
    `grad`. A scheduler can't set the rate; schedule a group's `"factor"` or `"max_learning_rate"` instead.

    Groups may have their own `power`, `max_learning_rate`, `factor`, `momentum` and `weight_decay`. The curvature is
    one for all groups. A group with `adapt=False` takes plain steps with its own `lr` and has no part in the curvature.

    Args:
        params: Parameters, or groups of them.
        power: p. The larger, the smaller and safer the steps where the curvature is above 1.
        max_learning_rate: The cap on the rate, 5 in the paper (appendix C).
        factor: The rate at curvature 1, 2 in the paper.
        momentum: m in [0, 1): $v \leftarrow m v - h g$, $\theta \leftarrow \theta + v$ (section 7).
        per_parameter: The rate $\min(2/|(H g)_i|^p, 5)$ for each parameter (appendix D); `group["lr"]` is their mean.
        curvature: `"hvp"` for the exact product by a second backward pass; `"finite_difference"` for one more gradient
            (appendix C), which works with whatever has a first derivative: fused attention, compiled models.
        every: The curvature is measured every so many steps and kept in between. So that a kept rate can't blow up,
            gradients that are longer than the measured one are scaled down to its length.
        average: The decay, in [0, 1), of a running average of the measured curvature, for noisy batches; None for none.
            It falls slowly, and rises at once where a measurement is above it.
        weight_decay: Decoupled: subtracts `weight_decay` times the rate times the parameters.
        skip_nonfinite: A step with a gradient or curvature that is not finite changes nothing. By default it is taken,
            with a `NonFiniteWarning`. Either way `nonfinite` counts it.
        foreach: Update all tensors of a group in one call; by default where they are not on the CPU.

    Raises:
        ValueError: For an option out of its range, complex parameters, or half precision with finite differences.

    Example:
        >>> import torch
        >>> from principalflow.torch import DAL
        >>> x = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
        >>> optimizer = DAL([x], factor=1.0)
        >>> loss = optimizer.step(lambda: 2 * x @ x)  # the Hessian is 4 times the identity
        >>> print(loss.item(), x.tolist(), optimizer.param_groups[0]["lr"])
        50.0 [0.0, 0.0] 0.25
    """

    def __init__(
        self,
        params: Iterable[Any],
        power: float = 1.0,
        max_learning_rate: float = 5.0,
        factor: float = 2.0,
        momentum: float = 0.0,
        per_parameter: bool = False,
        curvature: Curvature = "hvp",
        every: int = 1,
        average: float | None = None,
        weight_decay: float = 0.0,
        skip_nonfinite: bool = False,
        foreach: bool | None = None,
    ) -> None:
        _checks.one_of("curvature", curvature, ("hvp", "finite_difference"))
        self._finite_difference = curvature == "finite_difference"
        self._every = _checks.whole("every", every, 1)
        self._average = None if average is None else _checks.fraction("average", average)
        self._per_parameter = per_parameter
        self._skip_nonfinite = skip_nonfinite
        self._foreach = foreach
        options = dict(power=power, max_learning_rate=max_learning_rate, factor=factor)
        options |= dict(momentum=momentum, weight_decay=weight_decay, adapt=True)
        # What state_dict must carry. `drift_learning_rate` repeats `lr`, to see whether somebody else wrote that.
        memory = dict(lr=0.0, drift_learning_rate=0.0, curvature=0.0, length=0.0, count=0, nonfinite=0)
        super().__init__(params, options | memory)

    @property
    def curvature(self) -> float:
        """The measured (or averaged) curvature that the last rate comes from; per parameter, look into `state`."""
        return self.param_groups[0]["curvature"]

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
        group = self.param_groups[-1]
        try:
            _check_options(group)
            for p in group["params"]:
                _check_parameter(p, self._finite_difference)
        except ValueError:
            self.param_groups.pop()
            raise

    @torch.no_grad()
    def step(self, closure: Closure | Sequence[Closure] | None = None) -> Tensor:  # pyright: ignore
        """Takes one step and returns the loss before it.

        Args:
            closure: Computes the loss, as the class says. A list of them accumulates.

        Returns:
            The loss, the sum over the closures.

        Raises:
            RuntimeError: Where the closure, the model or a scheduler doesn't fit, with the remedy.
        """
        if closure is None:
            raise RuntimeError("DAL measures curvature, so step needs a closure: step(lambda: criterion(model(x), y)).")
        _refuse_other_writers(self.param_groups)
        closures = [closure] if callable(closure) else list(closure)
        params = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        measured = self.count % self._every == 0
        differentiate = by_finite_difference if self._finite_difference else exactly
        loss, gradient, hessian_times = differentiate(closures, params, measured)
        for p, g in zip(params, gradient, strict=True):
            p.grad = g

        curvature = self._measure(params, hessian_times) if measured else self._last_curvature()
        finite = math.isfinite(_norm(p.grad for p in params)) and not any(c.isnan().any() for c in curvature.values())
        if not finite:
            self._remember(nonfinite=self.nonfinite + 1)
            if self._skip_nonfinite:
                return loss
            warnings.warn(
                "a gradient or curvature is not finite, and the parameters won't be either. "
                "DAL(..., skip_nonfinite=True) leaves such steps out.",
                NonFiniteWarning,
                stacklevel=2,
            )
        self._keep(curvature)
        length = _norm(p.grad for p in self._adaptive())
        if measured:
            self._remember(length=length)
        # As in `scale_by_dal`: nothing else would hold the sharpest directions before the next measurement.
        brake = min(1.0, self.param_groups[0]["length"] / length) if length else 1.0
        for group in self.param_groups:
            self._move(group, curvature, brake)
        self._remember(count=self.count + 1)
        return loss

    def _measure(self, params: list[Tensor], hessian_times: Callable) -> dict[Tensor, Tensor]:
        """Returns the curvature for each adaptive parameter: its own |Hg|, or the one number for all of them."""
        adaptive = set(self._adaptive())
        along = [p.grad if p in adaptive else None for p in params]
        length = _norm(along)
        direction = [None if g is None else g / (length or 1.0) for g in along]
        product = {p: Hd for p, Hd in zip(params, hessian_times(direction), strict=True) if Hd is not None}
        if self._per_parameter:
            curvature = {p: Hd.abs() * length for p, Hd in product.items()}
        else:
            curvature = dict.fromkeys(product, _number(_norm(product.values())))
        if self._average is None:
            return curvature
        weight = (1 - self._average) / (1 - self._average ** (self.count // self._every + 1))
        last = self._last_curvature()
        # As in `scale_by_dal`: an average that lags when the curvature rises would make DAL diverge.
        return {p: torch.maximum(c, weight * c + (1 - weight) * last.get(p, c)) for p, c in curvature.items()}

    def _last_curvature(self) -> dict[Tensor, Tensor]:
        if self._per_parameter:
            return {p: self.state[p]["curvature"] for p in self._adaptive() if "curvature" in self.state[p]}
        return dict.fromkeys(self._adaptive(), _number(self.curvature))

    def _adaptive(self) -> list[Tensor]:
        return [p for group in self.param_groups if group["adapt"] for p in group["params"]]

    def _keep(self, curvature: dict[Tensor, Tensor]) -> None:
        if self._per_parameter:
            for p, c in curvature.items():
                self.state[p]["curvature"] = c
        elif curvature:
            self._remember(curvature=next(iter(curvature.values())).item())

    def _remember(self, **values: float) -> None:
        for group in self.param_groups:
            group.update(values)

    def _move(self, group: dict[str, Any], curvature: dict[Tensor, Tensor], brake: float) -> None:
        """Moves a group's parameters, and writes the rate into the group."""
        params = [p for p in group["params"] if p.grad is not None and (p in curvature or not group["adapt"])]
        if not params:
            return
        own = {}
        if group["adapt"]:
            cap = group["max_learning_rate"]
            own = {p: brake * (group["factor"] / curvature[p] ** group["power"]).clamp(max=cap) for p in params}
            mean = sum(rate.sum().item() for rate in own.values()) / sum(rate.numel() for rate in own.values())
            group["lr"] = group["drift_learning_rate"] = mean
        # All tensors in one call, or the same calls for one tensor after another.
        for batch in [[p] for p in params] if self._foreach is False else [params]:
            rates = [own[p] for p in batch] if self._per_parameter and own else group["lr"]
            steps = torch._foreach_mul([p.grad for p in batch], rates)
            if group["momentum"]:
                velocity = [self.state[p].setdefault("momentum_buffer", torch.zeros_like(p)) for p in batch]
                torch._foreach_mul_(velocity, group["momentum"])
                torch._foreach_add_(velocity, steps)
                steps = velocity
            if group["weight_decay"]:
                steps = torch._foreach_add(steps, torch._foreach_mul(batch, rates), alpha=group["weight_decay"])
            torch._foreach_sub_(batch, steps)


def _norm(tensors: Iterable[Tensor | None]) -> float:
    """Returns the Euclidean norm, in single precision at least, without overflow on the way."""
    wide = [t.to(torch.promote_types(t.dtype, torch.float32)) for t in tensors if t is not None and t.numel()]
    largest = max((t.abs().max().item() for t in wide), default=0.0)
    unit = largest if 0 < largest < math.inf else 1.0
    return unit * math.hypot(*(torch.linalg.vector_norm(t / unit).item() for t in wide))


def _number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def _check_options(group: dict[str, Any]) -> None:
    _checks.non_negative("power", group["power"])
    _checks.positive("max_learning_rate", group["max_learning_rate"])
    _checks.positive("factor", group["factor"])
    _checks.fraction("momentum", group["momentum"])
    _checks.non_negative("weight_decay", group["weight_decay"])
    if not group["adapt"]:
        _checks.positive("lr of a group with adapt=False", group["lr"])


def _check_parameter(p: Tensor, finite_difference: bool) -> None:
    if p.is_complex():
        raise ValueError(f"params must be real, got {p.dtype}.")
    if finite_difference and torch.finfo(p.dtype).bits < 32:
        raise ValueError(
            f"a finite difference of {p.dtype} parameters is lost in rounding: use curvature='hvp', "
            "or keep the parameters in float32."
        )


def _refuse_other_writers(groups: list[dict[str, Any]]) -> None:
    for i, group in enumerate(groups):
        lr, ours = group["lr"], group["drift_learning_rate"]
        if group["adapt"] and lr != ours and not math.isnan(ours):
            raise RuntimeError(
                f"somebody, perhaps a scheduler, set the lr of group {i} to {lr}, but DAL computes it. "
                "Schedule the group's 'factor' or 'max_learning_rate', or give the group adapt=False."
            )
