"""DAL, the drift-adjusted learning rate, as a PyTorch optimiser."""

# PyTorch is optional, and its foreach functions are public in its documentation only by their underscored names.
# pyright: reportMissingImports=false, reportPrivateImportUsage=false

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from principalflow import _checks
from principalflow._curvature import Curvature, checked_curvature
from principalflow.torch._along import Along, Measured, norm, nothing, number


class DAL(Along):
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

    Groups may have their own `power`, `max_learning_rate`, `factor`, `momentum` and `weight_decay`; the curvature, and
    how it is measured, is one for all. A group with `adapt=False` takes plain steps with its own `lr` and has no part
    in the curvature.

    Args:
        params: Parameters, or groups of them.
        power: p. The larger, the smaller and safer the steps where the curvature is above 1.
        max_learning_rate: The cap on the rate, 5 in the paper (appendix C).
        factor: The rate at curvature 1, 2 in the paper.
        momentum: m in [0, 1): $v \leftarrow m v - h g$, $\theta \leftarrow \theta + v$ (section 7).
        per_parameter: The rate $\min(2/|(H g)_i|^p, 5)$ for each parameter (appendix D); `group["lr"]` is their mean.
            The curvatures are in `state`.
        curvature: `"hvp"` for the exact product by a second backward pass, for which attention isn't fused and compiled
            models run as they are written; `"finite_difference"` for one more gradient (appendix C), which works with
            whatever has a first derivative.
        every: The curvature is measured every this many steps and kept in between. So that a kept rate can't blow up,
            gradients that are longer than the measured one are scaled down to its length.
        average: The decay, in [0, 1), of a running average of the measured curvature, for noisy batches; None for none.
            It falls slowly, and rises at once where a measurement is above it.
        weight_decay: Decoupled: subtracts `weight_decay` times the rate times the parameters.
        skip_nonfinite: A step with a gradient or curvature that is not finite changes nothing. By default it is taken,
            with a `NonFiniteWarning`. Either way `nonfinite` counts it.
        foreach: Whether to update all tensors of a group in one call, which takes memory for a copy of them all; the
            numbers are the same. By default yes.

    Raises:
        ValueError: For an option out of its range, a learning rate, or parameters that DAL can't handle.

    Example:
        >>> import torch
        >>> from principalflow.torch import DAL
        >>> x = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
        >>> optimizer = DAL([x], factor=1.0)
        >>> loss = optimizer.step(lambda: 2 * x @ x)  # the Hessian is 4 times the identity
        >>> print(loss.item(), x.tolist(), optimizer.param_groups[0]["lr"])
        50.0 [0.0, 0.0] 0.25
    """

    _OWN = ("factor", "max_learning_rate", "power", "momentum", "weight_decay", "adapt", "lr")
    _SHARED = ("per_parameter", "curvature", "every", "average", "skip_nonfinite", "foreach")
    _MEMORY = ("measured_curvature", "length", "count", "nonfinite")
    _RATE = "drift_learning_rate"

    def __init__(
        self,
        params: Iterable[Any],
        *,
        power: float = 1.0,
        max_learning_rate: float = 5.0,
        factor: float = 2.0,
        momentum: float | None = None,
        per_parameter: bool = False,
        curvature: Curvature = "hvp",
        every: int = 1,
        average: float | None = None,
        weight_decay: float | None = None,
        skip_nonfinite: bool = False,
        foreach: bool | None = None,
        **unknown: Any,
    ) -> None:
        _refuse(unknown)
        checked_curvature(curvature)
        every = _checks.whole("every", every, 1)
        average = None if average is None else _checks.fraction("average", average)
        for name, value in dict(per_parameter=per_parameter, skip_nonfinite=skip_nonfinite).items():
            _checks.flag(name, value)
        shared = dict(per_parameter=per_parameter, curvature=curvature, every=every, average=average)
        shared |= dict(skip_nonfinite=skip_nonfinite, foreach=foreach)
        own = dict(power=power, max_learning_rate=max_learning_rate, factor=factor)
        own |= dict(momentum=0.0 if momentum is None else momentum, adapt=True, lr=0.0)
        own |= dict(weight_decay=0.0 if weight_decay is None else weight_decay)
        memory = dict(measured_curvature=0.0, length=0.0, count=0, nonfinite=0, drift_learning_rate=0.0)
        super().__init__(_checked_params(params), shared | own | memory)

    def _is_due(self) -> bool:
        shared = self.param_groups[0]
        # A gradient of zero has no direction to measure, and a new parameter no curvature yet.
        if shared["count"] % shared["every"] == 0 or shared["length"] == 0:
            return True
        return shared["per_parameter"] and any("curvature" not in self.state[p] for p in self._adaptive())

    def _proposed(self, params: list[Tensor]) -> tuple[dict[Tensor, Tensor], float, Callable[[], None]]:
        """Returns the gradient of the groups that adapt."""
        gradients = {p: p.grad for p in params if p.grad is not None}
        along = {p: gradients[p] for p in self._adaptive() if p in gradients}
        rest = norm(g for p, g in gradients.items() if p not in along)
        length = norm(along.values()) if math.isfinite(rest) else math.nan
        return along, length, nothing

    def _adaptive(self) -> list[Tensor]:
        return [p for group in self.param_groups if group["adapt"] for p in group["params"] if p.requires_grad]

    def _measured(self, direction: dict[Tensor, Tensor], product: dict[Tensor, Tensor], length: float) -> Measured:
        """Returns the curvature, one number or |Hg| for each parameter."""
        weight = self._newest_weight()
        if not self.param_groups[0]["per_parameter"]:
            return _smoothed(number(norm(product.values())), number(self.curvature), weight).item()
        new = {p: Hd.abs() * length for p, Hd in product.items()}
        return {p: _smoothed(c, self.state[p].get("curvature", c), weight) for p, c in new.items()}

    def _keep(self, measured: Measured, length: float) -> None:
        self._remember(length=length)
        if isinstance(measured, dict):
            for p, c in measured.items():
                self.state[p]["curvature"] = c
        else:
            self._remember(measured_curvature=measured)

    def _move(self, group: dict[str, Any], along: dict[Tensor, Tensor], part: float) -> None:
        """Moves a group's parameters, and writes the rate into the group."""
        params = [p for p in group["params"] if p.requires_grad and p.grad is not None and p.numel()]
        own: dict[Tensor, Tensor] = {}
        if group["adapt"] and group["per_parameter"]:
            own = {p: part * _rate(group, self.state[p]["curvature"]) for p in params if "curvature" in self.state[p]}
            params = list(own)
        if not params:
            return
        if own:
            mean = torch.cat([rate.ravel().to("cpu", torch.float64) for rate in own.values()]).mean().item()
            group["lr"] = group["drift_learning_rate"] = mean
        elif group["adapt"]:
            group["lr"] = group["drift_learning_rate"] = part * _rate(group, number(self.curvature)).item()
        # All tensors in one call, or the same calls for one tensor after another.
        for batch in [[p] for p in params] if group["foreach"] is False else [params]:
            rates: Any = [own[p] for p in batch] if own else group["lr"]
            gradients: Any = [p.grad for p in batch]
            steps: Any = torch._foreach_mul(gradients, rates)
            if group["momentum"]:
                velocity = [self.state[p].setdefault("momentum_buffer", torch.zeros_like(p)) for p in batch]
                torch._foreach_mul_(velocity, group["momentum"])
                torch._foreach_add_(velocity, steps)
                steps = velocity
            if group["weight_decay"]:
                steps = torch._foreach_add(steps, torch._foreach_mul(batch, rates), alpha=group["weight_decay"])
            torch._foreach_sub_(batch, steps)

    def _check_options(self, group: dict[str, Any], scheduled: bool = False) -> None:
        group["power"] = _checks.non_negative("power", group["power"])
        group["max_learning_rate"] = _checks.positive("max_learning_rate", group["max_learning_rate"])
        factor = _checks.non_negative if scheduled else _checks.positive
        group["factor"] = factor("factor", group["factor"])
        group["momentum"] = _checks.fraction("momentum", group["momentum"])
        group["weight_decay"] = _checks.non_negative("weight_decay", group["weight_decay"])
        most = min((torch.finfo(p.dtype).max for p in group["params"] if p.is_floating_point()), default=math.inf)
        if group["weight_decay"] > most:
            given = group["weight_decay"]
            raise ValueError(
                f"weight_decay must be at most {most:.3g}, the largest number of the params, got {given:g}."
            )
        if not group["adapt"]:
            _checks.positive("lr, which a group with adapt=False must have,", group["lr"])
        elif group["lr"] and not scheduled:
            raise ValueError(f"a group's lr needs adapt=False, since DAL computes it otherwise, got lr={group['lr']}.")

    def _check_parameter(self, p: Tensor, group: dict[str, Any]) -> None:
        super()._check_parameter(p, group)
        if group["per_parameter"] and p.dtype == torch.float16:
            raise ValueError("per_parameter needs more range than float16 has: use bfloat16 or float32.")

    def _refuse_other_writers(self, group: dict[str, Any], index: int) -> None:
        if group["adapt"]:
            super()._refuse_other_writers(group, index)


