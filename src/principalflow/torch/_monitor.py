"""The monitor for PyTorch training loops."""

# pyright: reportMissingImports=false

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import jax
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from principalflow import _checks
from principalflow.monitor import Threshold, Watch
from principalflow.record import Record, Row, WarmStart, row_of
from principalflow.spectrum import block_eigenpairs_and_product
from principalflow.stability import Measured
from principalflow.torch._derivatives import Closure, Derivatives, RandomState, Tensors, exactly


class Monitor(Watch):
    r"""Watches a PyTorch training loop, as `principalflow.Monitor` does for JAX: the same rows, events and summary.

    Call `observe` once a step, after `optimizer.step()`. It leaves the model as it was: parameters, gradients, buffers
    (batch norm's statistics), modes and random numbers. Dropout draws the same numbers in all passes of one
    measurement. Hessian products are exact, by two backward passes over float32 or float64 parameters.

    Args:
        model: The model; its parameters that require gradients are watched.
        loss: `loss(model(inputs), targets)`, a mean over the batch; without data, `loss(model)`.
        data: `(inputs, targets)`, on the model's device; or several such batches in a list or whatever else can be
            iterated again, of which the mean over all samples is taken. One batch has its graph kept, and is faster.
        k: How many directions of largest curvature.
        every: Measure every this many steps, from the first that is observed on.
        optimizer: Where to read the learning rate, if `observe` isn't given one, and the momentum (Nesterov's too). Of
            several groups it is the one with the largest rate.
        momentum: The momentum m, which moves the threshold to $2(1+m)/h$; by default the optimiser's, or none.
        tol: The eigenpairs' residual, relative to the largest |eigenvalue|.
        budget: The most time to spend measuring, as a share of the loop's own; see `principalflow.Monitor`.
        to: Where rows go: a function, a TensorBoard writer, or the path of a run directory.
        train_mode: True or False to measure the loss in training or evaluation mode; None for that which the model is
            in.

    Raises:
        ValueError: For a model without trainable parameters or with ones of half precision, a loss that is no function
            of outputs and targets, data that can be iterated only once, or an option out of its range.

    Example:
        >>> import torch
        >>> from principalflow.torch import Monitor
        >>> model = torch.nn.Linear(1, 1, bias=False).double()
        >>> data = torch.full((4, 1), 2.0).double(), torch.ones(4, 1).double()
        >>> monitor = Monitor(model, torch.nn.functional.mse_loss, data, k=1)
        >>> row = monitor.observe(0, learning_rate=0.3)
        >>> print(row["eigenvalue_0"], row["events"][0])
        8.0 lambda_0 is above 2/h at step 0: 8 against 6.667
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable,
        data: Any = None,
        *,
        k: int = 3,
        every: int = 10,
        optimizer: torch.optim.Optimizer | None = None,
        momentum: float | None = None,
        tol: float = 1e-2,
        budget: float | None = None,
        to: Any = None,
        train_mode: bool | None = None,
    ):
        record = Record(k=k, tol=tol)
        self._take = _Recording(model, loss, data, record, train_mode)
        self._optimizer = optimizer
        self._momentum = None if momentum is None else _checks.fraction("momentum", momentum)
        parameters = sum(p.numel() for p in self._take.params())
        known = [group.get("momentum") for group in optimizer.param_groups] if optimizer and momentum is None else []
        config = dict(momentum=known[0] if known else momentum, parameters=parameters)
        super().__init__(record, every, budget, to, config)

    def observe(self, step: int, learning_rate: float | None = None) -> Row | None:
        """Measures where it is due.

        Args:
            step: The number of steps taken.
            learning_rate: The next step's; None to read the optimiser's.

        Returns:
            The row, or None where nothing was measured.

        Raises:
            ValueError: For a step or rate below 0, or where there is no rate and no optimiser.
        """
        return self._observe(step, learning_rate, self._optimizer)

    def callback(self) -> "Callback":
        """Returns a callback for Lightning's `Trainer(callbacks=[...])`, which prints the summary at the end."""
        return Callback(self)

    def _observe(self, step: int, learning_rate: Any, optimizer: torch.optim.Optimizer | None) -> Row | None:
        if not self._schedule.is_due(step):
            return None
        group = {} if optimizer is None else max(optimizer.param_groups, key=lambda group: float(group["lr"]))
        rate = group.get("lr") if learning_rate is None else learning_rate
        if rate is None:
            raise ValueError("learning_rate must be given to observe, or an optimizer to the monitor; got neither.")
        momentum = group.get("momentum", 0.0) if self._momentum is None else self._momentum
        return self._measure(
            step,
            rate.item() if isinstance(rate, Tensor) else rate,
            Threshold.of(momentum, group.get("nesterov", False), group.get("dampening", 0.0)),
            wait=self._take.wait,
            take=self._take,
            loss=self._take.loss,
        )


