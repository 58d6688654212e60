"""Made-up runs that spike for a known reason, or don't, as the rows that a monitor has of them."""

from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

from principalflow.monitor import Taken
from principalflow.optimizers import Filter, Part

EVERY = 10  # how often the curvature is measured
CURVATURE = ("eigenvalue_0", "threshold", "edge", "stable_rate", "loss", "learning_rate")


class Run(NamedTuple):
    """A loop: at each step a batch, the first axis of all leaves of `batches`, and a rate."""

    loss: Callable[[Any, Any], Any]  # of flat parameters and a batch
    theta: Any
    batches: Any
    data: Any  # for the curvature
    rates: Any
    optimizer: str = "descent"
    b2: float = 0.999


class Kind(NamedTuple):
    """Runs of one cause, by seed; the cause is empty for runs without a spike."""

    cause: str
    build: Callable[[int], Run]


@cache
def rows(kind: str, seed: int) -> list[dict]:
    """The rows of a monitor that is given the steps, and measures the curvature now and then."""
    return rows_of(KINDS[kind].build(seed))


def without(columns: tuple[str, ...], table: list[dict]) -> list[dict]:
    """The rows without some columns, and no rows that are then empty."""
    kept = [{name: value for name, value in row.items() if name not in columns} for row in table]
    return [row for row in kept if len(row) > 1]


def rows_of(run: Run) -> list[dict]:
    taken, losses, sharpness = jax.tree.map(np.asarray, _trained(run.loss, run.optimizer, run.b2, *run[1:5]))
    table, momentum = [], _OPTIMIZERS[run.optimizer].filter
    for i, (*numbers, surprise) in enumerate(zip(*taken, strict=True)):
        row = {"step": i + 1, **Taken(*map(float, numbers), surprise=float(surprise), eps=2.2e-16).row()}
        if i % EVERY == 0:
            h = float(run.rates[min(i + 1, len(run.rates) - 1)])
            row |= {"learning_rate": h, "loss": float(losses[i])}
            if np.isfinite(sharpness[i]):
                part, curvature = Part(learning_rate=h, filter=momentum), float(sharpness[i])
                row |= dict(eigenvalue_0=curvature, threshold=part.threshold, edge=curvature / part.threshold)
                row["stable_rate"] = part.stable_rate(curvature)
        table.append(row)
    return table


class Optimizer(NamedTuple):
    transform: Callable[[float], optax.GradientTransformation]  # by b2
    filter: Filter
    b1: float | None = None  # where the steps are over the root of an average of squares


_OPTIMIZERS = {
    "descent": Optimizer(lambda b2: optax.identity(), Filter()),
    "heavy ball": Optimizer(lambda b2: optax.trace(0.9), Filter.heavy_ball(0.9)),
    "rmsprop": Optimizer(lambda b2: optax.scale_by_rms(b2, eps=1e-8, bias_correction=True), Filter(), 0.0),
    "adam": Optimizer(lambda b2: optax.scale_by_adam(0.9, b2), Filter.average(0.9), 0.9),
}


@partial(jax.jit, static_argnums=(0, 1, 2))
def _trained(loss, optimizer, b2, theta, batches, data, rates):
    """Returns the numbers of each step, the loss on all data after it, and now and then the largest eigenvalue."""
    tx, b1 = _OPTIMIZERS[optimizer].transform(b2), _OPTIMIZERS[optimizer].b1

    def step(carry, inputs):
        (theta, state, u), (batch, rate, i) = carry, inputs
        value, g = jax.value_and_grad(loss)(theta, batch)
        direction, state = tx.update(g, state, theta)
        update = -rate * direction
        new, scale, surprise = theta + update, jnp.ones_like(theta), jnp.nan
        if b1 is not None:
            root = jnp.sqrt(state.nu / (1 - b2 ** (i + 1)))
            there = root > 0
            surprise = jnp.sum(jnp.where(there, g**2 / jnp.where(there, root, 1), 0)) / jnp.sum(root)
            scale = (1 - b1 ** (i + 1)) * (root + 1e-8)
        u, sharpness = jax.lax.cond(i % EVERY == 0, lambda: top(new, scale, u), lambda: (u, jnp.nan))
        taken = (value, loss(new, batch), update @ g, jnp.linalg.norm(g), jnp.linalg.norm(update), surprise)
        return (new, state, u), (taken, loss(new, data), sharpness)

    def top(theta, scale, u):
        """Thirty steps of the power method on P^-1/2 H P^-1/2, from where it was."""

        def product(_, found):
            along = found[0] / jnp.sqrt(scale)
            w = jax.jvp(lambda p: jax.grad(loss)(p, data), (theta,), (along,))[1] / jnp.sqrt(scale)
            return w / jnp.linalg.norm(w), found[0] @ w

        return jax.lax.fori_loop(0, 30, product, (u, 0.0))

    u = jax.random.normal(jax.random.key(0), theta.shape, theta.dtype)
    start = theta, tx.init(theta), u / jnp.linalg.norm(u)
    return jax.lax.scan(step, start, (batches, rates, jnp.arange(len(rates))))[1]