def _rate(group: dict[str, Any], curvature: Tensor) -> Tensor:
    return (group["factor"] / curvature ** group["power"]).clamp(max=group["max_learning_rate"])


def _smoothed(new: Tensor, old: Tensor, weight: float) -> Tensor:
    # As in `scale_by_dal`: an average that lags when the curvature rises would make DAL diverge.
    return torch.where(old.isfinite(), torch.maximum(new, weight * new + (1 - weight) * old), new)


def _refuse(unknown: dict[str, Any]) -> None:
    """Raises for options that DAL has not: a rate, as other optimisers take it, or a misspelt one."""
    for name in unknown:
        if name in ("lr", "learning_rate"):
            raise ValueError(
                f"DAL takes no {name}, since it computes the rate at every step: factor scales it, and "
                "max_learning_rate is the most that it may be."
            )
        options = inspect.signature(DAL).parameters
        raise TypeError(f"DAL has no option {name!r}.{_checks.did_you_mean(name, options)}")


def _checked_params(params: Any) -> list[Any]:
    """Returns parameters, named parameters or groups as a list; PyTorch checks the rest."""
    items = [] if isinstance(params, Tensor | str | bytes) or not isinstance(params, Iterable) else list(params)
    if not items or not all(isinstance(item, Tensor | dict | tuple) for item in items):
        given = _checks.shown(params)
        raise ValueError(f"params must be tensors, named tensors or groups of them, at least one, got {given}.")
    return items
