"""To the edge of stability: a network on handwritten digits, and what governs its stability at every step.

Run it with `python examples/edge_of_stability.py`; it writes a figure and the records, and says where.
"""

import argparse
from itertools import pairwise
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)  # before any array is made

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

import principalflow as pf  # noqa: E402


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results"), help="the folder for the figure")
    parser.add_argument("--steps", type=int, default=1500, help="steps of gradient descent")
    parser.add_argument("--rate", type=float, default=0.12, help="the learning rate h")
    parser.add_argument("--every", type=int, default=5, help="record every so many steps")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    h = options.rate

    images, labels = load_digits(return_X_y=True)
    data = (images[:600] / 16, np.eye(10)[labels[:600]])
    objective = pf.Objective(loss, network([64, 32, 32, 10]), data)
    record = pf.Record(every=options.every, k=4, flow=pf.flows.NegativeGradient())
    path = pf.descend(objective, objective.theta, h, options.steps, record=record)
    records = path.records
    print(f"{objective.theta.size} parameters, learning rate {h}: {path.message}.")

    sharpness = h * records["eigenvalue_0"]
    edge = records[sharpness > 2]
    print(
        f"h λ₀ rose from {sharpness.iloc[0]:.2f} to {sharpness.max():.2f}, and was {sharpness.iloc[-1]:.2f} at the end."
    )
    rises = records[records["loss_change"] > 0]
    above = (h * rises["eigenvalue_0"] > 2).sum()
    print(f"The loss rose at {len(rises)} of {len(records)} recorded steps, at {above} of them with λ₀ above 2/h.")
    print(f"Each record took {records['products'].iloc[1:].mean():.1f} Hessian products on average.")
    if edge.empty:
        print("λ₀ never passed 2/h: take more steps, or a larger rate.")
    else:
        print("Above 2/h, the median error of each flow's prediction of g·u₀, relative to its size:")
        for flow in ("ngf", "igr", "pf"):
            error = (edge[f"next_projection_0_{flow}"] - edge["next_projection_0"]).abs()
            print(f"  {flow.upper()}: {(error / edge['next_projection_0'].abs()).median():.1%}")

    figure = pf.plot.stability(records)
    figure.suptitle(f"A 64-32-32-10 network on 600 digits, gradient descent with h = {h}")
    figure.savefig(options.out / "edge_of_stability.png", dpi=110)
    records.to_csv(options.out / "edge_of_stability.csv", index=False)
    print(f"\nThe figure is in {(options.out / 'edge_of_stability.png').resolve()}, the records beside it.")


if __name__ == "__main__":
    main()
