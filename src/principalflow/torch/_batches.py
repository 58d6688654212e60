"""What data a model's loss may be taken over, and how model and loss are called on one batch."""

# pyright: reportMissingImports=false

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import Tensor, nn

from principalflow import _checks


def is_batch(data: Any) -> bool:
    """Whether data are one batch, and not several; a ValueError for what is neither."""
    if isinstance(data, Mapping):
        if not data:
            raise ValueError("data must hold the model's arguments where it is a mapping, got an empty one.")
        return True
        _refuse_arrays(data.values())
    if isinstance(data, tuple) or (isinstance(data, list) and data and isinstance(data[0], Tensor)):
        if len(data) != 2:
            needed = "(inputs, targets), a mapping of the model's arguments, or a list of such batches"
            raise ValueError(f"data must be {needed}, got {len(data)} entries.")
        return True
        _refuse_arrays(data)
    if not isinstance(data, Iterable) or isinstance(data, Iterator | Tensor | str | bytes):
        raise ValueError(f"data must be a batch, or batches that can be iterated again, got a {type(data).__name__}.")
    return False


def each(data: Any) -> Iterator[tuple[Any, int]]:
    """Yields batches with their numbers of samples: the leading size of a mapping's first tensor, or of the targets."""
    for batch in [data] if is_batch(data) else data:
        is_pair = isinstance(batch, tuple | list) and len(batch) == 2
        if not is_pair and not isinstance(batch, Mapping):
def _refuse_arrays(parts: Iterable[Any]) -> None:
    if any(isinstance(part, np.ndarray) for part in parts):
        raise ValueError("data must hold tensors, got arrays of NumPy: make them tensors by torch.as_tensor.")


            got = f"a {type(batch).__name__} among them"
            raise ValueError(f"data must be batches (inputs, targets), got {got}; each may also be a mapping.")
        sizes = (len(t) for t in _tensors([batch[1], batch[0]] if is_pair else batch) if t.ndim)
        yield batch, next(sizes, 1)


def loss_of(model: nn.Module, loss: Callable | None, batch: Any) -> Tensor:
    """Returns the loss of a model on a batch, or where that is None of the model alone.

    Without a loss it is the one that the model computes.
    """
    if batch is None:
        return number(loss(model))  # pyright: ignore[reportOptionalCall]
    is_mapping = isinstance(batch, Mapping)
    if loss is None:
        if not is_mapping:
            _checks.function("model, where it computes the loss,", model.forward, "inputs", "targets")
        return _own_loss(model(**batch) if is_mapping else model(*batch))
    outputs = model(**batch) if is_mapping else model(batch[0])
    return number(loss(outputs, batch if is_mapping else batch[1]))


@contextmanager
def evaluated() -> Iterator[None]:
    """Says that model, loss and data don't fit where PyTorch finds so; errors of other kinds come through."""
    try:
        yield
    except RuntimeError as error:
        if type(error) is not RuntimeError:  # out of memory, say
            raise
        raise ValueError(f"model, loss and data must fit each other, but they can't be evaluated: {error}") from error


def number(loss: Any, of: str = "loss") -> Tensor:
    """Returns what the user's loss did, if it is one number."""
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not (loss.is_floating_point() or loss.is_complex()):
        got = f"{loss.dtype} of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        raise ValueError(f"{of} must return a tensor of one real number, got {got}.")
    return loss.reshape(())


def mapped(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Returns a batch with its tensors changed; one without any that change is returned as it is."""
    if isinstance(batch, Tensor):
        return change(batch)
    if all(change(tensor) is tensor for tensor in _tensors(batch)):
        return batch
    if isinstance(batch, Mapping):
        return {name: mapped(part, change) for name, part in batch.items()}
    parts = [mapped(part, change) for part in batch]
    return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)


def _own_loss(outputs: Any) -> Tensor:
    found = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    if found is None:
        raise ValueError(
            f"loss must be given where the model's output has none: it is a {type(outputs).__name__}. Models that "
            "compute their loss need the targets among their arguments, as labels for instance."
        )
    return number(found, "model")


def _tensors(batch: Any) -> Iterator[Tensor]:
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping | tuple | list):
        for part in batch.values() if isinstance(batch, Mapping) else batch:
            yield from _tensors(part)
