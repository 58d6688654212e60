"""DAL and CDAT, learning rates from curvature: what a step costs, and how they train beside what people use today.

    python benchmarks/dal.py                      tables
    python benchmarks/dal.py --json               the same for programs
    python benchmarks/dal.py --only comparison --problems digits mnist
                                                  one part, and two of its problems

cost: the time of a step over that of plain SGD in the same framework, gradient and update together, in float32.
Contenders take turns of ten steps, so that every=10 measures once in each; the figure is the median over the rounds of
the ratio within a round. glibc returns large temporaries to Linux at each call and faults them in again at the next,
which slows exact products most. So everyone is measured twice: with malloc as it is, and told to keep its memory.
Only an idle machine gives these figures: beside another busy process PyTorch's spinning threads take ten times as long.

comparison: training of the same networks from the same initial parameters, on all samples at every step and on batches,
by DAL, by CDAT and DAL along other optimisers' updates, by a sweep of SGD's rates, and by optimisers that need no rate
or come with one. Nobody is tuned, but DAL's recipe and CDAT's defaults (docs/dal.md says on what). Losses are of all
training samples, and of the parameters that a user would evaluate: for Schedule-Free, its averages. A gradient counts
1, an exact product 2, a second gradient 1. A run has diverged if a loss isn't finite or the last one is above the
first; that is a result too.

PRINCIPALFLOW_DATA is the folder with MNIST and CIFAR-10, see _problems.py.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from _problems import CANCER_MLP, DIGITS_MLP, MLP, VGG, Data, Network, cifar10, mnist
from sklearn.datasets import load_breast_cancer, load_digits

import principalflow as pf

MISSING = "not installed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--only", choices=["cost", "comparison"], help="one part instead of both")
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=PROBLEMS, help="those of the comparison")
    parser.add_argument("--seeds", type=int, default=3, help="how many initialisations the comparison has")
    parser.add_argument("--steps-scale", type=float, default=1.0, help="shortens all runs; the claims need 1")
    parser.add_argument("--costs-here", action="store_true", help=argparse.SUPPRESS)  # what cost() runs as a child
    options = parser.parse_args()
    if options.costs_here:
        print(json.dumps(costs_here(options.steps_scale)))
        return
    figures = {}
    if options.only != "comparison":
        figures["cost"] = cost(options.steps_scale)
    if options.only != "cost":
        figures["comparison"], figures["claims"] = comparison(options.problems, options.seeds, options.steps_scale)
    if options.json:
        print(json.dumps(figures, indent=2, allow_nan=False))
    else:
        print_tables(figures)
    if MISSING in json.dumps(figures):
        print("For all peers: pip install 'principalflow[benchmarks]' torch==2.13.0", file=sys.stderr)


TURN = 10
# SGD's rate, and DAL's cap, so that all take calm steps: the price is the same.
RATE = 0.05
ROUNDS = 9
MALLOC = {
    "default malloc": {},
    "malloc keeps memory": {
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": "100000000000",
        "MALLOC_TOP_PAD_": "100000000",
    },
}
VARIANTS = {
    "exact": {},
    "finite difference": {"curvature": "finite_difference"},
    "exact, every 10": {"every": 10},
    "finite difference, every 10": {"curvature": "finite_difference", "every": 10},
}
# A finite difference is a second whole gradient: its floor is 2, whatever the target.
TARGETS = {
    ("mlp", "JAX", "exact"): 2.6,
    ("mlp", "JAX", "finite difference"): 1.8,
    ("mlp", "JAX", "exact, every 10"): 1.25,
    ("mlp", "JAX", "finite difference, every 10"): 1.25,
    ("mlp", "PyTorch", "exact"): 3.3,
}


def cost(scale: float) -> dict:
    """Returns problem -> framework -> variant -> the time over SGD's with each malloc, and the target."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, __file__, "--costs-here", "--steps-scale", str(scale)]
    measured = {}
    for name, settings in MALLOC.items():
        report(f"cost, {name}")
        child = subprocess.run(command, env=ours | settings, stdout=subprocess.PIPE, check=True)
        measured[name] = json.loads(child.stdout)
    figures: dict = {}
    for problem, framework in product(("mlp", "vgg"), ("JAX", "PyTorch")):
        rows = {name: measured[name][problem][framework] for name in MALLOC}
        if MISSING in rows.values():
            figures.setdefault(problem, {})[framework] = MISSING
            continue
        figures.setdefault(problem, {})[framework] = {
            variant: {name: rows[name][variant] for name in MALLOC}
            | {"target": TARGETS.get((problem, framework, variant))}
            for variant in ["SGD, seconds", *VARIANTS]
        }
    return figures


