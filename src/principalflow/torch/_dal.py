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
from principalflow._curvature import Curvature, checked_curvature
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
        curvature: `"hvp"` for the exact product by a second backward pass; `"finite_difference"` for one more gradient
            (appendix C), which works with whatever has a first derivative: fused attention, compiled models.
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
        ValueError: For an option out of its range, or parameters that DAL can't handle.

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
    ) -> None:
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
        # All in the groups, so that state_dict, copies and pickles carry it. `drift_learning_rate` repeats `lr`, to see
        # whether somebody else wrote that.
        memory = dict(measured_curvature=0.0, length=0.0, count=0, nonfinite=0, drift_learning_rate=0.0)
        super().__init__(_checked_params(params), shared | own | memory)

    @property
    def curvature(self) -> float:
        """The measured (or averaged) curvature that the last rate comes from; per parameter, look into `state`."""
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
                raise ValueError(f"a group may have the options {', '.join(_OWN)}, got {', '.join(unknown)}.")
            _check_options(group)
            if group["adapt"] and group["lr"]:
                raise ValueError(
                    f"a group's lr needs adapt=False, since DAL computes it otherwise, got lr={group['lr']}."
                )
            for name in _SHARED:
                if group[name] != first[name]:
                    raise ValueError(f"{name} is one for all groups, got {group[name]!r} beside {first[name]!r}.")
            for p in group["params"]:
                _check_parameter(p, group)
        except ValueError:
            self.param_groups.pop()
            raise
        group.update({name: first[name] for name in _MEMORY})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what `state_dict` returned, options included."""
        for group in state_dict["param_groups"]:
            missing = sorted(set(self.defaults) - set(group))
            if missing:
                raise ValueError(f"state_dict must be one of DAL's, got one without {', '.join(missing)}.")
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
        closures: list[Any] = list(closure) if isinstance(closure, Sequence) else [closure]
        if not closures or not all(map(callable, closures)):
            raise RuntimeError("DAL measures curvature, so step needs a closure: step(lambda: criterion(model(x), y)).")
        for i, group in enumerate(self.param_groups):
            _check_options(group, scheduled=True)
            _refuse_other_writers(group, i)
        shared = self.param_groups[0]
        params = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        adaptive = {p for group in self.param_groups if group["adapt"] for p in group["params"] if p.requires_grad}
        # A gradient of zero has no direction to measure, and a new parameter no curvature yet.
        due = shared["count"] % shared["every"] == 0 or shared["length"] == 0
        due = due or (shared["per_parameter"] and any("curvature" not in self.state[p] for p in adaptive))

        differentiate = exactly if shared["curvature"] == "hvp" else by_finite_difference
        loss, gradient, hessian_times = differentiate(closures, params, again=due)
        for p, g in zip(params, gradient, strict=True):
            p.grad = g
        along = {p: g for p, g in zip(params, gradient, strict=True) if p in adaptive and g is not None}
        length = _norm(along.values())
        rest = _norm(g for p, g in zip(params, gradient, strict=True) if p not in along and g is not None)
        finite = math.isfinite(length) and math.isfinite(rest)
        measured: float | dict[Tensor, Tensor] = math.nan
        if due and finite:
            measured = self._measure(params, along, length, hessian_times)
            values = measured.values() if isinstance(measured, dict) else [torch.tensor(measured)]
            finite = all(bool(c.isfinite().all()) for c in values)
        if not finite:
            self._remember(nonfinite=shared["nonfinite"] + 1)
            if shared["skip_nonfinite"]:
                return loss
            warnings.warn(
                "a gradient or curvature is not finite, and the step is taken as it is. "
                "DAL(..., skip_nonfinite=True) leaves such steps out.",
                NonFiniteWarning,
                stacklevel=2,
            )
        if due:
            self._keep(measured, length)
        # As in `scale_by_dal`: nothing else would hold the sharpest directions before the next measurement.
        brake = min(1.0, shared["length"] / length) if length else 1.0
        for group in self.param_groups:
            self._move(group, brake)
        self._remember(count=shared["count"] + 1)
        return loss

    def _measure(
        self, params: list[Tensor], along: dict[Tensor, Tensor], length: float, hessian_times: Callable
    ) -> float | dict[Tensor, Tensor]:
        """Returns the curvature, one number or |Hg| for each parameter, with its average if there is one."""
        shared = self.param_groups[0]
        direction = [along[p] / (length or 1.0) if p in along else None for p in params]
        product = {p: Hd for p, Hd in zip(params, hessian_times(direction), strict=True) if Hd is not None}
        weight = 1.0
        if shared["average"] is not None:
            weight = (1 - shared["average"]) / (1 - shared["average"] ** (shared["count"] // shared["every"] + 1))
        if not shared["per_parameter"]:
            return _smoothed(_number(_norm(product.values())), _number(self.curvature), weight).item()
        new = {p: Hd.abs() * length for p, Hd in product.items()}
        return {p: _smoothed(c, self.state[p].get("curvature", c), weight) for p, c in new.items()}

    def _keep(self, measured: float | dict[Tensor, Tensor], length: float) -> None:
        self._remember(length=length)
        if isinstance(measured, dict):
            for p, c in measured.items():
                self.state[p]["curvature"] = c
        else:
            self._remember(measured_curvature=measured)

    def _remember(self, **values: float) -> None:
        for group in self.param_groups:
            group.update(values)

    def _move(self, group: dict[str, Any], brake: float) -> None:
        """Moves a group's parameters, and writes the rate into the group."""
        params = [p for p in group["params"] if p.requires_grad and p.grad is not None and p.numel()]
        own: dict[Tensor, Tensor] = {}
        if group["adapt"] and group["per_parameter"]:
            own = {p: brake * _rate(group, self.state[p]["curvature"]) for p in params if "curvature" in self.state[p]}
            params = list(own)
        if not params:
            return
        if own:
            mean = torch.cat([rate.ravel().to("cpu", torch.float64) for rate in own.values()]).mean().item()
            group["lr"] = group["drift_learning_rate"] = mean
        elif group["adapt"]:
            group["lr"] = group["drift_learning_rate"] = brake * _rate(group, _number(self.curvature)).item()
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


