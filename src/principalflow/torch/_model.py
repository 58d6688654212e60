"""The mean loss of a PyTorch model over data, and its derivatives by the parameters as flat vectors."""

# pyright: reportMissingImports=false

import copy
from collections.abc import Callable, Iterator, Sequence, Sized
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction

from principalflow import _checks
from principalflow.torch import _batches
from principalflow.torch._derivatives import RandomState
from principalflow.torch._graph import Graph, flat, nodes, split, whole, without_second_derivative
from principalflow.torch._products import Option, Products
from principalflow.torch._sharded import ShardedGraph, ShardedStandIn, is_sharded, mean_over_processes, reshard
from principalflow.torch._stand_in import StandIn, change_for, twice_differentiable, unwrapped, wide

# A step from the parameters: a flat vector, or tensors like them.
Moved = Tensor | list[Tensor]


class ModelLoss:
    """The mean loss of a model over data; whatever measures it leaves the model as it was.

    That is its parameters, gradients, buffers and modes, and the random numbers. A model that was compiled, or wrapped
    for several devices, is measured without that: each process measures its own data. What is of less than single
    precision is measured in single precision: float32 copies stand in for parameters, buffers and batches, and autocast
    is off.

    Args:
        model, loss, data, select, train_mode, products: As in `principalflow.torch.objective`.

    Attributes:
        model: The model that is measured.
        products: How products are made.
        is_sharded: Whether parameters are spread over processes.
        random: The random numbers that all passes draw, as for dropout; None for those that come next.
        random_of_each: Those of each batch, where they are known.
    """

    random: RandomState | None = None
    random_of_each: Sequence[RandomState] = ()

    def __init__(
        self,
        model: nn.Module,
        loss: Callable | None = None,
        data: Any = None,
        *,
        select: Callable[[str], bool] | None = None,
        train_mode: bool | None = None,
        products: Option = "auto",
    ):
        if not isinstance(model, nn.Module):
            raise ValueError(f"model must be an nn.Module, got {_checks.shown(model)}.")
        if loss is not None:
            _checks.function("loss", loss, *(("model",) if data is None else ("outputs", "targets")))
        elif data is None:
            raise ValueError("loss must be a function of model where there are no data, got None.")
        if select is not None:
            _checks.function("select", select, "name")
        self.model, self.products = unwrapped(model), Products(products)
        self._loss, self._select = loss, select
        self._train_mode = None if train_mode is None else _checks.flag("train_mode", train_mode)
        self._data, self._is_one_batch = data, data is None or _batches.is_batch(data)
        self._is_checked = self.is_sharded = is_sharded(self.model)
        if self.is_sharded:
            self.products.give_up("gradients are averaged over processes, where the model is sharded")
        self._check_params()

    def named_params(self) -> dict[str, Tensor]:
        """Returns the parameters by their names, in the order in which they are in flat vectors."""
        if self.is_sharded:
            reshard(self.model)
        every = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        return {name: p for name, p in every.items() if self._select is None or self._select(name)}

    def params(self) -> list[Tensor]:
        """Returns the parameters, in the order in which they are in flat vectors."""
        return list(self.named_params().values())

    def theta(self) -> Tensor:
        """Returns the parameters as a flat vector, in single precision at least."""
        return flat(wide(p) for p in self.params())  # in one piece, also where the model is sharded

    @property
    def device(self) -> torch.device:
        """Where the parameters are, or the first of them."""
        return next(self.model.parameters()).device

    def over(self, data: Any, random: Sequence[RandomState] = ()) -> "ModelLoss":
        """Returns the same loss over other data, whose batches draw these random numbers if there are as many."""
        other = copy.copy(self)
        other._data, other._is_one_batch = data, data is None or _batches.is_batch(data)
        batches = 1 if other._is_one_batch else len(data) if isinstance(data, Sized) else 0
        other.random_of_each = random if len(random) == batches else ()
        return other

    def wait(self) -> None:
        """Waits for the loop's own work on the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def value(self, theta: Tensor | None = None, *, moved: Moved | None = None) -> Any:
        """Returns the loss alone, at the parameters or at others, as `here` has them."""
        leaves = self._leaves(theta, moved)
        random = self.random or RandomState(leaves)
        with random.replayed(), self.evaluated(self.stand_in(leaves)), torch.no_grad():
            loss = self._mean_loss(leaves[0].dtype)
        return self._over_processes(loss)

    @property
    def runs_as_it_is(self) -> bool:
        """Whether the loss is what the model itself computes, in its own mode and precision."""
        return self._train_mode is None and all(wide(p) is p for p in self.params())

    def value_as_it_runs(self) -> float:
        """Returns the loss as the loop's own pass would where it `runs_as_it_is`: nothing stands in for parameters."""
        params = self.params()
        alone = any(module._buffers for module in self.model.modules())
        same = StandIn(self.model, {p: p for p in params}, lambda tensor: tensor, None) if alone else None
        with RandomState(params).replayed(), same.in_place() if same else nullcontext(), torch.no_grad():
            loss = self._mean_loss()
        return self._over_processes(loss)

    def _mean_loss(self, dtype: torch.dtype | None = None) -> Any:
        parts = [(size * self.loss_of(batch, dtype).item(), size) for batch, size in self.batches()]
        return sum(part for part, _ in parts) / _checked(sum(size for _, size in parts))

    def _over_processes(self, loss: Any) -> Any:
        return mean_over_processes(loss, self.params()[0]) if self.is_sharded else loss

    def here(self, theta: Tensor | None = None, *, moved: Moved | None = None, keep: bool = True) -> "Here":
        """Returns the loss with its derivatives at the parameters, or at others.

        Args:
            theta: Other parameters, flat. At complex ones derivatives are the holomorphic ones.
            moved: What to add to the parameters for a look elsewhere, flat or like them: no graph is kept there.
            keep: Whether the graph of a single batch is kept for products.
        """
        return Here(self, self._leaves(theta, moved), keep and self._is_one_batch and moved is None)

    def stand_in(self, leaves: list[Tensor]) -> StandIn:
        """Returns what has the model with `leaves` for parameters."""
        if self.is_sharded:
            return ShardedStandIn(self.model, self.params(), leaves, self._train_mode)
        by_param = dict(zip(self.params(), leaves, strict=True))
        return StandIn(self.model, by_param, change_for(leaves[0].dtype), self._train_mode)

    @contextmanager
    def evaluated(self, stand_in: StandIn) -> Iterator[None]:
        """Has the model as it is to be evaluated.

        Backward passes need it too, since checkpoints run the model again in them.
        """
        kernels = twice_differentiable() if self.products.is_exact else nullcontext()
        with stand_in.in_place(), kernels, torch.autocast(self.device.type, enabled=False):
            yield

    def batches(self) -> Iterator[tuple[Any, int]]:
        """Yields batches, or None without data, and what they weigh."""
        for i, batch in enumerate([(self._data, 1)] if self._is_one_batch else _batches.each(self._data)):
            if self.random_of_each:
                self.random_of_each[i].restore()
            yield batch

    def loss_of(self, batch: Any, dtype: torch.dtype | None = None) -> Tensor:
        """Returns the loss of a batch, whose floating-point tensors fit parameters of a dtype, or are as they are."""
        fitting = batch if dtype is None else _batches.mapped(batch, change_for(dtype))
        with _batches.evaluated():
            loss = _batches.loss_of(self.model, self._loss, fitting)
        is_complex = dtype is not None and dtype.is_complex
        if loss.is_complex() != is_complex:
            kind = "complex number at complex parameters" if is_complex else "real number"
            raise ValueError(f"loss must return a {kind}, got {loss.dtype}.")
        return loss

    def graph_of(self, loss: Tensor, params: list[Tensor], leaves: list[Tensor], again: bool) -> Any:
        """Returns the graph of a loss where `leaves` stand in for `params`."""
        self._check_graph(loss, params)
        return ShardedGraph(loss, params) if self.is_sharded else Graph(loss, leaves, again)

    def _check_graph(self, loss: Tensor, params: list[Tensor]) -> None:
        """Raises if a loss doesn't come from what stands in for the parameters, and finds what may spoil products."""
        if not loss.requires_grad:
            raise ValueError(
                "loss must depend on the parameters of model, but it has no gradient. Are they behind a checkpoint, "
                "which needs use_reentrant=False?"
            )
        if self._is_checked:
            return
        every = list(nodes(loss))
        if any(type(node).__name__ == "CheckpointFunctionBackward" for node in every):
            raise ValueError("model must have checkpoints with use_reentrant=False: others know only backward().")
        if {node.variable for node in every if hasattr(node, "variable")} & set(params):
            raise ValueError("loss must take parameters from model when it is called; it uses ones from before.")
        names = {type(node).__name__ for node in every if isinstance(node, BackwardCFunction)}
        self.products.suspects = sorted(names | set(without_second_derivative(every)))
        self._is_checked = True

    def _leaves(self, theta: Tensor | None, moved: Moved | None) -> list[Tensor]:
        """Returns what stands in for the parameters: they themselves or parts of a flat vector, perhaps moved."""
        values = [wide(whole(p.detach())) for p in self.params()]
        if theta is not None:
            like = [value.to(theta.dtype) for value in values] if theta.is_complex() else values
            values = [part.detach() for part in split(like, theta)]
        return [value.requires_grad_() for value in (values if moved is None else _moved(values, moved))]

    def _check_params(self) -> None:
        chosen = self.named_params()
        for name, p in chosen.items():
            if not p.is_floating_point():
                raise ValueError(f"model must have real floating-point parameters, but {name} is {p.dtype}.")
            if self.is_sharded and wide(p) is not p:
                raise ValueError(f"model must have float32 or float64 parameters if sharded, but {name} is {p.dtype}.")
        if not chosen:
            every = [name for name, p in self.model.named_parameters() if p.requires_grad]
            if not every:
                raise ValueError("model must have parameters that require gradients, got none.")
            raise ValueError(f"select must be true for at least one name, but it is for none of {', '.join(every)}.")