def costs_here(scale: float) -> dict:
    problems = {"mlp": (MLP, mnist(5000)), "vgg": (VGG, cifar10(256))}
    figures: dict = {name: {} for name in problems}
    # PyTorch's idle threads would disturb JAX, so that it isn't even imported before JAX is done.
    for framework, turn in (("JAX", jax_turn), ("PyTorch", torch_turn)):
        for name, (network, data) in problems.items():
            report(f"    {framework}, {name}")
            try:
                figures[name][framework] = over_sgd(partial(turn, network, data), rounds=max(1, round(ROUNDS * scale)))
            except ModuleNotFoundError:
                figures[name][framework] = MISSING
    return figures


def over_sgd(turn_of: Callable, rounds: int) -> dict:
    turns = {"SGD": turn_of(None)} | {name: turn_of(options) for name, options in VARIANTS.items()}
    for take_turn in turns.values():
        take_turn()  # compiles, and warms up
    seconds = {name: np.zeros(rounds) for name in turns}
    for i, name in product(range(rounds), turns):
        start = time.perf_counter()
        turns[name]()
        seconds[name][i] = time.perf_counter() - start
    ratios = {name: float(np.median(seconds[name] / seconds["SGD"])) for name in VARIANTS}
    return {"SGD, seconds": float(np.median(seconds["SGD"])) / TURN, **ratios}


def jax_turn(network: Network, data: Data, options: dict | None) -> Callable:
    """Returns a function that takes ten steps: of DAL with these options, or of SGD."""
    tx = optax.with_extra_args_support(
        optax.sgd(RATE) if options is None else pf.dal(max_learning_rate=RATE, **options)
    )

    @jax.jit
    def step(layers, state, batch):
        loss_of = partial(network.cross_entropy, batch=batch)
        loss, gradient = jax.value_and_grad(loss_of)(layers)
        updates, state = tx.update(gradient, state, layers, value_fn=loss_of)
        return optax.apply_updates(layers, updates), state, loss

    batch, layers = on_device(data), network.layers()
    state = tx.init(layers)

    def take_turn():
        nonlocal layers, state
        for _ in range(TURN):
            layers, state, _ = step(layers, state, batch)
        jax.block_until_ready((layers, state))

    return take_turn


def torch_turn(network: Network, data: Data, options: dict | None) -> Callable:
    import torch  # pyright: ignore

    twin = network.twin(network.layers())
    if options is None:
        optimizer, backward = torch.optim.SGD(twin.parameters(), RATE), True
    else:
        optimizer, backward = torch_dal(twin.parameters(), max_learning_rate=RATE, **options), "curvature" in options
    closure = torch_closure(torch_loss(twin, data), optimizer, backward)

    def take_turn():
        for _ in range(TURN):
            optimizer.step(closure)

    return take_turn


class Problem(NamedTuple):
    name: str
    network: Network
    train: Data
    test: Data
    steps: int
    batch: int | None = None

    @property
    def is_small(self) -> bool:
        return self.network in (DIGITS_MLP, CANCER_MLP)

    def order(self, seed: int) -> np.ndarray | None:
        """Returns the samples of each step's batch, the same for all contenders; None for all samples."""
        if self.batch is None:
            return None
        random = np.random.default_rng(seed)
        return np.stack([random.choice(len(self.train.labels), self.batch, False) for _ in range(self.steps)])


class Contender(NamedTuple):
    """`make(rate)` returns a transformation; `evaluated(state, layers)` the parameters that a user evaluates."""

    make: Callable
    gradients: float = 1
    evaluated: Callable = lambda state, layers: layers


class TorchContender(NamedTuple):
    make: Callable
    gradients: float = 1
    backward: bool = True


