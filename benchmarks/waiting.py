"""How long a new process takes to its first result, with an empty cache of compiled programs and with the one it left.

    python benchmarks/waiting.py             a table, in seconds
    python benchmarks/waiting.py --json      the same for programs

Each is a process of its own, three times with an empty cache and three times with a full one; the least of the three
counts, the largest is the spread.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TIMES = 3
# The README's network.
NETWORK = """
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import principalflow as pf

def loss(params, batch):
    inputs, targets = batch
    return jnp.mean((jnp.tanh(inputs @ params["in"]) @ params["out"] - targets) ** 2)

keys = jax.random.split(jax.random.key(0), 4)
params = {"in": jax.random.normal(keys[0], (2, 10)), "out": jax.random.normal(keys[1], (10, 1))}
data = (jax.random.normal(keys[2], (5, 2)), jax.random.normal(keys[3], (5, 1)))
objective, h = pf.Objective(loss, params, data), 0.1
"""
COMPARE = """
flows = {"NGF": pf.flows.NegativeGradient(), "IGR": pf.flows.IGR(h), "PF": pf.flows.Principal(h)}
pf.compare(objective, objective.theta, h, steps=5, flows=flows)
"""
# Large enough not to be solved densely.
EIGENPAIRS = """
import jax, jax.numpy as jnp
import principalflow as pf

network = pf.models.MLP(64, (32, 32), 10, jax.random.key(0))
digits = pf.data.load("digits", one_hot=True)
batch = (jnp.asarray(digits.inputs).reshape(len(digits.inputs), -1), jnp.asarray(digits.labels))
objective = pf.Objective(pf.models.loss("cross-entropy"), network, batch)
"""
CODES = {
    "import jax": "",
    "import jax, principalflow": "import principalflow",
    "pf.compare": NETWORK + COMPARE,
    "top_eigenpairs": EIGENPAIRS + "pf.spectrum.top_eigenpairs(objective, objective.theta, 1)",
    "Monitor.observe": EIGENPAIRS + "pf.Monitor(objective).observe(0, objective.theta, 0.1)",
}
TRAIN = "train --data digits --hidden 32 32 --learning-rate 0.5 --steps 10 --out"
COMMANDS = {
    "principalflow --help": ["--help"],
    "principalflow train": TRAIN.split(),
    "principalflow reproduce banana": ["reproduce", "banana", "--out"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    found = rows()
    if options.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'':32} {'empty cache':>16} {'full cache':>16}")
    for row in found:
        cells = (f"{row[name]:6.2f} to {row[f'{name}_most']:5.2f}" for name in ("empty", "full"))
        print(f"{row['what']:32} {'  '.join(cells)}")


def rows() -> list[dict[str, Any]]:
    """Returns the seconds of each."""
    found = []
    for what, code in CODES.items():
        found.append(row(what, lambda _, code=f"import jax\n{code}": [sys.executable, "-c", code]))
    command = str(Path(sys.executable).parent / "principalflow")
    for what, arguments in COMMANDS.items():
        found.append(
            row(what, lambda out, given=arguments: [command, *given, *([out] if given[-1] == "--out" else [])])
        )
    return found


def row(what: str, command: Any) -> dict[str, Any]:
    times: dict[str, list[float]] = {"empty": [], "full": []}
    for _ in range(TIMES):
        with tempfile.TemporaryDirectory() as cache:
            for name, each in times.items():
                each.append(seconds(command(str(Path(cache) / name)), Path(cache)))
    spread = {f"{name}_most": max(each) for name, each in times.items()}
    return dict(what=what) | {name: min(each) for name, each in times.items()} | spread


def seconds(command: list[str], cache: Path) -> float:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    begin = time.perf_counter()
    subprocess.run(command, env=environment | {"XDG_CACHE_HOME": str(cache)}, check=True, capture_output=True)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
