"""Convolution, normalisation and pooling against their definitions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import principalflow as pf
from principalflow.models._layers import pool

RANDOM = np.random.default_rng(0)
IMAGES = jnp.asarray(RANDOM.standard_normal((2, 7, 6, 3)))


def test_convolution_starts_with_outputs_of_variance_one():
    conv = pf.models.Conv(64, 256, 3, jax.random.key(0))
    inside = conv(jnp.asarray(RANDOM.standard_normal((20, 8, 8, 64))))[:, 1:-1, 1:-1]
    assert 0.97 < float(jnp.var(inside)) < 1.03  # 180,000 numbers, of which a kernel's worth are independent


@pytest.mark.parametrize(("channels", "groups"), [(64, 4), (8, 1), (40, 2), (33, 1)])
def test_group_norm_standardizes_each_group_of_each_image(channels, groups):
    norm = pf.models.GroupNorm(channels)
    images = jnp.asarray(3 + 2 * RANDOM.standard_normal((2, 5, 5, channels)))
    grouped = norm(images).reshape(2, 25, groups, -1)
    assert norm.groups == groups
    np.testing.assert_allclose(grouped.mean((1, 3)), 0, atol=1e-12)
    np.testing.assert_allclose(grouped.var((1, 3)), 1, atol=1e-4)  # the floor under the variance


def test_group_norm_takes_each_image_by_itself_and_batch_norm_does_not():
    group, batch = pf.models.GroupNorm(3), pf.models.BatchNorm(3)
    np.testing.assert_allclose(group(IMAGES)[:1], group(IMAGES[:1]), rtol=1e-12)
    assert not np.allclose(batch(IMAGES)[:1], batch(IMAGES[:1]))


def test_batch_norm_standardizes_each_channel_over_the_batch():
    normed = pf.models.BatchNorm(3)(5 * IMAGES + 1)
    np.testing.assert_allclose(normed.mean((0, 1, 2)), 0, atol=1e-12)
    np.testing.assert_allclose(normed.var((0, 1, 2)), 1, atol=1e-4)


@pytest.mark.parametrize("kind", ["average", "max"])
@pytest.mark.parametrize(("size", "stride"), [(2, 2), (3, 2)])
def test_pooling_is_that_of_xla(kind, size, stride):
    window, strides = (1, size, size, 1), (1, stride, stride, 1)
    if kind == "max":
        wanted = jax.lax.reduce_window(IMAGES, -jnp.inf, jax.lax.max, window, strides, "VALID")
    else:
        wanted = jax.lax.reduce_window(IMAGES, 0.0, jax.lax.add, window, strides, "VALID") / size**2
    np.testing.assert_allclose(pool(IMAGES, kind, size, stride), wanted, rtol=1e-12)


def test_a_kernel_without_a_middle_is_refused():
    with pytest.raises(ValueError, match="size must be odd"):
        pf.models.Conv(3, 4, 2, jax.random.key(0))
