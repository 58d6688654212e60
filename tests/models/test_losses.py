"""Losses against their definitions, at sizes where naive ones overflow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

import principalflow as pf

LOGITS = jnp.asarray(np.random.default_rng(0).standard_normal((6, 4)) * 5)
LABELS = jnp.array([0, 1, 2, 3, 0, 1])


def test_cross_entropy_is_its_definition():
    wanted = np.mean(logsumexp(LOGITS, axis=1) - np.asarray(LOGITS)[np.arange(6), LABELS])
    np.testing.assert_allclose(pf.models.cross_entropy(LOGITS, LABELS), wanted, rtol=1e-14)


@pytest.mark.parametrize("function", [pf.models.cross_entropy, pf.models.mean_square])
def test_labels_and_one_hot_give_the_same(function):
    np.testing.assert_allclose(function(LOGITS, LABELS), function(LOGITS, jnp.eye(4)[LABELS]), rtol=1e-14)


def test_cross_entropy_does_not_overflow():
    huge = jnp.array([[1e4, 0.0], [0.0, -1e4]])
    value, gradient = jax.value_and_grad(pf.models.cross_entropy)(huge, jnp.array([0, 1]))
    np.testing.assert_allclose(value, 5000.0)
    np.testing.assert_allclose(gradient, [[0, 0], [0.5, -0.5]], atol=1e-14)


def test_the_constant_that_is_taken_out_changes_no_second_derivative():
    hessian = jax.hessian(lambda z: pf.models.cross_entropy(z[None], jnp.array([1])))(LOGITS[0])
    p = jax.nn.softmax(LOGITS[0])
    np.testing.assert_allclose(hessian, jnp.diag(p) - jnp.outer(p, p), atol=1e-14)


def test_mean_square_sums_over_outputs():
    np.testing.assert_allclose(pf.models.mean_square(jnp.ones((5, 3)), jnp.zeros((5, 3))), 3.0)


def test_mean_square_takes_a_vector_for_a_single_output():
    np.testing.assert_allclose(pf.models.mean_square(jnp.ones((3, 1)), jnp.array([0, 1, 2])), 2 / 3)


@pytest.mark.parametrize("label", [-1, 4])
@pytest.mark.parametrize("function", [pf.models.cross_entropy, pf.models.mean_square])
def test_a_label_that_is_no_class_is_refused_and_shows_where_it_is_traced(function, label):
    labels = LABELS.at[3].set(label)
    with pytest.raises(ValueError, match=f"must be classes from 0 to 3, got {label}"):
        function(LOGITS, labels)
    assert jnp.isnan(jax.jit(function)(LOGITS, labels))


def test_accuracy_counts_the_largest_output():
    assert float(pf.models.accuracy(jnp.eye(4)[LABELS], LABELS)) == 1
    assert float(pf.models.accuracy(jnp.eye(4)[LABELS], (LABELS + 1) % 4)) == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pf.models.mean_square(LOGITS, jnp.zeros((6, 3))), "outputs' shape"),
        (lambda: pf.models.cross_entropy(LOGITS[:, :1], LABELS), "at least two classes"),
        (lambda: pf.models.accuracy(LOGITS + 0j, LABELS), "outputs must be real"),
        (lambda: pf.models.accuracy(LOGITS, LOGITS + 0j), "labels must be real"),
        (lambda: pf.models.loss("crossentropy"), "Did you mean 'cross-entropy'"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
