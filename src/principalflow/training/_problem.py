"""The data, network and loss of a run."""

from typing import Any, NamedTuple, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from principalflow import _checks, models
from principalflow import data as datasets
from principalflow.objective import Objective, Vector
from principalflow.spectrum import check_memory
from principalflow.training._options import Options


class Problem(NamedTuple):
    """What the runs of a sweep have in common."""

    objective: Objective
    scores: dict[str, Objective]
    """What `evaluate` returns, each a mean over samples."""
    samples: int
    input_shape: tuple[int, ...]
    outputs: int

    def start(self, o: Options) -> Vector:
        """Returns the starting parameters of a run."""
        return ravel_pytree(eqx.filter(_network(o, self.input_shape, self.outputs), eqx.is_inexact_array))[0]

    def evaluate(self, theta: Vector) -> dict[str, float]:
        """Returns accuracies and the test loss."""
        return {name: float(score.value(theta)) for name, score in self.scores.items()}


@_checks.chosen_precision()
def problem(o: Options, progress: bool | None) -> Problem:
    """Loads the data and builds the network.

    Raises:
        ValueError: If data, network and options don't fit each other.
    """
    if o.precision == "float64" and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise ValueError('precision float64 needs jax.config.update("jax_enable_x64", True) before any array is made.')
    with _checks.renamed(name="data", size="image_size"):
        dataset = datasets.load(
            o.data,
            samples=o.samples,
            test_samples=o.test_samples,
            progress=progress,
            label=o.label,
            size=o.image_size,
        )
    samples, classes = len(dataset.inputs), dataset.classes
    if o.model != "mlp" and len(dataset.input_shape) != 3:
        raise ValueError(
            f"model must be mlp for {o.data}, whose samples aren't images (height, width, channels), got {o.model}."
        )
    if o.batch_size is not None and o.batch_size > samples:
        raise ValueError(f"batch_size must be at most the {samples} samples that there are, got {o.batch_size}.")
    if classes is None and o.loss == "cross-entropy":
        raise ValueError(f"loss must be mean-square for {o.data}, whose labels are numbers, got cross-entropy.")
    train = _arrays(o, dataset.inputs, dataset.labels)
    network = _network(o, dataset.input_shape, classes or 1)
    objective = Objective(models.loss(o.loss), network, train, chunk=o.chunk)
    size, nbytes = objective.theta.size, objective.theta.nbytes
    # The least that a step and its record hold beside the parameters.
    _checks.fits("model", 3 * nbytes, f"a gradient, an update and a Hessian product of {size:,} parameters")
    check_memory("directions", min(o.directions, size), objective.theta)
    scores = {} if classes is None else {"train_accuracy": Objective(_accuracy, network, train, chunk=o.chunk)}
    if dataset.test_inputs is not None:
        test = _arrays(o, dataset.test_inputs, dataset.test_labels)
        scores["test_loss"] = Objective(models.loss(o.loss), network, test, chunk=o.chunk)
        if classes is not None:
            scores["test_accuracy"] = Objective(_accuracy, network, test, chunk=o.chunk)
    return Problem(objective, scores, samples, dataset.input_shape, classes or 1)


def objective(options: Options) -> Objective:
    """Returns the loss that a run of these options lowers; its `theta` is where the run starts.

    Args:
        options: Those of a single run.

    Returns:
        The loss over all training samples.

    Raises:
        ValueError: For options of a sweep, or if options, data and network don't fit each other.

    Example:
        >>> import principalflow as pf
        >>> options = pf.training.Options(data="iris", hidden=(4,), learning_rate=0.1)
        >>> pf.training.objective(options).theta.size
        35
    """
    if not isinstance(options, Options):
        raise ValueError(f"options must be training.Options(...), got {_checks.shown(options)}.")
    options.check()
    if len(options.runs()) > 1:
        raise ValueError(f"options must be those of a single run, got a sweep of {len(options.runs())}.")
    return problem(next(iter(options.runs().values())), progress=None).objective


def _network(o: Options, input_shape: tuple[int, ...], outputs: int) -> eqx.Module:
    options: dict[str, Any] = dict(width=o.width, activation=o.activation, gain=o.gain, dtype=jnp.dtype(o.precision))
    if o.model != "mlp":
        options |= dict(pooling=o.pooling) | (dict(normalization=o.normalization) if o.normalization else {})
    if o.model.startswith("resnet"):
        options |= dict(stem=o.stem)
    key = jax.random.key(cast(int, o.seed))
    return models.build(o.model, input_shape, outputs, key, hidden=o.hidden, **options)


def _arrays(o: Options, inputs: np.ndarray, labels: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    labels = np.asarray(labels)
    exact = np.issubdtype(labels.dtype, np.integer)
    return inputs.astype(o.precision), labels.astype(np.int32 if exact else o.precision)


def _accuracy(model: Any, batch: tuple) -> jax.Array:
    return models.accuracy(model(batch[0]), batch[1])
