"""The edge of stability of a PyTorch optimiser, read from its groups and its state."""

# pyright: reportMissingImports=false, reportPrivateImportUsage=false

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from principalflow import _checks
from principalflow.optimizers import Edge, Filter, Group, Part, UnknownError, combined, or_unknown
from principalflow.torch._cdat import CDAT
from principalflow.torch._dal import DAL

# They pass `step` on to the optimiser that they hold.
_WRAPPERS = ("AcceleratedOptimizer", "LightningOptimizer")


@torch.no_grad()
def edge(optimizer: torch.optim.Optimizer, params: Sequence[Tensor] | None = None) -> Edge:
    r"""Returns where the edge of stability of a PyTorch optimiser is, by its present state.

    The optimiser moves by $\theta \leftarrow (1 - h w)\,\theta - h P^{-1} (Q * (g + W\theta))$ with momentum Q, and is
    stable as long as the largest eigenvalue of $P^{-1/2} (H + W) P^{-1/2}$ is below $(2 - hw)/(h\,Q(-1))$ (Cohen et al.
    2021 and 2022): 2/h for SGD and RMSprop, 2(1+m)/h with momentum, 2(1+b1)/((1-b1)h) for Adam. Where groups have
    rates, momentum or decay of their own, P takes up the ratios.

    Known are `torch.optim`'s SGD, RMSprop, Adam, AdamW, NAdam with all their options but `maximize`, `DAL` and `CDAT`.
    Others, and classes derived from these, have no threshold but a sentence that says so, in `unknown`.

    Args:
        optimizer: The optimiser.
        params: The parameters that the edge's vectors are for, in order; by default all of the optimiser's. Those that
            it doesn't hold rest.

    Returns:
        The `Edge`; its vectors are flat, in single or double precision, on the device of the first parameter.

    Raises:
        ValueError: For an optimizer that isn't PyTorch's, or params that aren't tensors.

    Example:
        >>> import torch
        >>> from principalflow.torch import edge
        >>> x = torch.ones(2, requires_grad=True)
        >>> optimizer = torch.optim.AdamW([x], lr=0.01, weight_decay=0.0)
        >>> print(edge(optimizer).unknown)
        adamw has taken no step yet, so it is not known how long its steps are
        >>> x.grad = torch.tensor([3.0, 4.0])
        >>> optimizer.step()
        >>> print(f"{edge(optimizer).threshold:g}", edge(optimizer).preconditioner)
        3800 tensor([0.3000, 0.4000])
    """
    optimizer = within(optimizer)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(f"optimizer must be a torch.optim.Optimizer, got {_checks.shown(optimizer)}.")
    held = {p: group for group in _groups(optimizer) for p in group["params"]}
    chosen = list(held) if params is None else _checked(params)
    return or_unknown(lambda: _edge(optimizer, chosen, held))


def within(optimizer: Any) -> Any:
    """Returns the optimiser that wrappers of Accelerate and Lightning hold; others may do more than pass steps on."""
    while type(optimizer).__name__ in _WRAPPERS:
        optimizer = optimizer.optimizer
    return optimizer


def is_known(optimizer: torch.optim.Optimizer) -> bool:
    """Whether `edge` knows an optimiser of this class."""
    return type(optimizer) is CDAT or type(optimizer) in _READERS


def second_moments(optimizer: torch.optim.Optimizer, params: Sequence[Tensor]) -> list[tuple[Tensor, float] | None]:
    """Returns the average of each parameter's squared gradients, and how much of it is not its start.

    None for a parameter without one, and for all if the optimiser isn't known: others scale theirs in other ways.
    """
    if type(optimizer) is CDAT:
        optimizer = optimizer.base
    read = _AVERAGES.get(type(optimizer))
    states = {p: (optimizer.state.get(p), group) for group in optimizer.param_groups for p in group["params"]}

    def moment(p: Tensor) -> tuple[Tensor, float] | None:
        state, options = states.get(p, (None, {}))
        return read(state, options) if read and state else None

    return [moment(p) for p in params]