class Run(NamedTuple):
    losses: np.ndarray
    accuracy: float

    @property
    def diverged(self) -> bool:
        return not (np.all(np.isfinite(self.losses)) and self.losses[-1] <= self.losses[0])

    @property
    def largest_rise(self) -> float:
        """The largest increase of the loss in one step, relative to the loss before it."""
        if not np.all(np.isfinite(self.losses)):
            return np.inf
        return float(np.max(np.diff(self.losses) / self.losses[:-1], initial=0.0))


RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
SWEEP = Contender(optax.sgd)
MOMENTUM_SWEEP = Contender(partial(optax.sgd, momentum=0.9))
RECIPE: dict[str, Any] = dict(momentum=0.9, factor=0.5, average=0.99)
CONTENDERS = {
    "DAL": Contender(lambda _: pf.dal(), gradients=3),
    "DAL-0.5": Contender(lambda _: pf.dal(power=0.5), gradients=3),
    "DAL, finite difference": Contender(lambda _: pf.dal(curvature="finite_difference"), gradients=2),
    "DAL, recipe": Contender(lambda _: pf.dal(**RECIPE), gradients=3),
    "DAL, recipe, every 10": Contender(lambda _: pf.dal(**RECIPE, every=10), gradients=1.3),
    "CDAT on SGD": Contender(lambda _: pf.cdat(optax.sgd(1.0), max_learning_rate=5.0), gradients=3),
    "CDAT on Adam": Contender(lambda _: pf.cdat(), gradients=3),
    "CDAT on AdamW": Contender(lambda _: pf.cdat(optax.adamw(1.0)), gradients=3),
    "CDAT on Adam, every 10": Contender(lambda _: pf.cdat(every=10), gradients=1.3),
    "DAL on Adam": Contender(lambda _: pf.cdat(measure="drift"), gradients=3),
    "DAL on AdamW": Contender(lambda _: pf.cdat(optax.adamw(1.0), measure="drift"), gradients=3),
    "DAL on Adam, every 10": Contender(lambda _: pf.cdat(measure="drift", every=10), gradients=1.3),
    "Adam 1e-3": Contender(lambda _: optax.adam(1e-3)),
    "Adam 1e-2": Contender(lambda _: optax.adam(1e-2)),
    "Polyak": Contender(lambda _: optax.polyak_sgd()),
    "DoG": Contender(lambda _: optax.contrib.dog()),
    "Prodigy": Contender(lambda _: optax.contrib.prodigy()),
    "Schedule-Free AdamW": Contender(
        lambda _: optax.contrib.schedule_free_adamw(), evaluated=optax.contrib.schedule_free_eval_params
    ),
}
# On the larger problems these, and the sweep with momentum, would take as long as everything else.
ON_SMALL = {
    "DAL-0.25": Contender(lambda _: pf.dal(power=0.25), gradients=3),
    "DAL, every 10": Contender(lambda _: pf.dal(every=10), gradients=1.3),
    "DAL, average": Contender(lambda _: pf.dal(average=0.99), gradients=3),
    "DAL, per parameter": Contender(lambda _: pf.dal(per_parameter=True), gradients=3),
    "DAL, momentum": Contender(lambda _: pf.dal(momentum=0.9, factor=0.5), gradients=3),
    "DAL, momentum, factor 2": Contender(lambda _: pf.dal(momentum=0.9), gradients=3),
    "CDAT on Adam, scale 1": Contender(lambda _: pf.cdat(scale=1.0), gradients=3),
    "CDAT on Adam, no average": Contender(lambda _: pf.cdat(average=None), gradients=3),
    "CDAT on momentum": Contender(lambda _: pf.cdat(optax.sgd(1.0, 0.9), max_learning_rate=5.0), gradients=3),
    "CDAT on RMSProp": Contender(lambda _: pf.cdat(optax.rmsprop(1.0)), gradients=3),
    "DAL on RMSProp": Contender(lambda _: pf.cdat(optax.rmsprop(1.0), measure="drift"), gradients=3),
    "DAL on Adam, average 0.99": Contender(lambda _: pf.cdat(measure="drift", average=0.99), gradients=3),
    "DAL-0.5 on Adam": Contender(lambda _: pf.cdat(measure="drift", power=0.5), gradients=3),
    "DAL after Adam in a chain": Contender(
        lambda _: optax.chain(optax.scale_by_adam(), pf.scale_by_dal(), optax.scale(-1)), gradients=3
    ),
}


