"""Gradients and Hessian products of closures, exactly or by a finite difference."""

# pyright: reportMissingImports=false

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from principalflow._curvature import FINITE_DIFFERENCE_STEP
from principalflow.torch._graph import nodes, without_second_derivative
from principalflow.torch._stand_in import twice_differentiable

Closure = Callable[[], Any]
# One entry for each parameter; None where a parameter has no part.
Tensors = list[Tensor | None]
# The loss, its gradient, and the function that multiplies directions by its Hessian.
Derivatives = tuple[Tensor, Tensors, Callable[[Tensors], Tensors]]


def exactly(closures: list[Closure], params: list[Tensor], again: bool, many: bool = False) -> Derivatives:
    """Derivatives by `torch.autograd.grad`, which leaves no graph behind; closures return the loss.

    Args:
        closures: Their losses are added up.
        params: What to differentiate by.
        again: Whether a Hessian product will be asked for. With one closure its graph is then kept for it; with several
            they run once more, so that one graph is in memory at a time.
        many: Whether there will be several products, for which a graph that is kept must outlast the first.
    """
    _refuse_distributed()
    keep_graph = again and len(closures) == 1
    random = RandomState(params)

    def differentiate(closure: Closure, create_graph: bool) -> tuple[Tensor, Tensors]:
        # Where a closure runs twice, both times alike: fused attention drops out other entries. Backward passes need it
        # too, since checkpoints run the model again in them.
        with twice_differentiable() if again else nullcontext():
            loss = _loss(closure, params)
            if create_graph:
                _refuse_wrong(loss)
            with _second_derivatives() if create_graph else nullcontext():
                gradient = torch.autograd.grad(loss, params, create_graph=create_graph, allow_unused=True)
        _refuse_sparse(params, gradient)
        return loss.detach(), list(gradient)

    graph: Tensors = []
    loss, total = torch.zeros(()), _nothing(params)
    for closure in closures:
        value, gradient = differentiate(closure, keep_graph)
        loss, total = loss + value.cpu(), _add(total, [None if g is None else g.detach() for g in gradient])
        graph = gradient if keep_graph else graph
    if all(g is None for g in total):
        raise RuntimeError(
            "the loss has no gradient by any parameter of this optimiser. Are they another model's, or behind a "
            "checkpoint, which needs use_reentrant=False?"
        )

    def hessian_times(direction: Tensors) -> Tensors:
        moving = [p for p, d in zip(params, direction, strict=True) if d is not None]
        products = _nothing(moving)
        if not moving:
            return direction
        with nullcontext() if keep_graph else random.replayed():
            for closure in closures:
                gradient = graph if keep_graph else differentiate(closure, create_graph=True)[1]
                # A gradient that is constant, as of a linear loss, has no graph.
                both = zip(gradient, direction, strict=True)
                pairs = [(g, d) for g, d in both if g is not None and g.requires_grad and d is not None]
                if pairs:
                    products = _add(products, _pull_back(pairs, moving, retain_graph=keep_graph and many))
        rest = iter(torch.zeros_like(p) if Hd is None else Hd for p, Hd in zip(moving, products, strict=True))
        return [None if d is None else next(rest) for d in direction]

    return loss, total, hessian_times


def by_finite_difference(closures: list[Closure], params: list[Tensor], again: bool) -> Derivatives:
    """Derivatives from first ones alone; closures zero the gradients, call `backward` and return the loss.

    The arguments are those of `exactly`, and `again` changes nothing here: a product always runs the closures again.
    """
    random = RandomState(params)

    def differentiate() -> tuple[Tensor, Tensors]:
        loss, total = torch.zeros(()), _nothing(params)
        for closure in closures:
            for p in params:
                p.grad = None
            with torch.enable_grad():
                value = closure()
            if value is None:
                raise RuntimeError("the closure must return the loss, got None.")
            _refuse_sparse(params, [p.grad for p in params])
            # Clones, since some keep gradients in buffers of their own, which the next backward() overwrites.
            part = [None if p.grad is None else p.grad.clone() for p in params]
            loss, total = loss + torch.as_tensor(value).detach().cpu(), _add(total, part)
        return loss, total

    loss, here = differentiate()
    if all(g is None for g in here):
        raise RuntimeError("the closure left no gradients: with curvature='finite_difference' it must call backward().")

    def hessian_times(direction: Tensors) -> Tensors:
        if all(d is None for d in direction):
            return direction
        moving = [(p, p.clone(), d) for p, d in zip(params, direction, strict=True) if d is not None]
        try:
            for p, _, d in moving:
                p.add_(d, alpha=FINITE_DIFFERENCE_STEP)
            with random.replayed():
                _, ahead = differentiate()
        finally:
            for p, original, _ in moving:
                p.copy_(original)
            for p, g in zip(params, here, strict=True):
                p.grad = g
        return [
            None if d is None or a is None or b is None else (a - b) / FINITE_DIFFERENCE_STEP
            for d, a, b in zip(direction, ahead, here, strict=True)
        ]

    return loss, here, hessian_times


