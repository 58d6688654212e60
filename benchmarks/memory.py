"""Memory that stays behind when objectives are used and dropped, each with a loss that closes over its own data.

python benchmarks/memory.py                      200 objectives of 25 MB each
python benchmarks/memory.py --objectives 40      fewer
"""

import argparse
import gc
import resource
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import principalflow as pf

MEGABYTE = 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objectives", type=int, default=200)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    losses = [use(0)]  # what JAX itself needs is there from now on
    start = resident()
    print(f"start: {start:.0f} MB")
    for index in range(1, options.objectives + 1):
        losses.append(use(index))
        if index % 20 == 0:
            gc.collect()
            alive = sum(loss() is not None for loss in losses)
            print(f"after {index} objectives: {resident() - start:+.0f} MB, {alive} losses alive", flush=True)


def use(seed: int) -> weakref.ref:
    """Takes value, gradient, product, eigenpairs and a few steps, and returns a reference that keeps nothing alive."""
    data = np.random.default_rng(seed).standard_normal((25 * MEGABYTE // 800, 100))

    def loss(theta: jax.Array) -> jax.Array:
        return jnp.mean((jnp.asarray(data) @ theta) ** 2) + jnp.sum(theta**4)

    objective = pf.Objective(loss, jnp.ones(100))
    objective.value(objective.theta)
    objective.hvp(objective.theta, objective.gradient(objective.theta))
    pf.spectrum.top_eigenpairs(objective, objective.theta, 2)
    pf.descend(objective, objective.theta, 0.001, 2)
    return weakref.ref(loss)


def resident() -> float:
    """The process's memory in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / MEGABYTE


if __name__ == "__main__":
    main()
