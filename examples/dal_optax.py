"""DAL in an optax training loop: handwritten digits, no learning rate to choose.

Run it with `python examples/dal_optax.py`; `--power 0.5` takes larger steps, `--batch 256` trains on batches.
"""

import argparse
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import principalflow as pf


def network(sizes):
    random = np.random.default_rng(0)
    return [(jnp.asarray(random.standard_normal((a, b)) / np.sqrt(a)), jnp.zeros(b)) for a, b in pairwise(sizes)]


def outputs(params, x):
    for weights, bias in params[:-1]:
        x = jax.nn.elu(x @ weights + bias)
    weights, bias = params[-1]
    return x @ weights + bias


def loss(params, x, labels):
    return optax.losses.softmax_cross_entropy_with_integer_labels(outputs(params, x), labels).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--power", type=float, default=1.0, help="p of DAL-p")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=1200, help="samples a step, all 1200 by default")
    options = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    x, y = jnp.asarray(images / 16), jnp.asarray(labels)
    params = network([64, 32, 32, 10])
    tx = pf.dal(power=options.power)
    state = tx.init(params)

    @jax.jit  # gradient and update in one jit: DAL's Hessian product then shares the gradient's work
    def step(params, state, batch):
        def batch_loss(params):
            return loss(params, x[batch], y[batch])

        value, gradient = jax.value_and_grad(batch_loss)(params)
        updates, state = tx.update(gradient, state, params, value_fn=batch_loss)
        return optax.apply_updates(params, updates), state, value

    random = np.random.default_rng(0)
    for i in range(options.steps + 1):
        params, state, value = step(params, state, random.choice(1200, options.batch, replace=False))
        if i % (options.steps // 10 or 1) == 0:
            rate, curvature = optax.tree.get(state, "drift_learning_rate"), optax.tree.get(state, "curvature")
            print(f"step {i:4d}  loss {value:8.5f}  curvature {curvature:7.3f}  rate {rate:.4f}")
    right = jnp.mean(jnp.argmax(outputs(params, x[1200:]), axis=1) == y[1200:])
    print(f"DAL-{options.power:g} is right about {right:.1%} of the 597 digits that it has not seen.")


if __name__ == "__main__":
    main()