class Callback:
    """What Lightning calls along its training; hooks that a monitor has no use for do nothing."""

    state_key = _legacy_state_key = "principalflow.torch.Monitor"  # both are asked for when a checkpoint is loaded

    def __init__(self, monitor: Monitor):
        self.monitor = monitor

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Observes the step, at the rate of the trainer's first optimiser."""
        self.monitor._observe(trainer.global_step, None, trainer.optimizers[0])

    def on_train_end(self, trainer: Any, module: Any) -> None:
        """Closes the monitor and prints its summary."""
        self.monitor.close()
        if getattr(trainer, "is_global_zero", True):
            print(self.monitor.summary())

    def on_exception(self, trainer: Any, module: Any, exception: BaseException) -> None:
        """Closes the monitor."""
        self.monitor.__exit__(type(exception), exception, None)

    def state_dict(self) -> dict[str, Any]:
        """Returns nothing: a monitor starts anew."""
        return {}

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("on_") or name in ("setup", "teardown", "load_state_dict"):
            return lambda *args, **kwargs: None
        raise AttributeError(name)


class _Recording(WarmStart):
    """Takes one record after another of a model, and leaves it as it was."""

    def __init__(self, model: nn.Module, loss: Callable, data: Any, record: Record, train_mode: bool | None):
        if not isinstance(model, nn.Module):
            raise ValueError(f"model must be an nn.Module, got {_checks.shown(model)}.")
        _checks.function("loss", loss, *(("model",) if data is None else ("outputs", "targets")))
        # The model that was compiled, since a compiled one has no second derivatives; they share the parameters.
        self._model: nn.Module = getattr(model, "_orig_mod", model)
        self._loss, self._data, self._record, self._train_mode = loss, data, record, train_mode
        self._is_one_batch = data is None or _is_batch(data)
        for name, p in model.named_parameters():
            if p.requires_grad and p.dtype not in (torch.float32, torch.float64):
                raise ValueError(
                    f"model must have float32 or float64 parameters, since curvature is lost in the rounding of "
                    f"coarser ones; {name} is {p.dtype}."
                )
        if not self.params():
            raise ValueError("model must have parameters that require gradients, got none.")

    def params(self) -> list[Tensor]:
        return [p for p in self._model.parameters() if p.requires_grad]

    def wait(self) -> None:
        """Waits for the loop's own work on the device."""
        device = self.params()[0].device
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def loss(self) -> float:
        """Returns the loss alone."""
        with _untouched(self._model, self._train_mode), torch.no_grad(), RandomState(self.params()).replayed():
            parts = [(size * float(closure()), size) for closure, size in self._closures()]
        return sum(loss for loss, _ in parts) / sum(size for _, size in parts)

    def __call__(self, h: float) -> Row:
        params = self.params()
        with _untouched(self._model, self._train_mode), sdpa_kernel(SDPBackend.MATH):  # fused attention has no products
            here = _Derivatives(params, self._closures, keep=self._is_one_batch)
            measured = self._measure(here)
            del here  # with its graph
            with _moved(params, _split(params, -h * measured.gradient)):
                next_loss, next_gradient = _Derivatives(params, self._closures).loss_and_gradient()
        return row_of(h, measured, next_loss, next_gradient)

    def _measure(self, here: "_Derivatives") -> Measured:
        loss, gradient = here.loss_and_gradient()
        if not math.isfinite(loss) or not bool(gradient.isfinite().all()):
            raise _checks.NonFiniteError("the loss and its gradient must be finite, but they are not.")
        k, guess = min(self._record.k, gradient.numel()), self._eigenpairs
        if guess is not None and guess.trail is not None and len(guess.trail.probed) == gradient.numel():
            guess = replace(guess, trail=guess.trail.map(lambda rows: rows.to(gradient)))
        else:  # the first time, or parameters were frozen or thawed
            random = torch.Generator().manual_seed(0)
            guess = torch.randn(gradient.numel(), k, generator=random, dtype=gradient.dtype).to(gradient.device)
        eigenpairs, Hg = block_eigenpairs_and_product(here.times, guess, k, tol=self._record.tol, also=gradient)
        # In one layout, so that what was stored and restored gives the same bits.
        trail = eigenpairs.trail and eigenpairs.trail.map(lambda rows: rows.contiguous())
        self._eigenpairs = replace(eigenpairs, trail=trail)
        return Measured.of(loss, gradient, Hg, eigenpairs, torch.finfo(gradient.dtype).eps)

    def _closures(self) -> Iterator[tuple[Closure, int]]:
        """Yields the loss of each batch, and what it weighs."""
        if self._data is None:
            yield lambda: _number(self._loss(self._model)), 1
        elif self._is_one_batch:
            yield self._of_batch(*self._data), 1
        else:
            for batch in self._data:
                if not isinstance(batch, tuple | list) or len(batch) != 2:
                    raise ValueError(
                        f"data must be batches (inputs, targets), got a {type(batch).__name__} among them."
                    )
                yield self._of_batch(*batch), len(jax.tree.leaves(batch[1])[0])

    def _of_batch(self, inputs: Any, targets: Any) -> Closure:
        return lambda: _number(self._loss(self._model(inputs), targets))


