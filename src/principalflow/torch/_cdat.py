"""CDAT, the learning rate from the curvature along any optimiser's update, for PyTorch (Roulet et al. 2024)."""

# PyTorch is optional, and its foreach functions are public in its documentation only by their underscored names.
# pyright: reportMissingImports=false, reportPrivateImportUsage=false

import copy
import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from principalflow import _checks
from principalflow._curvature import Curvature, Measure, checked_curvature, checked_measure
from principalflow.torch._along import Along, Measured, dot, norm, nothing, number

# How far up the slope an update points that is no accident: the cosine of its angle to the gradient.
_UPHILL = 0.1


class CDAT(Along):
    r"""An optimiser that multiplies another one's updates by a rate from the curvature along them.

    A step is $\theta \leftarrow \theta + h u$ with u the base's update and
    $h = \text{scale} \cdot \max(-g \cdot u, 0) / |u^T H u|$, numerator and denominator as running averages
    (Roulet et al. 2024). It is the same as `principalflow.cdat`, number for number, whose documentation says more.

    `step` takes a closure, or a list of them, as DAL's does: with `curvature="hvp"` it returns the loss and does not
    call `backward`; with `curvature="finite_difference"` it is the usual one. The base needs no `step` of its own: it
    takes its step on a copy of the parameters, which says what u is.

    The rate of the last step, which multiplied the base's update, is `group["lr"]`, where loggers look for it, and the
    gradient of the last step is in `grad`. The base's `lr` should be 1: with a power of 1 the rate is inverse to it, so
    that a scheduler on it changes nothing but the weight of one group beside another. Schedule a group's `"scale"` or
    `"max_learning_rate"` instead. Weight decay, betas and the like are the base's, and are in u.

    Args:
        base: The optimiser to scale, with the parameters: `torch.optim.AdamW(model.parameters(), lr=1.0)`.
        scale: 2 is on the edge, and less is safer. On mini-batches none suits Adam: of our runs some diverged
            at 2 and at 1, and none with RMSprop as the base, best with `measure="drift"` (`docs/dal.md`).
        power: p, for $h = \text{scale}/c^p$ with c the denominator over the numerator, as DAL-p.
        max_learning_rate: The cap on the rate; 1 suits Adam, 5 is DAL's and suits SGD.
        measure: `"directional"` for $|u^T H u|$; `"drift"` for $\|H u\| \|u\|$, DAL's norm, with smaller and safer
            steps.
        curvature: `"hvp"` for the exact product by a second backward pass, for which attention isn't fused and compiled
            models run as they are written; `"finite_difference"` for one more gradient.
        every: The rate is computed every this many steps and kept in between. So that it can't blow up, updates that
            are longer than the measured one are scaled down to its length.
        average: The decay, in [0, 1), of the running averages; None for none. Without them the loss jumps where the
            base has momentum.
        skip_nonfinite: A step with a gradient or curvature that is not finite changes nothing, for which the base's
            state is copied at each step. By default it is taken, with a `NonFiniteWarning`. Either way `nonfinite`
            counts it.

    Attributes:
        base: The base optimiser.

    Raises:
        ValueError: For an option out of its range, or a base or parameters that CDAT can't handle.

    Example:
        >>> import torch
        >>> from principalflow.torch import CDAT
        >>> x = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
        >>> optimizer = CDAT(torch.optim.SGD([x], lr=1.0), scale=1.0)
        >>> loss = optimizer.step(lambda: 2 * x @ x)  # the Hessian is 4 times the identity
        >>> print(loss.item(), x.tolist(), optimizer.param_groups[0]["lr"])
        50.0 [0.0, 0.0] 0.25
    """

    _OWN = ("scale", "max_learning_rate", "power")
    _SHARED = ("measure", "curvature", "every", "average", "skip_nonfinite")
    _MEMORY = ("slope", "measured_curvature", "length", "count", "nonfinite")
    _RATE = "curvature_learning_rate"

    def __init__(
        self,
        base: torch.optim.Optimizer,
        *,
        scale: float = 2.0,
        power: float = 1.0,
        max_learning_rate: float = 1.0,
        measure: Measure = "directional",
        curvature: Curvature = "hvp",
        every: int = 1,
        average: float | None = 0.9,
        skip_nonfinite: bool = False,
    ) -> None:
        if not isinstance(base, torch.optim.Optimizer):
            given = _checks.shown(base)
            raise ValueError(f"base must be an optimiser, torch.optim.AdamW(params, lr=1.0) say, got {given}.")
        _, *arguments = inspect.signature(type(base).step).parameters.values()  # a scheduler hides those of `base.step`
        if any(argument.default is inspect.Parameter.empty for argument in arguments):
            raise ValueError(f"base must be an optimiser whose step needs no closure, got {type(base).__name__}.")
        self.base = base
        average = None if average is None else _checks.fraction("average", average)
        shared = dict(measure=checked_measure(measure), curvature=checked_curvature(curvature), average=average)
        shared |= dict(every=_checks.whole("every", every, 1))
        shared |= dict(skip_nonfinite=_checks.flag("skip_nonfinite", skip_nonfinite))
        own = dict(scale=scale, power=power, max_learning_rate=max_learning_rate, lr=0.0)
        memory = dict(slope=0.0, measured_curvature=0.0, length=0.0, count=0, nonfinite=0, curvature_learning_rate=0.0)
        super().__init__([{"params": group["params"]} for group in base.param_groups], shared | own | memory)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group here and, with the options that aren't CDAT's own, to the base."""
        group = dict(param_group)
        own = {name: group.pop(name) for name in self._OWN if name in group}
        is_new = len(self.param_groups) == len(self.base.param_groups)  # while `__init__` adds those that the base has
        if is_new:
            self.base.add_param_group(group)
        params = self.base.param_groups[len(self.param_groups)]["params"]
        try:
            super().add_param_group({"params": params, **own})
        except ValueError:
            if is_new:
                self.base.param_groups.pop()
            raise

    def state_dict(self) -> dict[str, Any]:
        """Returns all that is needed to go on, the base's under "base"."""
        return super().state_dict() | {"base": self.base.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads what `state_dict` returned, options included."""
        if "base" not in state_dict:
            raise ValueError("state_dict must be one of CDAT's, got one without base.")
        super().load_state_dict({name: value for name, value in state_dict.items() if name != "base"})
        self.base.load_state_dict(state_dict["base"])

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"base": self.base}

    def _is_due(self) -> bool:
        shared = self.param_groups[0]
        return shared["count"] % shared["every"] == 0 or shared["slope"] == 0  # not to rest until the next

    def _proposed(self, params: list[Tensor]) -> tuple[dict[Tensor, Tensor], float, Callable[[], None]]:
        """Returns the base's update, which it makes to copies of the parameters."""
        groups = self.base.param_groups
        if len(groups) != len(self.param_groups):
            raise RuntimeError(
                f"the base has {len(groups)} groups and CDAT {len(self.param_groups)}: add them by CDAT's "
                "add_param_group, which adds them to the base too."
            )
        gradient = {p: p.grad for p in params if p.grad is not None}
        skip = self.param_groups[0]["skip_nonfinite"]
        if skip and not math.isfinite(norm(gradient.values())):
            return {}, math.nan, nothing
        undo = self._snapshot() if skip else nothing
        # The base moves copies: an exact product needs the parameters as the loss saw them.
        copies = {p: p.detach() for group in groups for p in group["params"]}
        for p, g in gradient.items():
            copies[p] = p.detach().clone()
            copies[p].grad = g
        self._rename(copies)
        try:
            self.base.step()
        finally:
            self._rename({moved: p for p, moved in copies.items()})
        update = {p: copies[p].sub_(p) for p in gradient}
        return update, norm(update.values()), undo

    def _snapshot(self) -> Callable[[], None]:
        """Returns a function that makes the base what it is now."""
        options = [dict(group) for group in self.base.param_groups]
        state = {p: copy.deepcopy(value) for p, value in self.base.state.items()}

        def restore() -> None:
            for group, before in zip(self.base.param_groups, options, strict=True):
                group.update(before)
            self.base.state.clear()
            self.base.state.update(state)

        return restore

    def _rename(self, names: dict[Tensor, Tensor]) -> None:
        """Has the base take other tensors for its parameters, with the same state."""
        for group in self.base.param_groups:
            group["params"] = [names[p] for p in group["params"]]
        state = {names.get(p, p): value for p, value in self.base.state.items()}
        self.base.state.clear()
        self.base.state.update(state)

    def _measured(self, direction: dict[Tensor, Tensor], product: dict[Tensor, Tensor], length: float) -> Measured:
        """Returns slope, curvature and length."""
        shared = self.param_groups[0]
        fall = -dot((p.grad, d) for p, d in direction.items() if p.grad is not None)
        if shared["count"] == 0 and fall < -_UPHILL * norm(p.grad for p in direction if p.grad is not None):
            warnings.warn(
                "the base's first update points up the slope, so that the rate is 0: a base must minimise "
                "(maximize=False), and its weight decay be small beside the gradient.",
                stacklevel=4,
            )
        slope = max(fall, 0.0) / (length or 1.0)
        if shared["measure"] == "directional":
            curvature = abs(dot((direction[p], Hd) for p, Hd in product.items()))
        else:
            curvature = norm(product.values())
        old = shared["slope"], shared["measured_curvature"], shared["length"]
        if shared["average"] is None or not all(map(math.isfinite, old)):
            return slope, curvature, length
        # As in `cdat`: each counts by its squared length, so that slope over curvature is a ratio of averages.
        weight = self._newest_weight()
        mean = math.hypot(math.sqrt(weight) * length, math.sqrt(1 - weight) * old[2])
        part = weight * (length / mean) ** 2 if mean else 1.0
        return part * slope + (1 - part) * old[0], part * curvature + (1 - part) * old[1], mean

    def _keep(self, measured: Measured, length: float) -> None:
        slope, curvature, mean = measured if isinstance(measured, tuple) else (math.nan, math.nan, length)
        self._remember(slope=slope, measured_curvature=curvature, length=mean)

    def _move(self, group: dict[str, Any], along: dict[Tensor, Tensor], part: float) -> None:
        rate = 0.0
        if group["slope"] != 0:
            relative = number(group["measured_curvature"]) / group["slope"]
            rate = (group["scale"] / relative ** group["power"]).clamp(max=group["max_learning_rate"]).item()
        group["lr"] = group["curvature_learning_rate"] = part * rate
        params = [p for p in group["params"] if p in along and p.numel()]
        if params:
            torch._foreach_add_(params, [along[p] for p in params], alpha=group["lr"])

    def _check_options(self, group: dict[str, Any], scheduled: bool = False) -> None:
        group["scale"] = (_checks.non_negative if scheduled else _checks.positive)("scale", group["scale"])
        group["power"] = _checks.non_negative("power", group["power"])
        group["max_learning_rate"] = _checks.positive("max_learning_rate", group["max_learning_rate"])
