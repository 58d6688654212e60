"""Problems that the tests share, and what they count."""

import logging
from contextlib import contextmanager
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

import principalflow as pf


def network(sizes, seed=0):
    """Weights and biases of a fully connected network, from a normal distribution over the square root of the width."""
    random = np.random.default_rng(seed)
    return [
        (jnp.asarray(random.standard_normal((a, b)) / np.sqrt(a)), jnp.asarray(0.1 * random.standard_normal(b)))
        for a, b in pairwise(sizes)
    ]


def outputs(params, inputs, activation=jnp.tanh):
    for weights, bias in params[:-1]:
        inputs = activation(inputs @ weights + bias)
    weights, bias = params[-1]
    return inputs @ weights + bias


def square_loss(params, batch):
    inputs, targets = batch
    difference = outputs(params, inputs) - targets
    return jnp.mean(jnp.sum(difference * difference, axis=1))


def regression(samples=11, sizes=(2, 4, 1), chunk=None, seed=0, loss=square_loss):
    """A small tanh network on random data."""
    random = np.random.default_rng(seed)
    data = (random.standard_normal((samples, sizes[0])), random.standard_normal((samples, sizes[-1])))
    return pf.Objective(loss, network(sizes, seed), data, chunk=chunk)


def random_quadratic(size, h, seed=0):
    """A quadratic whose h*lambda spans (-1, 3), some within 1e-3 of 0 and of 1: A, b and a start."""
    random = np.random.default_rng(seed)
    z = np.concatenate([[-0.99, 2.99, 1e-3, -5e-4, 1 - 1e-3, 1 + 7e-4], random.uniform(-1, 3, size)])[:size]
    basis, _ = np.linalg.qr(random.standard_normal((size, size)))
    A = (basis * z / h) @ basis.T
    return (A + A.T) / 2, random.standard_normal(size), random.standard_normal(size)


def slope(xs, ys):
    """The slope of log y over log x."""
    return np.polyfit(np.log(xs), np.log(ys), 1)[0]


class OwnError(Exception):
    """What a user's own function raises; it must come through as it is."""


@jax.custom_vjp
def without_second_derivative(params):
    """The square of the parameters, with only a first derivative."""
    return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))


without_second_derivative.defvjp(
    lambda params: (without_second_derivative(params), params),
    lambda params, ct: (jax.tree.map(lambda leaf: 2 * ct * leaf, params),),
)

# The options of a training, by what they take; `per_parameter` is the only one that is true or false.
WHOLE_OPTIONS = (
    *("samples", "test_samples", "image_size", "hidden", "warmup", "batch_size", "curvature_every", "steps"),
    *("record_every", "directions", "evaluate_every", "checkpoint_every", "keep_every", "seed", "chunk"),
)
REAL_OPTIONS = (
    *("width", "gain", "learning_rate", "momentum", "power", "factor", "max_learning_rate", "tolerance", "average"),
)
WORD_OPTIONS = (
    *("data", "label", "model", "activation", "normalization", "pooling", "stem", "loss", "optimizer", "schedule"),
    *("curvature", "precision"),
)


@contextmanager
def compilations(of=""):
    """Gives a list of what JAX compiles meanwhile: the messages that hold `of`."""
    messages, handler, logger = [], logging.Handler(), logging.getLogger("jax")
    handler.emit = lambda record: messages.append(record.getMessage())
    found, propagate = [], logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        with jax.log_compiles():
            yield found
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
        found += [message for message in messages if message.startswith("Compiling") and of in message]