class _Derivatives:
    """The mean loss over all batches, its gradient and Hessian products, as flat vectors; the graph of one is kept."""

    def __init__(self, params: list[Tensor], closures: Callable[[], Iterator[tuple[Closure, int]]], keep: bool = False):
        self._params, self._closures, self._random = params, closures, RandomState(params)
        with self._random.replayed():
            self._kept = list(self._each(again=True)) if keep else None

    def loss_and_gradient(self) -> tuple[float, Tensor]:
        loss, gradient = self._mean(lambda d: [d[0], self._flat(d[1])], again=False)
        return float(loss), gradient

    def times(self, block: Tensor) -> Tensor:
        def product(derivatives: Derivatives) -> list[Tensor]:
            columns = [self._flat(derivatives[2](_split(self._params, column))) for column in block.T]
            return [torch.stack(columns, dim=1)]

        return self._mean(product, again=True)[0]

    def _mean(self, quantities: Callable[[Derivatives], list[Tensor]], again: bool) -> list[Tensor]:
        total, samples = [], 0
        with self._random.replayed():
            for derivatives, size in self._kept or self._each(again):
                part = [size * quantity for quantity in quantities(derivatives)]
                total = [a + b for a, b in zip(total, part, strict=True)] if total else part
                samples += size
        if not samples:
            raise ValueError("data must hold at least one batch with samples, got none.")
        return [t / samples for t in total]

    def _each(self, again: bool) -> Iterator[tuple[Derivatives, int]]:
        for closure, size in self._closures():
            yield exactly([closure], self._params, again, many=True), size

    def _flat(self, tensors: Tensors) -> Tensor:
        whole = [torch.zeros_like(p) if t is None else t for p, t in zip(self._params, tensors, strict=True)]
        return torch.cat([t.reshape(-1).to(self._params[0].device) for t in whole])


def _number(loss: Any) -> Tensor:
    """Returns what the user's loss did, if it is one."""
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.is_floating_point():
        got = f"{loss.dtype} of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        raise ValueError(f"loss must return a tensor of one real number, got {got}.")
    return loss


def _is_batch(data: Any) -> bool:
    """Whether data are one batch, inputs and targets, and not several."""
    if isinstance(data, tuple) or (isinstance(data, list) and data and isinstance(data[0], Tensor)):
        if len(data) != 2:
            raise ValueError(f"data must be (inputs, targets) or a list of such batches, got {len(data)} entries.")
        return True
    if not isinstance(data, Iterable) or isinstance(data, Iterator | Tensor | str | bytes):
        raise ValueError(f"data must be a batch, or batches that can be iterated again, got a {type(data).__name__}.")
    return False


def _split(params: list[Tensor], flat: Tensor) -> list[Any]:
    parts = flat.split([p.numel() for p in params])
    return [part.reshape(p.shape).to(p) for p, part in zip(params, parts, strict=True)]


@contextmanager
def _moved(params: list[Tensor], by: list[Tensor]) -> Iterator[None]:
    """Has the parameters elsewhere for a while; their own memory isn't written to."""
    originals = [p.data for p in params]
    try:
        for p, change in zip(params, by, strict=True):
            p.data = p.data + change
        yield
    finally:
        for p, original in zip(params, originals, strict=True):
            p.data = original


@contextmanager
def _untouched(model: nn.Module, train_mode: bool | None) -> Iterator[None]:
    """Has copies of the buffers, and the mode that is asked for, for a while."""
    before = [(module, module.training, dict(module._buffers)) for module in model.modules()]
    try:
        for module, _, buffers in before:
            module._buffers.update({name: None if b is None else b.clone() for name, b in buffers.items()})
        if train_mode is not None:
            model.train(train_mode)
        yield
    finally:
        for module, training, buffers in before:
            module.training = training
            module._buffers.update(buffers)