def outputs(theta, sizes, x):
    """A tanh network with flat parameters."""
    at = 0
    for a, b in pairwise(sizes):
        weights, bias = theta[at : at + a * b].reshape(a, b), theta[at + a * b : at + a * b + b]
        x, at = (jnp.tanh(x) if at else x) @ weights + bias, at + a * b + b
    return x


def started(sizes, random):
    """Its weights, normal over the root of the width, and biases of 0."""
    parts = [(random.standard_normal(a * b) / np.sqrt(a), np.zeros(b)) for a, b in pairwise(sizes)]
    return np.concatenate([part for pair in parts for part in pair])


SMALL, DIGITS = (6, 12, 1), (64, 16, 10)


def small_loss(theta, batch):
    x, y = batch
    return jnp.mean((outputs(theta, SMALL, x)[:, 0] - y) ** 2) / 2


def digits_loss(theta, batch):
    x, y = batch
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(outputs(theta, DIGITS, x)) * y, axis=1))


def square_loss(theta, batch):
    x, y = batch
    return jnp.mean(jnp.sum((outputs(theta, DIGITS, x) - y) ** 2, axis=1)) / 2


def linear_loss(theta, batch):
    x, y = batch
    return jnp.mean((x @ theta - y) ** 2) / 2


def bowl_loss(theta, curvatures):
    """Quadratic at the bottom, with a bounded slope further out: what is beyond the edge grows, and then stays."""
    return jnp.sum(curvatures * jnp.log(jnp.cosh(theta)))


def quartic_loss(theta, curvatures):
    return jnp.sum(curvatures * theta**2) / 2 + jnp.sum(theta**4) / 40


def toy_loss(theta, _):
    """x^2 y/2 - 0.003 y: the curvature is y, which grows by 0.003 h a step until x oscillates."""
    x, y = theta
    return y * x**2 / 2 - 0.003 * y


def glitch_loss(theta, batch):
    """Linear regression in which a step's gradient may be another one than the loss's."""
    x, y, glitch = batch
    extra = jnp.sum(theta * glitch)
    return linear_loss(theta, (x, y)) + extra - jax.lax.stop_gradient(extra)


def _drawn(random, data, steps, batch):
    """Returns a batch for each step, or all data where `batch` is None, and the data."""
    everything = np.arange(len(data[0]))
    index = np.stack([everything if batch is None else random.permutation(everything)[:batch] for _ in range(steps)])
    return tuple(part[index] for part in data), data


def small(seed, steps, batch=16):
    """Regression on a network like its own, with noise."""
    random = np.random.default_rng(seed)
    x, teacher = random.standard_normal((256, 6)), 1.5 * started(SMALL, random)
    y = np.asarray(outputs(teacher, SMALL, x))[:, 0] + 0.1 * random.standard_normal(256)
    return small_loss, started(SMALL, random), *_drawn(random, (x, y), steps, batch)


def digits(seed, steps, batch=32, samples=500, loss=digits_loss):
    random = np.random.default_rng(seed)
    images, labels = load_digits(return_X_y=True)
    chosen = random.permutation(len(images))[:samples]
    data = images[chosen] / 16, np.eye(10)[labels[chosen]]
    return loss, started(DIGITS, random), *_drawn(random, data, steps, batch)


def linear(seed, steps, batch=16, features=8):
    random = np.random.default_rng(seed)
    w, x = random.standard_normal(features), random.standard_normal((steps + 25, batch, features))
    y = x @ w + 0.3 * random.standard_normal(x.shape[:2])
    return linear_loss, np.zeros(features), (x[:steps], y[:steps]), (x[steps:].reshape(-1, features), y[steps:].ravel())