class Here:
    """The loss of a model over its data at one point, with its derivatives.

    All passes draw the same random numbers. The graph of a single batch is kept for all products, which halves their
    price; several batches make theirs anew for each block, so that one is in memory at a time.
    """

    def __init__(self, of: ModelLoss, leaves: list[Tensor], keep: bool, random: RandomState | None = None):
        self._of, self._params, self._leaves, self._keep = of, of.params(), leaves, keep
        self._stand_in, self._random = of.stand_in(leaves), random or of.random or RandomState(leaves)
        self._kept: list[tuple[Graph, int]] = []

    def __enter__(self) -> "Here":
        return self

    def __exit__(self, *_: Any) -> None:
        self._kept = []

    def loss_and_gradient(self) -> tuple[Any, Tensor]:
        """Returns the loss and its gradient."""
        both = lambda graph: [graph.value, graph.gradient]  # noqa: E731
        loss, gradient = self._of.products.attempt(
            lambda: self._mean(both, again=self._keep), lambda: self._mean(both, again=False)
        )
        return loss.item(), gradient

    def times(self, block: Tensor) -> Tensor:
        """Returns the Hessian times a block (D, k) of columns."""
        times, gradient = self._of.products.differences.times, lambda: self.loss_and_gradient()[1]
        return self._of.products.attempt(
            lambda: self._exactly(lambda graph: torch.stack([graph.times(column) for column in block.T], 1)),
            lambda: torch.stack([times(self._slope, column, gradient) for column in block.T], 1),
        )

    def third(self, u: Tensor, v: Tensor) -> Tensor:
        """Returns the third derivatives contracted with two vectors."""
        product = lambda moved: self._elsewhere(moved).times(v[:, None])[:, 0]  # noqa: E731
        return self._of.products.attempt(
            lambda: self._exactly(lambda graph: graph.third(u, v)),
            lambda: self._of.products.differences.third(product, u),
        )

    def cauchy_riemann_violation(self) -> float:
        """Returns how far the loss is from being holomorphic, relative to its derivative, at complex parameters."""
        along, across = self._mean(lambda graph: [graph.gradient, graph.gradient_across], again=True)
        return float((along - across).norm() / (along + across).norm())

    def _exactly(self, quantity: Callable[[Graph], Tensor]) -> Tensor:
        exactly = lambda quantity: self._mean(lambda graph: [quantity(graph)], again=True)[0]  # noqa: E731
        found = exactly(quantity)
        product, gradient = lambda v: exactly(lambda graph: graph.times(v)), lambda: self.loss_and_gradient()[1]
        self._of.products.verify(product, self._slope, gradient)
        return found

    def _slope(self, moved: Tensor) -> Tensor:
        return self._elsewhere(moved).loss_and_gradient()[1]

    def _elsewhere(self, moved: Tensor) -> "Here":
        leaves = [leaf.requires_grad_() for leaf in _moved(self._leaves, moved)]
        return Here(self._of, leaves, keep=False, random=self._random)

    def _mean(self, quantities: Callable[[Graph], list[Tensor]], again: bool) -> list[Tensor]:
        """Returns the means over all samples of what is asked of each batch's graph."""
        total, samples = [], 0
        random = nullcontext() if self._kept else self._random.replayed()
        with self._of.evaluated(self._stand_in), random, torch.enable_grad():
            for graph, size in self._kept or self._graphs(again):
                part = [size * quantity for quantity in quantities(graph)]
                total = [a + b for a, b in zip(total, part, strict=True)] if total else part
                samples += size
        samples = _checked(samples)
        return [t / samples for t in total]

    def _graphs(self, again: bool) -> Iterator[tuple[Graph, int]]:
        for batch, size in self._of.batches():
            loss = self._of.loss_of(batch, self._leaves[0].dtype)
            graph = self._of.graph_of(loss, self._params, self._leaves, again)
            if again and self._keep:
                self._kept = [(graph, size)]
            yield graph, size


def _moved(leaves: list[Tensor], moved: Moved) -> list[Tensor]:
    by = moved if isinstance(moved, list) else split(leaves, moved)
    return [leaf.detach() + change for leaf, change in zip(leaves, by, strict=True)]


def _checked(samples: int) -> int:
    if not samples:
        raise ValueError("data must hold at least one batch with samples, got none.")
    return samples
