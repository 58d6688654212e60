"""Problems that the tests share, and what they count."""

import logging
from contextlib import contextmanager
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax

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


DAL_OPTIONS = [
    dict(),
    dict(power=0.5),
    dict(power=0.0, factor=0.3),
    dict(power=2.0, factor=0.7, max_learning_rate=0.4),
    dict(momentum=0.9),
    dict(curvature="finite_difference"),
    dict(every=3),
    dict(every=3, curvature="finite_difference", average=0.5),
    dict(average=0.9),
    dict(per_parameter=True),
    dict(per_parameter=True, power=0.5, momentum=0.5, every=2),
    dict(weight_decay=0.1),
    dict(skip_nonfinite=True),
]
CDAT_OPTIONS = [
    dict(),
    dict(base=optax.sgd(1.0), average=None, max_learning_rate=5.0),
    dict(base=optax.adamw(1.0, weight_decay=0.1), measure="drift"),
    dict(base=optax.sgd(1.0, momentum=0.9), curvature="finite_difference"),
    dict(every=3),
    dict(base=optax.rmsprop(1.0), every=3, curvature="finite_difference", average=0.5, measure="drift"),
    dict(power=0.5, scale=0.3),
    dict(skip_nonfinite=True),
]


def bowl(dtype=np.float64, seed=0, size=5):
    """A quadratic: its Hessian, its loss, and a point in a tree of two leaves."""
    random = np.random.default_rng(seed)
    A = random.standard_normal((size, size))
    A = (A + A.T).astype(dtype)
    point = {
        "a": jnp.asarray(random.standard_normal((2, 1)), dtype),
        "b": jnp.asarray(random.standard_normal(3), dtype),
    }

    def loss(params):
        x = flat(params)
        return x @ A @ x / 2

    return A, loss, point


def flat(tree):
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])


def run(tx, loss, params, steps, **extra):
    """The parameters and the state after every step of an optimiser that measures curvature."""
    state, path = tx.init(params), []
    for _ in range(steps):
        updates, state = tx.update(jax.grad(loss)(params), state, params, value_fn=loss, **extra)
        params = optax.apply_updates(params, updates)
        path.append((params, state))
    return path


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
    *("beta1", "beta2", "eps", "weight_decay"),
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
