"""Losses of networks, stable and holomorphic, and accuracy."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Inexact

from principalflow import _checks

Outputs = Inexact[Array, "N classes"]


def cross_entropy(logits: Outputs, labels: Array) -> Inexact[Array, ""]:
    r"""Returns the mean over the samples of $\log\sum_j e^{z_j} - z_y$.

    The largest real part is taken out of the sum before the exponentials, as a constant, so that nothing overflows and
    the loss is holomorphic.

    Args:
        logits: $z$, (N, classes).
        labels: $y$, whole numbers (N,), or one-hot (N, classes).

    Returns:
        The mean; NaN where `jax.jit` hides the labels from the check and one is no class.

    Raises:
        ValueError: If the shapes don't fit, or a label is no class.

    Example:
        >>> import jax.numpy as jnp
        >>> import principalflow as pf
        >>> pf.models.cross_entropy(jnp.array([[0.0, 0.0]]), jnp.array([1])).round(3)
        Array(0.693, dtype=float64)
    """
    logits = _outputs("logits", logits)
    if logits.shape[1] < 2:
        raise ValueError(f"logits must have at least two classes, got shape {logits.shape}.")
    labels = _targets("labels", logits, labels)
    shift = lax.stop_gradient(jnp.max(logits.real, axis=1, keepdims=True))
    log_sum = shift[:, 0] + jnp.log(jnp.sum(jnp.exp(logits - shift), axis=1))
    return jnp.mean(log_sum - jnp.sum(labels * logits, axis=1))


def mean_square(outputs: Outputs, targets: Array) -> Inexact[Array, ""]:
    r"""Returns the mean over the samples of $\|f(x) - y\|^2$.

    Args:
        outputs: $f(x)$, (N, outputs).
        targets: $y$ of the same shape, (N,) for a single output, or labels (N,), whole numbers, which become one-hot.

    Returns:
        The mean; at complex outputs the square is the plain one, without a modulus, and so holomorphic. NaN where
        `jax.jit` hides the labels from the check and one is no class.

    Raises:
        ValueError: If the shapes don't fit, or a label is no class.

    Example:
        >>> import jax.numpy as jnp
        >>> import principalflow as pf
        >>> pf.models.mean_square(jnp.array([[1.0, 2.0]]), jnp.array([1]))
        Array(2., dtype=float64)
    """
    outputs = _outputs("outputs", outputs)
    difference = outputs - _targets("targets", outputs, targets)
    return jnp.mean(jnp.sum(difference * difference, axis=1))


LOSSES: dict[str, Callable[[Outputs, Array], Inexact[Array, ""]]] = {
    "cross-entropy": cross_entropy,
    "mean-square": mean_square,
}


def loss(name: str = "cross-entropy") -> Callable[[Any, tuple[Array, Array]], Inexact[Array, ""]]:
    """Returns the loss of a model over a batch `(inputs, targets)`, as `Objective` takes it.

    Args:
        name: "cross-entropy" or "mean-square".

    Returns:
        A function of a model and a batch; the same one for the same name, so that compiled code is shared.

    Raises:
        ValueError: For an unknown name.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import principalflow as pf
        >>> model = pf.models.MLP(2, (4,), 3, key=jax.random.key(0))
        >>> data = (jnp.ones((5, 2)), jnp.zeros(5, int))
        >>> objective = pf.Objective(pf.models.loss("cross-entropy"), model, data)
        >>> objective.theta.size
        27
    """
    _checks.one_of("name", name, tuple(LOSSES))
    return _OF_MODEL[name]


def accuracy(outputs: Outputs, labels: Array) -> Inexact[Array, ""]:
    """Returns the share of samples whose largest output is that of their label (N,) or one-hot label (N, classes)."""
    outputs, labels = _outputs("outputs", outputs), _checks.array_of_numbers("labels", labels)
    for name, array in dict(outputs=outputs, labels=labels).items():
        if jnp.iscomplexobj(array):
            raise ValueError(f"{name} must be real, since complex numbers have no largest, got {array.dtype}.")
    if labels.shape not in (outputs.shape, outputs.shape[:1]):
        raise ValueError(f"labels must have shape {outputs.shape[:1]} or {outputs.shape}, got {labels.shape}.")
    labels = jnp.argmax(labels, axis=1) if labels.ndim == 2 else labels
    return jnp.mean(jnp.argmax(outputs, axis=1) == labels)


def _of_model(function: Callable) -> Callable:
    return lambda model, batch: function(model(batch[0]), batch[1])


_OF_MODEL = {name: _of_model(function) for name, function in LOSSES.items()}


def _outputs(name: str, value: Any) -> Outputs:
    outputs = _checks.inexact(name, value)
    if outputs.ndim != 2 or outputs.size == 0:
        raise ValueError(f"{name} must have a row for each sample, (N, outputs), got shape {outputs.shape}.")
    return outputs


def _targets(name: str, outputs: Outputs, value: Any) -> Array:
    """Returns the targets in the shape of the outputs; whole numbers (N,) become one-hot where there are classes."""
    targets = given = _checks.array_of_numbers(name, value)
    if targets.ndim == 1 and outputs.shape[1] > 1 and jnp.issubdtype(targets.dtype, jnp.integer):
        known = (targets >= 0) & (targets < outputs.shape[1])
        if not isinstance(known, Tracer) and not known.all():
            most, label = outputs.shape[1] - 1, int(targets[jnp.argmin(known)])
            raise ValueError(f"{name} must be classes from 0 to {most}, got {label}.")
        encoded = jax.nn.one_hot(targets, outputs.shape[1], dtype=outputs.real.dtype)
        targets = jnp.where(known[:, None], encoded, jnp.nan)  # a traced label that is no class must show
    elif targets.ndim == 1:
        targets = targets[:, None]
    if targets.shape != outputs.shape:
        raise ValueError(
            f"{name} must be labels ({outputs.shape[0]},) or have the outputs' shape {outputs.shape}, got "
            f"{given.dtype}{given.shape}."
        )
    return targets
