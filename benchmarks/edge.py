"""Flows through the edge of stability: how far they are from descent after hundreds of steps, and what they cost.

    python benchmarks/edge.py             a table
    python benchmarks/edge.py --json      the same for programs

A tanh network of 3,466 parameters on 600 digits, with square loss and h = 0.115, from step 30 on. Distances are between
centres, (1/4, 1/2, 1/4) of three successive iterates, at the end, over the length of descent's path of centres.
"""

import argparse
import json
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

import principalflow as pf

H, SAMPLES = 0.115, 600
SIZES = (64, 32, 32, 10)
# Flows whose state is a centre, and how many steps it is behind that of three iterates from its time on.
BEHIND = {pf.flows.Central: 1.0, pf.flows.Rod: 0.5}
# How far aside descent starts, to see how well its own path is determined.
ASIDE = 1e-9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--rtol", type=float, nargs="+", default=[1e-6, 1e-3])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=30, help="steps of descent before")
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    found = [row for rtol in options.rtol for row in rows(options.seed, rtol, options.start, options.steps)]
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for row in found:
        words = f"{row['flow']:26} rtol {row['rtol']:<8g} {row['distance']:9.4%} {row['gradients_a_step']:6.1f}"
        print(words, row["status"])


def rows(seed: int, rtol: float, begin: int, steps: int) -> list[dict[str, Any]]:
    objective = problem(seed)
    start = pf.descend(objective, objective.theta, H, begin, keep="last").thetas[-1]
    path = pf.descend(objective, start, H, steps + 2).thetas
    centres = (path[:-2] + 2 * path[1:-1] + path[2:]) / 4
    length = jnp.sum(jnp.linalg.norm(jnp.diff(centres, axis=0), axis=1))
    aside = np.random.default_rng(seed).standard_normal(start.size)
    other = pf.descend(objective, start + ASIDE * aside / np.linalg.norm(aside), H, steps + 2).thetas[-3:]
    distance = float(jnp.linalg.norm((other[0] + 2 * other[1] + other[2]) / 4 - centres[-1]) / length)
    found = [dict(flow=f"descent, {ASIDE:g} away", rtol=rtol, distance=distance, gradients_a_step=1.0, status="")]
    for name, flow in flows().items():
        way: Any = dict(rtol=rtol, atol=rtol / 1000, max_steps=100_000)
        behind = next((late for kind, late in BEHIND.items() if isinstance(flow, kind)), 0.0)
        solution = pf.integrate(flow, objective, start, (steps + behind) * H, **way)
        centre = solution.theta
        if not behind:
            three = pf.descend(objective, centre, H, 2).thetas
            centre = (three[0] + 2 * three[1] + three[2]) / 4
        distance = float(jnp.linalg.norm(centre - centres[-1]) / length)
        cost = solution.cost / steps
        found.append(dict(flow=name, rtol=rtol, distance=distance, gradients_a_step=cost, status=solution.status))
    return found


def flows() -> dict[str, pf.flows.Flow]:
    two = {f"two-step, order {n}": pf.flows.TwoStep(H, order=n) for n in range(4)}
    pair = {f"pair {orders}": pf.flows.Pair(H, orders=orders) for orders in ((1, 1), (2, 2))}
    others = {
        "two points": pf.flows.TwoPoint(H),
        "rod, rank 4": pf.flows.Rod(H, rank=4),
        "central, k = 3": pf.flows.Central(H, k=3),
    }
    return {"NGF": pf.flows.NegativeGradient(), **two, **pair, **others}


def problem(seed: int) -> pf.Objective:
    inputs, labels = (np.asarray(array)[:SAMPLES] for array in load_digits(return_X_y=True))
    random = np.random.default_rng(seed)
    params = [(random.standard_normal((a, b)) / np.sqrt(a), np.zeros(b)) for a, b in pairwise(SIZES)]

    def loss(params: Any, batch: Any) -> Any:
        outputs, targets = batch
        for weights, bias in params[:-1]:
            outputs = jnp.tanh(outputs @ weights + bias)
        weights, bias = params[-1]
        return jnp.mean(jnp.sum((outputs @ weights + bias - targets) ** 2, axis=1)) / 2

    return pf.Objective(loss, params, (inputs / 16, np.eye(10)[labels]))


if __name__ == "__main__":
    main()
