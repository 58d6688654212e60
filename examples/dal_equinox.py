"""DAL in an equinox training loop: handwritten digits, no learning rate to choose.

Run it with `python examples/dal_equinox.py`.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from sklearn.datasets import load_digits

import principalflow as pf

STEPS = 500


def loss(model, x, labels):
    return optax.losses.softmax_cross_entropy_with_integer_labels(jax.vmap(model)(x), labels).mean()


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    x, y = jnp.asarray(images / 16), jnp.asarray(labels)
    model = eqx.nn.MLP(64, 10, width_size=32, depth=2, activation=jax.nn.elu, key=jax.random.key(0))
    tx = pf.dal()
    state = tx.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit
    def step(model, state):
        params, static = eqx.partition(model, eqx.is_inexact_array)

        def value_fn(params):  # DAL asks for the loss as a function of the arrays alone
            return loss(eqx.combine(params, static), x[:1200], y[:1200])

        value, gradient = jax.value_and_grad(value_fn)(params)
        updates, state = tx.update(gradient, state, params, value_fn=value_fn)
        return eqx.apply_updates(model, updates), state, value

    for i in range(STEPS + 1):
        model, state, value = step(model, state)
        if i % (STEPS // 10) == 0:
            print(f"step {i:4d}  loss {value:8.5f}  rate {optax.tree.get(state, 'drift_learning_rate'):.4f}")
    right = jnp.mean(jnp.argmax(jax.vmap(model)(x[1200:]), axis=1) == y[1200:])
    print(f"DAL is right about {right:.1%} of the 597 digits that it has not seen.")


if __name__ == "__main__":
    main()
