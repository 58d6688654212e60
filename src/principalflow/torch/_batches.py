"""What data a model's loss may be taken over, and how model and loss are called on one batch."""

# pyright: reportMissingImports=false

from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler, WeightedRandomSampler

from principalflow import _checks


def is_batch(data: Any) -> bool:
    """Whether data are one batch, and not several; a ValueError for what is neither."""
    if isinstance(data, Mapping):
        if not data:
            raise ValueError("data must hold the model's arguments where it is a mapping, got an empty one.")
        _refuse_arrays(data.values())
        return True
    if isinstance(data, tuple) or (isinstance(data, list) and data and isinstance(data[0], Tensor)):
        if len(data) != 2:
            needed = "(inputs, targets), a mapping of the model's arguments, or a list of such batches"
            raise ValueError(f"data must be {needed}, got {len(data)} entries.")
        _refuse_arrays(data)
        return True
    if not isinstance(data, Iterable) or isinstance(data, Iterator | Tensor | str | bytes):
        wrap = ": wrap it in a DataLoader" if isinstance(data, Dataset) else ""
        got = f"a {type(data).__name__}{wrap}"
        raise ValueError(f"data must be a batch, or batches that can be iterated again, got {got}.")
    if isinstance(data, DataLoader):
        _check_loader(data)
    return False


def _refuse_arrays(parts: Iterable[Any]) -> None:
    if any(isinstance(part, np.ndarray) for part in parts):
        raise ValueError("data must hold tensors, got arrays of NumPy: make them tensors by torch.as_tensor.")


def each(data: Any) -> Iterator[tuple[Any, int]]:
    """Yields batches with their numbers of samples: the leading size of a mapping's first tensor, or of the targets."""
    with _generators_kept(data):
        for batch in [data] if is_batch(data) else data:
            is_pair = isinstance(batch, tuple | list) and len(batch) == 2
            if not is_pair and not isinstance(batch, Mapping):
                entries = f" of {len(batch)} entries" if isinstance(batch, tuple | list) else ""
                got = f"a {type(batch).__name__}{entries}"
                raise ValueError(f"each batch of data must be a pair (inputs, targets) or a mapping, got {got}.")
            sizes = (len(t) for t in _tensors([batch[1], batch[0]] if is_pair else batch) if t.ndim)
            yield batch, next(sizes, 1)


def _check_loader(loader: DataLoader) -> None:
    """Raises for a loader that isn't the same set of samples each time, or whose workers a pass would take away."""
    if loader.persistent_workers:
        raise ValueError(
            "data must be a DataLoader without persistent_workers: a pass over it would begin the loop's epoch anew. "
            "Make one of its own."
        )
    batches = loader.batch_sampler or loader
    sampler: Any = getattr(batches, "sampler", None)
    size = getattr(batches, "batch_size", None)
    if isinstance(sampler, SequentialSampler) or not isinstance(sampler, Sized):
        return
    size_of_all = len(loader.dataset) if isinstance(loader.dataset, Sized) else None
    partly = isinstance(sampler, RandomSampler) and (sampler.replacement or sampler.num_samples != size_of_all)
    dropped = bool(getattr(batches, "drop_last", False) and size and len(sampler) % size)
    if isinstance(sampler, WeightedRandomSampler) or partly or dropped:
        why = "drop_last=True leaves out others if shuffled" if dropped else f"{type(sampler).__name__} draws others"
        raise ValueError(f"data must be the same samples each time, but {why}. Make a DataLoader of its own, in order.")


@contextmanager
def _generators_kept(data: Any) -> Iterator[None]:
    """Leaves the generators of a DataLoader as they were, for its order may be drawn from them."""
    owners = [data, data.sampler, getattr(data.batch_sampler, "sampler", None)] if isinstance(data, DataLoader) else []
    found = [getattr(owner, "generator", None) for owner in owners]
    states = [(generator, generator.get_state()) for generator in found if generator is not None]
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)


def loss_of(model: nn.Module, loss: Callable | None, batch: Any) -> Tensor:
    """Returns the loss of a model on a batch, or where that is None of the model alone.

    Without a loss it is the one that the model computes.
    """
    if batch is None:
        return one_number(loss(model))  # pyright: ignore[reportOptionalCall]
    is_mapping = isinstance(batch, Mapping)
    if loss is None:
        if not is_mapping:
            _checks.function("model, where it computes the loss,", model.forward, "inputs", "targets")
        return _own_loss(model(**batch) if is_mapping else model(*batch))
    outputs = model(**batch) if is_mapping else model(batch[0])
    return one_number(loss(outputs, batch if is_mapping else batch[1]))


@contextmanager
def evaluated() -> Iterator[None]:
    """Says that model, loss and data don't fit where PyTorch finds so; errors of other kinds come through."""
    try:
        yield
    except RuntimeError as error:
        if type(error) is not RuntimeError:  # out of memory, say
            raise
        raise ValueError(f"model, loss and data must fit each other, but they can't be evaluated: {error}") from error


def one_number(loss: Any, of: str = "loss") -> Tensor:
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
    return one_number(found, "model")


def _tensors(batch: Any) -> Iterator[Tensor]:
    if isinstance(batch, Tensor):
        yield batch
    elif isinstance(batch, Mapping | tuple | list):
        for part in batch.values() if isinstance(batch, Mapping) else batch:
            yield from _tensors(part)