def imported(module: str, name: str, params: Any, **options: Any) -> Any:
    return getattr(importlib.import_module(module), name)(params, **options)


def torch_cdat(params: Any, **options: Any) -> Any:
    import torch  # pyright: ignore

    return imported("principalflow.torch", "CDAT", torch.optim.AdamW(params, lr=1.0, weight_decay=1e-4), **options)


torch_dal = partial(imported, "principalflow.torch", "DAL")
TORCH_CONTENDERS = {
    "PyTorch DAL": TorchContender(torch_dal, gradients=3, backward=False),
    "PyTorch DAL-0.5": TorchContender(partial(torch_dal, power=0.5), gradients=3, backward=False),
    "PyTorch DAL, recipe": TorchContender(partial(torch_dal, **RECIPE), gradients=3, backward=False),
    "PyTorch CDAT on AdamW": TorchContender(torch_cdat, gradients=3, backward=False),
    "PyTorch DAL on AdamW": TorchContender(partial(torch_cdat, measure="drift"), gradients=3, backward=False),
    "PyTorch Prodigy": TorchContender(partial(imported, "prodigyopt", "Prodigy")),
    "PyTorch Schedule-Free": TorchContender(partial(imported, "schedulefree", "AdamWScheduleFree")),
    "PyTorch D-Adapt Adam": TorchContender(partial(imported, "dadaptation", "DAdaptAdam")),
}


PROBLEMS = ("digits", "digits, batches of 64", "breast cancer, batches of 16", "mnist", "cifar10")


def comparison(names: Sequence[str], seeds: int, scale: float) -> tuple[dict, list]:
    figures, claims = {}, []
    for problem in problems(names, scale):
        runs, missing = run_all(problem, range(seeds))
        rows = {name: summary(of_seeds, gradients) for name, (of_seeds, gradients) in runs.items()}
        report(f"{problem.name}, the sweeps")
        sweep = run_sweep(problem, SWEEP, range(seeds))
        rows |= sweep_rows("SGD", sweep, problem.steps) | dict.fromkeys(missing, MISSING)
        if problem.is_small:
            rows |= sweep_rows("SGD, momentum", run_sweep(problem, MOMENTUM_SWEEP, range(seeds)), problem.steps)
        facts = {"data": problem.train.source, "train": len(problem.train.labels), "test": len(problem.test.labels)}
        figures[problem.name] = {**facts, "steps": problem.steps, "seeds": seeds, "contenders": rows}
        if problem.name == "digits":
            claims = judged(runs["DAL"][0], runs["DAL-0.5"][0], sweep)
    return figures, claims


def problems(names: Sequence[str], scale: float) -> list[Problem]:
    images, classes = load_digits(return_X_y=True)
    digits = parted(np.asarray(images) / 16, classes, 1200)
    table, kinds = load_breast_cancer(return_X_y=True)
    measures = np.asarray(table)
    cancer = parted((measures - measures[:400].mean(0)) / measures[:400].std(0), kinds, 400)

    def steps(full):
        return max(2, round(full * scale))

    made: tuple[Callable[[str], Problem], ...] = (
        lambda name: Problem(name, DIGITS_MLP, *digits, steps(500)),
        lambda name: Problem(name, DIGITS_MLP, *digits, steps(1000), batch=64),
        lambda name: Problem(name, CANCER_MLP, *cancer, steps(400), batch=16),
        lambda name: Problem(name, MLP, mnist(5000), mnist(2000, "test"), steps(150)),
        lambda name: Problem(name, VGG, cifar10(1000), cifar10(1000, "test"), steps(50)),
    )
    return [make(name) for name, make in zip(PROBLEMS, made, strict=True) if name in names]


def parted(inputs: Any, labels: Any, size: int) -> tuple[Data, Data]:
    """Returns the first `size` samples to train on, and the rest to test with."""
    x, y = np.asarray(inputs, np.float32), np.asarray(labels, np.int64)
    return Data(x[:size], y[:size], "sklearn"), Data(x[size:], y[size:], "sklearn")