class RandomState:
    """The state of the random numbers at its making, to run a closure again with the same dropout."""

    def __init__(self, params: list[Tensor]) -> None:
        self._devices = sorted({p.device.index for p in params if p.device.type == "cuda"})
        self._cpu = torch.get_rng_state()
        self._cuda = [torch.cuda.get_rng_state(device) for device in self._devices]

    @contextmanager
    def replayed(self) -> Iterator[None]:
        with torch.random.fork_rng(self._devices):
            self.restore()
            yield

    def restore(self) -> None:
        """Has the random numbers go on from here."""
        torch.set_rng_state(self._cpu)
        for device, state in zip(self._devices, self._cuda, strict=True):
            torch.cuda.set_rng_state(state, device)

    def is_now(self, params: list[Tensor]) -> bool:
        """Whether no random numbers were drawn since."""
        now = RandomState(params)
        return all(map(torch.equal, (self._cpu, *self._cuda), (now._cpu, *now._cuda)))


def _loss(closure: Closure, params: list[Tensor]) -> Tensor:
    """Returns the closure's loss, and makes sure that it has a graph and nobody called backward."""
    before = [(p.grad, None if p.grad is None else p.grad._version) for p in params]
    with torch.enable_grad():
        loss = closure()
    for p, (gradient, version) in zip(params, before, strict=True):
        if p.grad is None or (p.grad is gradient and p.grad._version == version):
            continue
        if gradient is None or p.grad.any():  # zero_grad(set_to_none=False) leaves zeros
            raise RuntimeError(
                "the closure called backward(). With curvature='hvp' it must only return the loss; "
                "curvature='finite_difference' takes the usual closure."
            )
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad or loss.is_complex():
        got = f"{loss.dtype} of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        raise RuntimeError(f"the closure must return the loss, one real number with its graph, got {got}.")
    return loss


def _pull_back(pairs: Sequence[tuple[Tensor, Tensor]], params: list[Tensor], retain_graph: bool) -> Tensors:
    gradients, directions = zip(*pairs, strict=True)
    with _second_derivatives(), twice_differentiable():
        products = torch.autograd.grad(
            gradients, params, grad_outputs=directions, retain_graph=retain_graph, allow_unused=True
        )
    return list(products)


@contextmanager
def _second_derivatives() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        raise RuntimeError(
            "there is no second derivative of something in the loss: give the optimizer "
            f"curvature='finite_difference'. PyTorch says: {error}"
        ) from error


def _nothing(params: list[Tensor]) -> Tensors:
    return [None] * len(params)


def _add(total: Tensors, part: Tensors) -> Tensors:
    return [t if p is None else p if t is None else t + p for t, p in zip(total, part, strict=True)]


def _refuse_sparse(params: list[Tensor], gradient: Sequence[Tensor | None]) -> None:
    for p, g in zip(params, gradient, strict=True):
        if g is not None and g.layout != torch.strided:
            raise RuntimeError(
                f"the gradient of a parameter of shape {tuple(p.shape)} is sparse, and must be dense: "
                "make the layer with sparse=False."
            )


def _refuse_wrong(loss: Tensor) -> None:
    wrong = without_second_derivative(nodes(loss))
    if wrong:
        raise RuntimeError(
            f"PyTorch's second derivative of {wrong[0].partition('Interface')[0]} is wrong: "
            "give the optimizer curvature='finite_difference'."
        )


def _refuse_distributed() -> None:
    # DistributedDataParallel averages gradients in backward(), which autograd.grad doesn't call: ranks would part.
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    if distributed and torch.distributed.get_world_size() > 1:
        raise RuntimeError(
            "exact products don't average over several processes: give the optimizer curvature='finite_difference', "
            "whose closure calls backward()."
        )