_MEMORY = ("measured_curvature", "length", "count", "nonfinite")
_OWN = ("power", "max_learning_rate", "factor", "momentum", "weight_decay", "adapt", "lr")
_SHARED = ("per_parameter", "curvature", "every", "average", "skip_nonfinite", "foreach")


def _rate(group: dict[str, Any], curvature: Tensor) -> Tensor:
    return (group["factor"] / curvature ** group["power"]).clamp(max=group["max_learning_rate"])


def _smoothed(new: Tensor, old: Tensor, weight: float) -> Tensor:
    # As in `scale_by_dal`: an average that lags when the curvature rises would make DAL diverge.
    return torch.where(old.isfinite(), torch.maximum(new, weight * new + (1 - weight) * old), new)


def _norm(tensors: Iterable[Tensor]) -> float:
    """Returns the Euclidean norm, in single precision at least, without overflow or underflow on the way."""
    wide = [t.to(torch.promote_types(t.dtype, torch.float32)) for t in tensors if t.numel()]
    if not wide:
        return 0.0
    norm = _gathered(wide).norm().item()
    if 1e-15 < norm < math.inf:  # the squares of single precision are fine
        return norm
    largest = _gathered(wide, order=math.inf).max().item()
    if not 0 < largest < math.inf:
        return largest
    return largest * _gathered([t / largest for t in wide]).norm().item()


def _gathered(tensors: list[Tensor], order: float = 2.0) -> Tensor:
    """Returns the norms of the tensors, on one device."""
    return torch.stack([norm.to(tensors[0].device) for norm in torch._foreach_norm(tensors, order)])


def _number(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def _check_options(group: dict[str, Any], scheduled: bool = False) -> None:
    """Makes a group's options numbers, if they are right; a schedule may take the factor down to 0."""
    group["power"] = _checks.non_negative("power", group["power"])
    group["max_learning_rate"] = _checks.positive("max_learning_rate", group["max_learning_rate"])
    factor = _checks.non_negative if scheduled else _checks.positive
    group["factor"] = factor("factor", group["factor"])
    group["momentum"] = _checks.fraction("momentum", group["momentum"])
    group["weight_decay"] = _checks.non_negative("weight_decay", group["weight_decay"])
    most = min((torch.finfo(p.dtype).max for p in group["params"] if p.is_floating_point()), default=math.inf)
    if group["weight_decay"] > most:
        given = group["weight_decay"]
        raise ValueError(f"weight_decay must be at most {most:.3g}, the largest number of the params, got {given:g}.")
    if not group["adapt"]:
        _checks.positive("lr, which a group with adapt=False must have,", group["lr"])


def _checked_params(params: Any) -> list[Any]:
    """Returns parameters, named parameters or groups as a list; PyTorch checks the rest."""
    items = [] if isinstance(params, Tensor | str | bytes) or not isinstance(params, Iterable) else list(params)
    if not items or not all(isinstance(item, Tensor | dict | tuple) for item in items):
        given = _checks.shown(params)
        raise ValueError(f"params must be tensors, named tensors or groups of them, at least one, got {given}.")
    return items


def _check_parameter(p: Tensor, group: dict[str, Any]) -> None:
    if not p.is_floating_point():
        raise ValueError(f"params must be real floating-point numbers, got {p.dtype}.")
    if hasattr(p, "device_mesh"):
        raise ValueError("params must not be sharded (DTensor): DAL would measure each part alone.")
    if group["curvature"] == "finite_difference" and torch.finfo(p.dtype).bits < 32:
        raise ValueError(
            f"a finite difference of {p.dtype} parameters is lost in rounding: use curvature='hvp', "
            "or keep the parameters in float32."
        )
    if group["per_parameter"] and p.dtype == torch.float16:
        raise ValueError("per_parameter needs more range than float16 has: use bfloat16 or float32.")


def _refuse_other_writers(group: dict[str, Any], index: int) -> None:
    lr, ours = group["lr"], group["drift_learning_rate"]
    if group["adapt"] and lr != ours and not math.isnan(ours):
        raise RuntimeError(
            f"somebody, perhaps a scheduler, set the lr of group {index} to {lr}, but DAL computes it: "
            "schedule the group's 'factor' or 'max_learning_rate' instead."
        )