def run_sweep(problem: Problem, contender: Contender, seeds: range) -> dict[float, list[Run]]:
    return {rate: [train(problem, contender, seed, rate) for seed in seeds] for rate in RATES}


def run_all(problem: Problem, seeds: range) -> tuple[dict, list]:
    """Returns contender -> (a run per seed, the gradients of one), and who is missing."""
    runs, missing = {}, []
    for name, contender in (CONTENDERS | (ON_SMALL if problem.is_small else {})).items():
        report(f"{problem.name}, {name}")
        runs[name] = [train(problem, contender, seed) for seed in seeds], contender.gradients * problem.steps
    for name, contender in TORCH_CONTENDERS.items():
        report(f"{problem.name}, {name}")
        try:
            runs[name] = [train_torch(problem, contender, seed) for seed in seeds], contender.gradients * problem.steps
        except ModuleNotFoundError:
            missing.append(name)
    return runs, missing


def train(problem: Problem, contender: Contender, seed: int, rate: float = 0.0) -> Run:
    layers, order = problem.network.layers(seed), problem.order(seed)
    data = on_device(problem.train), on_device(problem.test)
    losses, accuracy = scan_steps(contender, problem.network, problem.steps, layers, *data, order, rate)
    return Run(np.asarray(losses, np.float64), float(accuracy))


@partial(jax.jit, static_argnums=(0, 1, 2))
def scan_steps(
    contender: Contender, network: Network, steps: int, layers: Any, train: tuple, test: tuple, order: Any, rate: Any
):
    tx = optax.with_extra_args_support(contender.make(rate))

    def step(carry, rows):
        layers, state = carry
        batch = train if rows is None else (train[0][rows], train[1][rows])
        loss_of = partial(network.cross_entropy, batch=batch)
        value, gradient = jax.value_and_grad(loss_of)(layers)
        updates, after = tx.update(gradient, state, layers, value=value, value_fn=loss_of)
        # On all samples XLA sees that this is `value`, except for Schedule-Free.
        evaluated = network.cross_entropy(contender.evaluated(state, layers), train)
        return (optax.apply_updates(layers, updates), after), evaluated

    (layers, state), losses = jax.lax.scan(step, (layers, tx.init(layers)), order, length=steps)
    final = contender.evaluated(state, layers)
    right = jnp.argmax(network.logits(final, test[0]), axis=1) == test[1]
    return jnp.append(losses, network.cross_entropy(final, train)), jnp.mean(right)


def train_torch(problem: Problem, contender: TorchContender, seed: int) -> Run:
    import torch  # pyright: ignore

    twin = problem.network.twin(problem.network.layers(seed))
    optimizer = contender.make(list(twin.parameters()))
    loss_of, order = torch_loss(twin, problem.train), problem.order(seed)
    has_averages = hasattr(optimizer, "eval")

    @torch.no_grad()
    def evaluated() -> float:
        if not has_averages:
            return loss_of().item()
        optimizer.eval()
        loss = loss_of().item()
        optimizer.train()
        return loss

    losses = [evaluated()]
    for step in range(problem.steps):
        rows = None if order is None else torch.tensor(order[step])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about what isn't finite: `diverged` says it
            optimizer.step(torch_closure(partial(loss_of, rows), optimizer, contender.backward))
        losses.append(evaluated())
        if not np.isfinite(losses[-1]):
            break
    if has_averages:
        optimizer.eval()
    with torch.no_grad():
        classes = twin(torch.tensor(problem.test.inputs)).argmax(1).numpy()
    return Run(np.array(losses), float(np.mean(classes == problem.test.labels)))


def torch_loss(twin: Any, data: Data) -> Callable:
    import torch  # pyright: ignore

    inputs, labels = torch.tensor(data.inputs), torch.tensor(data.labels)

    def loss_of(rows=None):
        x, y = (inputs, labels) if rows is None else (inputs[rows], labels[rows])
        return torch.nn.functional.cross_entropy(twin(x), y)

    return loss_of


def torch_closure(loss_of: Callable, optimizer: Any, backward: bool) -> Callable:
    """Returns the usual closure, or for exact products the loss alone."""

    def closure():
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        return loss

    return closure if backward else loss_of


def on_device(data: Data) -> tuple:
    return jnp.asarray(data.inputs), jnp.asarray(data.labels, jnp.int32)


