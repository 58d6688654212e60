"""All ways to convolve, and to differentiate a convolution, are the same to rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from principalflow.models._convolution import by_patches, by_xla, convolve, weight_by_rows_and_columns

RANDOM = np.random.default_rng(0)
# Images of few pixels, of some and of many; kernels and strides of the paper's networks.
SHAPES = [
    (side, size, stride)
    for side in ((2, 2), (7, 6), (12, 12))
    for size in (1, 3, 7)
    for stride in (1, 2)
    if size <= side[0]
]


def problem(side, size, dtype=jnp.float64):
    x = RANDOM.standard_normal((2, *side, 3))
    return jnp.asarray(x, dtype), jnp.asarray(RANDOM.standard_normal((size, size, 3, 4)), dtype)


@pytest.mark.parametrize(("side", "size", "stride"), SHAPES)
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32, jnp.float64])
def test_convolutions_and_their_derivatives_are_those_of_xla(side, size, stride, dtype):
    x, weight = problem(side, size, dtype)
    ours, pullback = jax.vjp(lambda x, w: convolve(x, w, stride), x, weight)
    wanted, other = jax.vjp(lambda x, w: by_xla(x, w, stride), x, weight)
    y = jnp.asarray(RANDOM.standard_normal(wanted.shape), dtype)
    for found, true in zip((ours, *pullback(y)), (wanted, *other(y)), strict=True):
        assert found.dtype == dtype
        # The sums have at most 288 terms of size 1.
        atol = 1000 * float(jnp.finfo(dtype).eps) if dtype != jnp.bfloat16 else 0.05 * float(jnp.max(jnp.abs(true)))
        np.testing.assert_allclose(found.astype(float), true.astype(float), rtol=0, atol=atol)


@pytest.mark.parametrize(("side", "size", "stride"), SHAPES)
def test_patches_make_the_same_as_xla(side, size, stride):
    x, weight = problem(side, size)
    np.testing.assert_allclose(by_patches(x, weight, stride), by_xla(x, weight, stride), rtol=0, atol=1e-12 * size**2)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_rows_against_columns_are_the_derivative_by_the_weight(size):
    x, weight = problem((7, 6), size)
    y = jnp.asarray(RANDOM.standard_normal((2, 7, 6, 4)))
    (wanted,) = jax.linear_transpose(lambda w: by_xla(x, w, 1), weight)(y)
    np.testing.assert_allclose(weight_by_rows_and_columns(x, y, size), wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("stride", [1, 2])
def test_derivatives_of_all_orders_and_modes_are_there(stride):
    x, weight = problem((3, 3), 3)
    check_grads(lambda x, w: jnp.sin(convolve(x, w, stride)), (0.1 * x, 0.1 * weight), order=3)


def test_a_second_derivative_by_one_operand_alone_is_zero():
    x, weight = problem((3, 3), 3)
    along = jnp.ones_like(weight)
    slope = lambda w: jax.jvp(lambda w: convolve(x, w, 1), (w,), (along,))[1]  # noqa: E731
    np.testing.assert_array_equal(jax.jvp(slope, (weight,), (along,))[1], 0)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (1, 2)])
def test_many_at_once_are_each_by_itself(axes):
    pairs = zip(problem((4, 4), 3), axes, strict=True)
    operands = [jnp.stack([v * (i + 1) for i in range(3)], axis or 0) for v, axis in pairs]
    operands = [o if axis is not None else o[0] for o, axis in zip(operands, axes, strict=True)]
    both = jax.vmap(lambda x, w: convolve(x, w, 1), axes)(*operands)
    one = [o if axis is None else jnp.take(o, 1, axis) for o, axis in zip(operands, axes, strict=True)]
    np.testing.assert_allclose(both[1], convolve(*one, 1), rtol=1e-12, atol=1e-12)


def test_convolution_is_complex_linear():
    x, weight = problem((7, 6), 3)
    twisted = convolve(x * 1j, weight * (1 + 1j), 1)
    np.testing.assert_allclose(twisted, convolve(x, weight, 1) * (1j - 1), rtol=1e-12, atol=1e-12)


def test_numbers_of_two_precisions_make_the_better_one():
    x, weight = problem((4, 4), 3)
    assert convolve(x.astype(jnp.float32), weight, 1).dtype == jnp.float64
