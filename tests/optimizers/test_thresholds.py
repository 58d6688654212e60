"""Every optax optimiser that is known decays 1% below the threshold that is stated, and grows 1% above it."""

import jax
import jax.numpy as jnp
import optax
import pytest
from optimizers.quadratics import CURVATURE, LONG_AGO, SIZES, SLOW, SQUARES, STEPS, decays_below_and_grows_above

from principalflow.optimizers import edge

PARAMS = {name: jnp.zeros(shape) for name, shape in SIZES.items()}
FLAT, UNRAVEL = jax.flatten_util.ravel_pytree(PARAMS)
LABELS = {"a": "first", "b": "second"}
ONLY_B = {"a": False, "b": True}


def l2(weight, tx, mask=None):
    return optax.chain(optax.add_decayed_weights(weight, mask), tx)


OPTIMIZERS = {
    "sgd": optax.sgd(0.1),
    "sgd with a schedule": optax.sgd(optax.linear_schedule(1.0, 0.1, 10)),
    "sgd, L2": l2(2.0, optax.sgd(0.1)),
    "sgd, L2 on some": l2(2.0, optax.sgd(0.1), ONLY_B),
    "momentum": optax.sgd(0.1, momentum=0.9),
    "momentum, L2": l2(2.0, optax.sgd(0.1, momentum=0.9)),
    "momentum, decoupled": optax.chain(optax.trace(0.9), optax.add_decayed_weights(2.0), optax.scale(-0.1)),
    "nesterov": optax.sgd(0.1, momentum=0.9, nesterov=True),
    "nesterov, L2": l2(2.0, optax.sgd(0.1, momentum=0.6, nesterov=True)),
    "rmsprop": optax.rmsprop(0.1, decay=SLOW),
    "rmsprop, eps": optax.rmsprop(0.1, decay=SLOW, eps=0.1, eps_in_sqrt=False),
    "rmsprop, centred": optax.rmsprop(0.1, decay=SLOW, centered=True),
    "rmsprop, corrected": optax.rmsprop(0.1, decay=SLOW, bias_correction=True),
    "rmsprop, momentum": optax.rmsprop(0.1, decay=SLOW, momentum=0.9),
    "rmsprop, nesterov": optax.rmsprop(0.1, decay=SLOW, momentum=0.9, nesterov=True),
    "rmsprop, L2": l2(2.0, optax.rmsprop(0.1, decay=SLOW, momentum=0.5)),
    "rmsprop, decay before momentum": optax.chain(
        optax.scale_by_rms(decay=SLOW), optax.add_decayed_weights(2.0), optax.trace(0.9), optax.scale(-0.1)
    ),
    "adam": optax.adam(0.1, b2=SLOW),
    "adam, eps": optax.adam(0.1, b1=0.5, b2=SLOW, eps=0.3, eps_root=0.2),
    "adam, L2": l2(2.0, optax.adam(0.1, b2=SLOW)),
    "adamw": optax.adamw(0.1, b2=SLOW, weight_decay=2.0),
    "adamw on some": optax.adamw(0.1, b2=SLOW, weight_decay=2.0, mask=ONLY_B),
    "adamw, both decays": l2(2.0, optax.adamw(0.1, b2=SLOW, weight_decay=2.0)),
    "nadam": optax.nadam(0.1, b2=SLOW),
    "nadamw": optax.nadamw(0.1, b2=SLOW, weight_decay=2.0),
    "amsgrad": optax.amsgrad(0.1, b2=SLOW),
    "clipped": optax.chain(optax.clip_by_global_norm(1e9), optax.adam(0.1, b2=SLOW)),
    "injected": optax.inject_hyperparams(optax.adamw)(learning_rate=0.1, b2=SLOW, weight_decay=2.0),
    "named": optax.named_chain(("adam", optax.scale_by_adam(b2=SLOW)), ("rate", optax.scale_by_learning_rate(0.1))),
    "if finite": optax.apply_if_finite(optax.adam(0.1, b2=SLOW), 3),
    "two rates": optax.partition({"first": optax.sgd(0.1), "second": optax.sgd(0.7)}, LABELS),
    "two momenta": optax.partition(
        {"first": optax.sgd(0.1, 0.9), "second": optax.sgd(0.7, 0.5, nesterov=True)}, LABELS
    ),
    "two optimisers": optax.partition(
        {"first": optax.sgd(0.1, 0.9), "second": optax.adamw(0.7, b2=SLOW, weight_decay=1.0)}, LABELS
    ),
    "the other way": optax.partition(
        {"second": optax.sgd(0.1, 0.9), "first": optax.adamw(0.7, b2=SLOW, weight_decay=1.0)}, LABELS
    ),
    "one part frozen": optax.partition({"first": optax.set_to_zero(), "second": optax.adam(0.1, b2=SLOW)}, LABELS),
    "one part at rate 0": optax.partition({"first": optax.adam(0.1, b2=SLOW), "second": optax.sgd(0.0)}, LABELS),
    "zeroed by a mask": optax.chain(optax.adam(0.1, b2=SLOW), optax.masked(optax.set_to_zero(), ONLY_B)),
}


def long_trained(tx):
    """A state in which averages are where they stay."""

    def aged(path, leaf):
        names = [getattr(key, "name", getattr(key, "key", None)) for key in path]
        if "count" in names:
            return jnp.full_like(leaf, LONG_AGO)
        if "nu" in names or "nu_max" in names:
            return jnp.asarray(SQUARES[:3] if "a" in names else SQUARES[3:]).reshape(leaf.shape)
        return leaf

    return jax.tree_util.tree_map_with_path(aged, tx.init(PARAMS))


def runner(tx, state):
    @jax.jit
    def run(scale, theta):
        def step(carry, _):
            params, state = carry
            theta = jax.flatten_util.ravel_pytree(params)[0]
            updates, state = tx.update(UNRAVEL(scale * CURVATURE @ theta), state, params)
            return (optax.apply_updates(params, updates), state), theta

        return jax.lax.scan(step, (UNRAVEL(theta), state), None, STEPS)[1]

    return run


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_decay_below_the_threshold_and_grow_above_it(name):
    tx = OPTIMIZERS[name]
    state = long_trained(tx)
    found = edge(tx, state, PARAMS)
    assert not found.unknown
    assert decays_below_and_grows_above(found, runner(tx, state))