def summary(runs: list[Run], gradients: float) -> dict:
    """Returns what one contender did over the seeds; `gradients` is the cost of one run."""
    return {
        "train loss": mean_and_spread([run.losses[-1] for run in runs]),
        "test accuracy": mean_and_spread([run.accuracy for run in runs]),
        "largest rise": mean_and_spread([run.largest_rise for run in runs]),
        "gradients": gradients,
        "diverged": sum(run.diverged for run in runs),
    }


def mean_and_spread(values: list[float]) -> dict:
    """Returns the mean, and the largest less the smallest; None where a value isn't finite, as JSON has no such."""
    if not np.all(np.isfinite(values)):
        return {"mean": None, "spread": None}
    return {"mean": float(np.mean(values)), "spread": float(np.ptp(values))}


def sweep_rows(name: str, sweep: dict[float, list[Run]], steps: int) -> dict:
    """Returns a row for each rate, and for the best rates, chosen anew for each seed at the cost of all runs."""
    rows = {f"{name} {rate:g}": summary(runs, steps) for rate, runs in sweep.items()}
    for measure, better in (("train loss", by_loss), ("test accuracy", by_accuracy)):
        rates = [max(sweep, key=lambda rate, i=i: better(sweep[rate][i])) for i in range(len(sweep[RATES[0]]))]
        best = [sweep[rate][i] for i, rate in enumerate(rates)]
        rows[f"{name}, best {measure}"] = summary(best, steps * len(sweep)) | {"rates": rates}
    return rows


def by_loss(run: Run) -> float:
    return -float(run.losses[-1]) if np.all(np.isfinite(run.losses)) else -np.inf


def by_accuracy(run: Run) -> float:
    return run.accuracy


def judged(dal: list[Run], dal_half: list[Run], sweep: dict[float, list[Run]]) -> list[dict]:
    """Returns the claims about digits: what was measured, the bound, and whether it held."""
    rise = max(run.largest_rise for run in dal)
    rank = max(1 + sum(by_loss(runs[i]) > by_loss(run) for runs in sweep.values()) for i, run in enumerate(dal))
    best = [max(runs[i].accuracy for runs in sweep.values()) for i in range(len(dal))]
    margin = float(np.mean([run.accuracy for run in dal_half]) - np.mean(best))
    return [
        {
            "claim": "DAL's largest relative rise of the loss in one step, worst seed",
            "measured": rise if np.isfinite(rise) else None,
            "bound": 0.05,
            "held": rise <= 0.05,
        },
        {
            "claim": "rank of DAL's final train loss among the ten rates', worst seed",
            "measured": rank,
            "bound": 3,
            "held": rank <= 3,
        },
        {
            "claim": "DAL-0.5's test accuracy less the sweep's best of each seed, mean",
            "measured": margin,
            "bound": 0.0,
            "held": margin >= 0,
        },
    ]


def report(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def print_tables(figures: dict) -> None:
    for problem, frameworks in figures.get("cost", {}).items():
        print(f"cost, {problem}: the time of a step over SGD's")
        print_row("", [*MALLOC, "target"])
        for framework, rows in frameworks.items():
            if rows == MISSING:
                print_row(framework, [MISSING])
                continue
            for name, row in rows.items():
                print_row(f"{framework} {name}", row.values())
        print()
    for problem, section in figures.get("comparison", {}).items():
        print(f"{problem}: " + ", ".join(f"{key} {value}" for key, value in section.items() if key != "contenders"))
        print_row("mean (spread)", ["train loss", "test accuracy", "largest rise", "gradients", "diverged"])
        for contender, row in section["contenders"].items():
            print_row(contender, [MISSING] if row == MISSING else row.values())
        print()
    for claim in figures.get("claims", []):
        held = "held" if claim["held"] else "NOT held"
        print(f"{claim['claim']}: {cell(claim['measured'])}, bound {cell(claim['bound'])}, {held}")


def print_row(name: str, values: Iterable) -> None:
    print(f"    {name:<36}" + "".join(f"{cell(value):>22}" for value in values))


def cell(value: Any) -> str:
    if isinstance(value, dict):
        return "-" if value["mean"] is None else f"{value['mean']:.3g} ({value['spread']:.1g})"
    return "-" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