def bowl(seed, steps, loss=bowl_loss, scale=0.1):
    curvatures = np.geomspace(1.0, 0.01, 20)  # stable below a rate of 2
    theta = scale * np.random.default_rng(seed).standard_normal(20)
    return loss, theta, np.tile(curvatures, (steps, 1)), curvatures


def waking(seed, steps, *, rate, size, share=1.0, optimizer="adam", b2=0.999):
    """Linear regression whose first three features are absent for 300 steps, then in a share of the batches.

    The targets don't depend on them, so that the loss stays what it is unless the optimiser makes too much of them.
    """
    random = np.random.default_rng(seed)
    w, x = random.standard_normal(10) * (np.arange(10) > 2), random.standard_normal((steps, 32, 10))
    awake = (np.arange(steps) >= 300) & (random.random(steps) < share)
    x[:, :, :3] *= size * awake[:, None, None]
    y = x @ w + 0.3 * random.standard_normal((steps, 32))
    theta = w + 0.05 * random.standard_normal(10) * (np.arange(10) > 2)
    data = x[awake].reshape(-1, 10)[:320], y[awake].ravel()[:320]
    return Run(linear_loss, theta, (x, y), data, np.full(steps, rate), optimizer, b2)


def poisoned(problem, seed, rate, optimizer, part, spoil):
    """A stable run with one batch whose inputs (part 0) or targets (1) are spoilt."""
    loss, theta, batches, data = problem
    steps, batches = len(batches[0]), [np.array(leaf) for leaf in batches]
    batches[part][_draw(seed).integers(120, 220)] = spoil(batches[part][_draw(seed).integers(120, 220)])
    return Run(loss, theta, tuple(batches), data, np.full(steps, rate), optimizer)


def _draw(seed):
    return np.random.default_rng(1000 + seed)


def _steady(problem, rate, optimizer="descent"):
    return Run(*problem, np.full(jax.tree.leaves(problem[2])[0].shape[0], rate), optimizer)


def _jumping(problem, seed, rate, factors, optimizer="descent", between=(100, 180)):
    steps, random = jax.tree.leaves(problem[2])[0].shape[0], _draw(seed)
    late = np.arange(steps) >= random.integers(*between)
    return Run(*problem, rate * np.where(late, random.uniform(*factors), 1.0), optimizer)


def _sharpness(loss, theta, _, data):
    return float(jnp.linalg.eigvalsh(jax.hessian(loss)(jnp.asarray(theta), data))[-1])


def _beyond(problem, factor):
    return _steady(problem, factor * 2 / _sharpness(*problem))


def _scaled(problem, by):
    return problem[0], by * problem[1], *problem[2:]


def _toy(seed):
    random, steps = _draw(seed), 900
    h = random.uniform(0.8, 1.2)
    theta = np.array([random.uniform(1e-4, 1e-3), 2 / h * random.uniform(0.7, 0.9)])
    return Run(toy_loss, theta, np.zeros((steps, 1)), np.zeros(1), np.full(steps, h))


def _glitch(seed):
    _, theta, (x, y), data = linear(seed, 250)
    glitch, random = np.zeros((250, 8)), _draw(seed)
    glitch[random.integers(120, 220)] = 100 * random.standard_normal(8)
    return _steady((glitch_loss, theta, (x, y, glitch), (*data, np.zeros(8))), 0.05)


def _full(seed):
    return digits(seed, 600, batch=None, samples=200, loss=square_loss)


def _warm_up(seed):
    loss, steps = digits(seed, 400), np.arange(400)
    return Run(*loss, 0.01 * np.minimum(steps / 100, (1 + np.cos(np.pi * steps / 400)) / 2), "adam")


