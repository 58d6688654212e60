"""Sizes, widths, keys, dtypes and batches of networks, checked before anything is allocated."""

import math
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Inexact, PRNGKeyArray

from principalflow import _checks

_WIDEST = 10**6
_LARGEST_GAIN = 1e30  # above, weights overflow in float32


def size(name: str, value: Any) -> int:
    """Returns a number of units, channels or pixels."""
    return _checks.whole(name, value, least=1)


def sizes(name: str, values: Any) -> tuple[int, ...]:
    """Returns several of them."""
    try:
        if isinstance(values, (str, bytes)):
            raise TypeError
        values = tuple(values)
    except TypeError as error:  # also from an array of no dimension, which has the methods of a sequence
        raise ValueError(f"{name} must be a sequence of whole numbers, got {_checks.shown(values)}.") from error
    return tuple(size(name, value) for value in values)


def widened(width: float, *counts: int) -> list[int]:
    """Returns the numbers of units or channels times the width multiplier, at least 1 each."""
    width = _checks.positive("width", width)
    if width > _WIDEST:
        raise ValueError(f"width must be at most {_WIDEST}, got {width:g}.")
    return [max(round(width * count), 1) for count in counts]


def images(input_shape: Any) -> tuple[int, int, int]:
    """Returns (height, width, channels), or raises a ValueError that explains what is needed."""
    shape = sizes("input_shape", input_shape)
    if len(shape) != 3:
        raise ValueError(
            f"input_shape must be (height, width, channels) for a convolutional network, got {shape}. "
            "Tables of features need an MLP."
        )
    return shape


def check_start(key: PRNGKeyArray, gain: float, dtype: Any) -> None:
    """Raises a ValueError for what no weights can be drawn with."""
    typed = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ()
    if not (typed or (isinstance(key, jax.Array) and key.dtype == jnp.uint32 and key.ndim == 1)):
        raise ValueError(f"key must be a key such as jax.random.key(0), got {_checks.shown(key)}.")
    if not 1 / _LARGEST_GAIN <= _checks.positive("gain", gain) <= _LARGEST_GAIN:
        raise ValueError(f"gain must be between {1 / _LARGEST_GAIN:g} and {_LARGEST_GAIN:g}, got {float(gain):g}.")
    _itemsize(dtype)


def check_parameters(options: dict[str, Any], shapes: Iterable[tuple[int, ...]], dtype: Any) -> None:
    """Raises a ValueError, which names the options, for arrays of weights that memory can't hold."""
    count = sum(map(math.prod, shapes))
    given = ", ".join(f"{name}={_checks.shown(value)}" for name, value in options.items())
    _checks.fits(given, count * _itemsize(dtype), f"a network of {count:,} parameters or more")


def rows(x: Any, inputs: int) -> Inexact[Array, "... inputs"]:
    """Returns a batch, if its rows are of so many numbers."""
    x = _batch(x)
    if x.ndim == 0 or x.shape[-1] != inputs:
        raise ValueError(f"x must be a batch of rows of {inputs} numbers each, got shape {x.shape}.")
    return x


def vectors(x: Any, inputs: int) -> Inexact[Array, "N inputs"]:
    """Returns a batch with the samples flattened, if they are of so many numbers."""
    x = _batch(x)
    if x.ndim == 0 or x.size == 0 or math.prod(x.shape[1:]) != inputs:
        raise ValueError(f"x must be a batch of samples of {inputs} numbers each, got shape {x.shape}.")
    return x.reshape(len(x), -1)


def channelled(x: Any, channels: int) -> Inexact[Array, "N H W channels"]:
    """Returns a batch of images, if they have so many channels."""
    x = _batch(x)
    if x.ndim != 4 or x.size == 0 or x.shape[3] != channels:
        raise ValueError(f"x must be images of shape (N, height, width, {channels}), got shape {x.shape}.")
    return x


def _batch(x: Any) -> Array:
    x = _checks.array_of_numbers("x", x)
    return _checks.inexact("x", x) if jnp.issubdtype(x.dtype, jnp.inexact) else x


def _itemsize(dtype: Any) -> int:
    """The bytes of a parameter; None is for JAX's default."""
    try:
        if isinstance(dtype, (jax.Array, np.ndarray, np.generic)):
            raise TypeError("an array has a dtype but is none")
        known = jnp.dtype(float if dtype is None else dtype)
    except Exception as error:  # of many kinds, even a SyntaxError for some strings
        raise ValueError(f"dtype must be a dtype such as jnp.float32, got {_checks.shown(dtype)}.") from error
    if not jnp.issubdtype(known, jnp.inexact):
        raise ValueError(f"dtype must be that of real or complex numbers, got {known}.")
    return known.itemsize
