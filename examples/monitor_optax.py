"""A monitor in an optax training loop: handwritten digits, full batch, to the edge of stability.

Run it with `python examples/monitor_optax.py`; it prints what changes as it happens, and a summary with a figure.
"""

import argparse
from itertools import pairwise
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

import principalflow as pf


def network(sizes):
    random = np.random.default_rng(0)
    return [(jnp.asarray(0.6 * random.standard_normal((a, b)) / np.sqrt(a)), jnp.zeros(b)) for a, b in pairwise(sizes)]


def loss(params, batch):
    x, targets = batch
    for weights, bias in params[:-1]:
        x = jnp.tanh(x @ weights + bias)
    weights, bias = params[-1]
    return jnp.mean(jnp.sum((x @ weights + bias - targets) ** 2, axis=1)) / 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results"), help="the folder for the figure")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--rate", type=float, default=0.15, help="the learning rate h")
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument("--budget", type=float, help="the most time to measure, as a share of the loop's own")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    images, labels = load_digits(return_X_y=True)
    data = (jnp.asarray(images[:600] / 16), jnp.asarray(np.eye(10)[labels[:600]]))
    params = network([64, 32, 32, 10])
    tx = optax.sgd(options.rate, momentum=options.momentum or None)
    state = tx.init(params)

    @jax.jit
    def take_step(params, state):
        value, gradient = jax.value_and_grad(loss)(params, data)
        updates, state = tx.update(gradient, state)
        return optax.apply_updates(params, updates), state, dict(updates=updates, gradient=gradient, loss=value)

    objective = pf.Objective(loss, params, data)
    with pf.Monitor(objective, optimizer=tx, every=10, budget=options.budget) as monitor:
        monitor.observe(0, params, state=state)
        for step in range(1, options.steps + 1):
            params, state, taken = take_step(params, state)
            row = monitor.observe(step, params, state=state, **taken)
            for event in row["events"] if row else []:
                print(f"step {step:4d}  {event}")
    print(f"\n{monitor.summary()}")

    figure = options.out / "monitor_optax.png"
    pf.plot.monitor(monitor.table()).savefig(figure, dpi=110)
    print(f"\nThe figure is in {figure}.")


if __name__ == "__main__":
    main()
