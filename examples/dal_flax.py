"""DAL in a flax.nnx training loop: handwritten digits, no learning rate to choose.

Run it with `python examples/dal_flax.py`; it needs flax: `pip install flax`.
"""

import jax.numpy as jnp
import optax
from flax import nnx
from sklearn.datasets import load_digits

import principalflow as pf

STEPS = 500


class Network(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.first = nnx.Linear(64, 32, rngs=rngs)
        self.second = nnx.Linear(32, 32, rngs=rngs)
        self.last = nnx.Linear(32, 10, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.elu(self.second(nnx.elu(self.first(x)))))


def loss(model, x, labels):
    return optax.losses.softmax_cross_entropy_with_integer_labels(model(x), labels).mean()


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    x, y = jnp.asarray(images / 16), jnp.asarray(labels)
    model = Network(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, pf.dal(), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        value, gradient = nnx.value_and_grad(loss)(model, x[:1200], y[:1200])
        graph, _, rest = nnx.split(model, nnx.Param, ...)

        def value_fn(params):  # DAL asks for the loss as a function of the parameters alone
            return loss(nnx.merge(graph, params, rest), x[:1200], y[:1200])

        optimizer.update(model, gradient, value_fn=value_fn)
        return value

    for i in range(STEPS + 1):
        value = step(model, optimizer)
        if i % (STEPS // 10) == 0:
            rate = optax.tree.get(nnx.as_pure(optimizer.opt_state), "drift_learning_rate")
            print(f"step {i:4d}  loss {value:8.5f}  rate {rate:.4f}")
    right = jnp.mean(jnp.argmax(model(x[1200:]), axis=1) == y[1200:])
    print(f"DAL is right about {right:.1%} of the 597 digits that it has not seen.")


if __name__ == "__main__":
    main()