KINDS = {
    "rate: descent on a bowl": Kind("rate", lambda s: _steady(bowl(s, 60), _draw(s).uniform(2.4, 6))),
    "rate: descent on a quartic": Kind(
        "rate", lambda s: _steady(bowl(s, 60, quartic_loss, 1.0), _draw(s).uniform(2.2, 4))
    ),
    "rate: heavy ball on a bowl": Kind("rate", lambda s: _steady(bowl(s, 80), _draw(s).uniform(4.6, 11), "heavy ball")),
    "rate: sgd": Kind("rate", lambda s: _beyond(small(s, 100), _draw(s).uniform(1.5, 4))),
    "rate: descent on digits": Kind("rate", lambda s: _steady(_full(s), _draw(s).uniform(0.3, 0.5))),
    "rate: adam": Kind("rate", lambda s: _steady(small(s, 100), _draw(s).uniform(1, 3), "adam")),
    "rate: adam on digits": Kind("rate", lambda s: _steady(digits(s, 60), _draw(s).uniform(2, 6), "adam")),
    "rate: a jump, sgd": Kind("rate", lambda s: _jumping(small(s, 220), s, 0.05, (40, 60))),
    "rate: a jump, adam on digits": Kind("rate", lambda s: _jumping(digits(s, 220), s, 0.01, (30, 60), "adam")),
    "rate: a jump, descent on a bowl": Kind(
        "rate", lambda s: _jumping(bowl(s, 200, scale=1.0), s, 0.5, (5, 8), between=(20, 60))
    ),
    "rate: a warm-up, sgd": Kind(
        "rate", lambda s: Run(*small(s, 300, 64), np.linspace(0.01, _draw(s).uniform(3, 6), 300))
    ),
    "batch: targets, sgd": Kind("batch", lambda s: poisoned(small(s, 250), s, 0.05, "descent", 1, lambda y: 10 * y)),
    "batch: targets, adam": Kind("batch", lambda s: poisoned(small(s, 250), s, 0.01, "adam", 1, lambda y: 20 * y)),
    "batch: inputs, sgd": Kind("batch", lambda s: poisoned(linear(s, 250), s, 0.05, "descent", 0, lambda x: 10 * x)),
    "batch: inputs, heavy ball": Kind(
        "batch", lambda s: poisoned(linear(s, 250), s, 0.005, "heavy ball", 0, lambda x: 8 * x)
    ),
    "batch: inputs, adam": Kind("batch", lambda s: poisoned(linear(s, 250), s, 0.01, "adam", 0, lambda x: 10 * x)),
    "batch: labels, sgd on digits": Kind(
        "batch", lambda s: poisoned(digits(s, 250), s, 0.1, "descent", 1, lambda y: np.roll(y, 3, axis=-1))
    ),
    "batch: labels, adam on digits": Kind(
        "batch", lambda s: poisoned(digits(s, 250), s, 0.005, "adam", 1, lambda y: np.roll(y, 3, axis=-1))
    ),
    "stale: features that wake up, adam": Kind("stale", lambda s: waking(s, 360, rate=0.03, size=10.0)),
    "stale: rare features, adam": Kind("stale", lambda s: waking(s, 450, rate=0.02, size=3.0, share=0.1)),
    "stale: features that wake up, rmsprop": Kind(
        "stale", lambda s: waking(s, 360, rate=0.003, size=10.0, optimizer="rmsprop")
    ),
    "sharpening: descent on digits": Kind(
        "sharpening", lambda s: _steady(_scaled(_full(s), 0.4), _draw(s).uniform(0.2, 0.22))
    ),
    "sharpening: heavy ball on digits": Kind(
        "sharpening", lambda s: _steady(_scaled(_full(s), 0.5), _draw(s).uniform(0.3, 0.4), "heavy ball")
    ),
    "sharpening: two parameters": Kind("sharpening", _toy),
    "burst: a wrong gradient, sgd": Kind("burst", _glitch),
    "quiet: sgd": Kind("", lambda s: _steady(small(s, 500), 0.05)),
    "quiet: sgd, batches of 4": Kind("", lambda s: _steady(small(s, 500, 4), 0.1)),
    "quiet: adam": Kind("", lambda s: _steady(small(s, 500), 0.01, "adam")),
    "quiet: heavy ball": Kind("", lambda s: _steady(small(s, 500), 0.02, "heavy ball")),
    "quiet: sgd on digits": Kind("", lambda s: _steady(digits(s, 500), 0.1)),
    "quiet: adam on digits": Kind("", lambda s: _steady(digits(s, 500), 0.003, "adam")),
    "quiet: adam on digits, with a warm-up": Kind("", _warm_up),
    "quiet: full batches": Kind("", lambda s: _steady(small(s, 500, None), 0.1)),
}