def rate(optimizer: torch.optim.Optimizer, params: Sequence[Tensor]) -> float:
    """Returns the rate of the first of these parameters that moves, which is that of `edge`; NaN where none does."""
    held = {p: group for group in _groups(optimizer) for p in group["params"]}
    rates = (float(held[p]["lr"]) for p in params if not _rests(optimizer, p, held.get(p)))
    return next(filter(None, rates), math.nan)


def _rests(optimizer: torch.optim.Optimizer, p: Tensor, options: dict | None) -> bool:
    """Whether a parameter isn't held, is frozen, or has had no gradient so far: no state, though others have."""
    own = optimizer.base if isinstance(optimizer, CDAT) else optimizer
    without_state = not own.state.get(p) and any(own.state.values()) and type(own) not in (torch.optim.SGD, DAL)
    return options is None or not p.requires_grad or without_state


def _groups(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Returns the groups; those of CDAT's base at the rates that its updates were multiplied by."""
    if not isinstance(optimizer, CDAT):
        return optimizer.param_groups
    pairs = zip(optimizer.base.param_groups, optimizer.param_groups, strict=True)
    return [{**base, "lr": float(base["lr"]) * own["lr"]} for base, own in pairs]


def _checked(params: Any) -> list[Tensor]:
    tensors = list(params) if isinstance(params, Sequence) and not isinstance(params, str | bytes) else []
    if not tensors or not all(isinstance(p, Tensor) for p in tensors):
        raise ValueError(f"params must be a list of tensors, at least one, got {_checks.shown(params)}.")
    return tensors


def _edge(optimizer: torch.optim.Optimizer, params: list[Tensor], held: dict[Tensor, dict]) -> Edge:
    starting = False
    if type(optimizer) is CDAT:
        starting, optimizer = not optimizer.param_groups[0]["count"], optimizer.base
    name = type(optimizer).__name__
    read = _READERS.get(type(optimizer))
    if read is None:
        raise UnknownError(f"{name} can't be read")
    if not any(p in held for p in params):
        raise UnknownError(f"{name} holds none of these parameters")
    for p in params:
        if p.is_complex() or hasattr(p, "device_mesh"):
            raise UnknownError("some parameters are complex or sharded")
    dtype = reduce(torch.promote_types, {p.dtype for p in params}, torch.float32)

    def flat(values: Tensor) -> Tensor:
        return values.reshape(-1).to(params[0].device, dtype)

    def group_of(p: Tensor) -> Group:
        options, state = held.get(p), optimizer.state.get(p, {})
        if options is None or _rests(optimizer, p, options):
            return Group(size=p.numel(), optimizer=name.lower(), part=Part(learning_rate=0.0))
        if options.get("maximize"):
            raise UnknownError(f"{name} maximises: it moves along the gradient, so no step size is stable")
        group = read(p, options, state, flat)
        return replace(group, starting=True) if starting else group

    groups = [group_of(p) for p in params if p.numel()]
    return combined(groups, lambda size, value: torch.full((size,), value, dtype=dtype, device=params[0].device))


Reader = Callable[[Tensor, dict[str, Any], dict[str, Any], Callable[[Tensor], Tensor]], Group]


def _sgd(p: Tensor, options: dict, state: dict, flat: Callable) -> Group:
    m, dampening, nesterov = float(options["momentum"]), float(options["dampening"]), bool(options["nesterov"])
    momentum = Filter.heavy_ball(m, dampening=dampening, nesterov=nesterov)
    part = Part(learning_rate=float(options["lr"]), filter=momentum)
    return Group(size=p.numel(), optimizer="sgd", part=part, decay=float(options["weight_decay"]))


def _rmsprop(p: Tensor, options: dict, state: dict, flat: Callable) -> Group:
    part = Part(learning_rate=float(options["lr"]), filter=Filter.heavy_ball(float(options["momentum"])))
    decay = float(options["weight_decay"])
    if not state:
        return Group(size=p.numel(), optimizer="rmsprop", part=part, decay=decay, starting=True)
    squares = flat(_rmsprop_average(state, options)[0])
    variance = squares - flat(state["grad_avg"]) ** 2 if options["centered"] else squares
    P = variance.sqrt() + options["eps"]
    return Group(size=p.numel(), optimizer="rmsprop", part=part, preconditioner=P, decay=decay, second_moment=squares)


def _adam(p: Tensor, options: dict, state: dict, flat: Callable) -> Group:
    b1 = float(options["betas"][0])
    bias = 1 - b1 ** float(state["step"]) if state else 1.0
    return _adaptive("adam", p, options, state, flat, Filter.average(b1), bias)


def _adamw(p: Tensor, options: dict, state: dict, flat: Callable) -> Group:
    return _adam(p, options | {"decoupled_weight_decay": True}, state, flat)  # which older versions don't say


def _nadam(p: Tensor, options: dict, state: dict, flat: Callable) -> Group:
    b1, pace = float(options["betas"][0]), float(options["momentum_decay"])
    t, product = (float(state["step"]), float(state["mu_product"])) if state else (1.0, 0.0)
    now, following = (b1 * (1 - 0.5 * 0.96 ** (step * pace)) for step in (t, t + 1))
    kept, direct = following / (1 - product * following), (1 - now) / (1 - product)
    words = (f"b1 = {b1:g}", f"u = {now:.4g} (its momentum at step {t:g})")
    average = Filter.of_average(b1, 1 - b1, kept, direct, ("(1+b1)", "(1+b1-2b1u)"), words)
    return _adaptive("nadam", p, options, state, flat, average, 1.0)


def _adaptive(name: str, p: Tensor, options: dict, state: dict, flat: Callable, average: Filter, bias: float) -> Group:
    """Returns Adam's kind of group, with what its average is corrected for."""
    decay, h = float(options["weight_decay"]), float(options["lr"])
    decoupled = options.get("decoupled_weight_decay", False)
    part = Part(learning_rate=h, filter=average, weight_decay=decay if decoupled else 0.0)
    name, decay = (f"{name}w", 0.0) if decoupled else (name, decay)
    if not state:
        return Group(size=p.numel(), optimizer=name, part=part, decay=decay, starting=True)
    raw, share = _adam_average(state, options)
    squares = flat(raw) / share
    largest = flat(state["max_exp_avg_sq"]) / share if options.get("amsgrad") else squares
    P = bias * (largest.sqrt() + options["eps"])
    return Group(size=p.numel(), optimizer=name, part=part, preconditioner=P, decay=decay, second_moment=squares)


def _rmsprop_average(state: dict, options: dict) -> tuple[Tensor, float]:
    return state["square_avg"], 1.0


def _adam_average(state: dict, options: dict) -> tuple[Tensor, float]:
    return state["exp_avg_sq"], 1 - float(options["betas"][1]) ** float(state["step"])


def _dal(p: Tensor, options: dict, state: dict, flat: Callable) -> Group:
    if options["per_parameter"] and options["adapt"]:
        raise UnknownError("DAL with a rate for each parameter can't be read")
    part = Part(
        learning_rate=float(options["lr"]),
        filter=Filter.heavy_ball(float(options["momentum"])),
        weight_decay=float(options["weight_decay"]),
    )
    return Group(size=p.numel(), optimizer="dal", part=part, starting=options["adapt"] and not options["count"])


# By the very class: one that is derived from it may take other steps.
_READERS: dict[type, Reader] = {
    torch.optim.SGD: _sgd,
    torch.optim.RMSprop: _rmsprop,
    torch.optim.Adam: _adam,
    torch.optim.AdamW: _adamw,
    torch.optim.NAdam: _nadam,
    DAL: _dal,
}
_AVERAGES: dict[type, Callable[[dict, dict], tuple[Tensor, float]]] = {
    torch.optim.RMSprop: _rmsprop_average,
    torch.optim.Adam: _adam_average,
    torch.optim.AdamW: _adam_average,
    torch.optim.NAdam: _adam_average,
}
