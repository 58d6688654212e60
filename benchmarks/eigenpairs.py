"""The largest Hessian eigenpairs along a training run: principalflow beside the tools that people use today.

    python benchmarks/eigenpairs.py                                tables
    python benchmarks/eigenpairs.py --json                         the same for programs
    python benchmarks/eigenpairs.py --only principalflow lobpcg    some of the contenders
    python benchmarks/eigenpairs.py --skipped 4300                 instead: random starts that overlook an eigenvalue

Everyone gets the same float32 network, data and iterates, and the same request: the k = 4 largest eigenpairs with
||Hv - lambda v|| at most 1e-2 lambda_0. One judge, a Hessian product in JAX outside of the timed part, measures
everyone's residuals, and compares the values with those of a finer solve from scratch, so that an overlooked pair
shows. Products are counted as they happen, by columns; principalflow's are those that it reports.

Times are compared within this run: the ratio is the result, not the seconds, and only on an idle machine.
principalflow and matfree run on all steps, the slower peers on blocks of consecutive steps spread evenly over the path;
each is compared with principalflow on the steps that it took. The first step of a block, which has no former one to
start from, is left out of the means; whoever compiles takes four steps before the clock starts.

PRINCIPALFLOW_DATA is the folder with MNIST and CIFAR-10, see _problems.py.
"""

import argparse
import importlib
import json
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from _problems import MLP, VGG, Data, Network, cifar10, mnist
from jax.experimental.sparse.linalg import lobpcg_standard
from scipy.sparse.linalg import LinearOperator, eigsh

import principalflow as pf

K = 4
# Steps that a peer takes in a row, so that warm starts show.
BLOCK = 4
MISSING = "not installed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--steps", type=int, default=200, help="iterates on MNIST, and at most 20 on the VGG")
    parser.add_argument("--peer-steps", type=int, default=40, help=f"how many slow peers take, in blocks of {BLOCK}")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), metavar="NAME")
    parser.add_argument("--tol", type=float, default=1e-2, help="the residual to reach, relative to lambda_0")
    parser.add_argument("--skipped", type=int, metavar="STARTS", help="only count starts that overlook an eigenvalue")
    options = parser.parse_args()
    if options.skipped:
        print(json.dumps(skipped(options.skipped), indent=2))
        return
    pf.keep_memory()
    figures = {}
    for problem in (
        trained("mnist", MLP, mnist(5000), options.steps),
        trained("vgg", VGG, cifar10(500), min(options.steps, 20)),
    ):
        figures[problem.name] = compare(problem, options)
        if not options.json:
            print_table(problem.name, figures[problem.name])
    if options.json:
        print(json.dumps(figures, indent=2))
    if any(MISSING in section["contenders"].values() for section in figures.values()):
        print("For all peers: pip install 'principalflow[benchmarks]' torch==2.13.0", file=sys.stderr)


def skipped(starts: int) -> dict:
    """From random starts on the eigenvalues 0, 1, ..., 599, which are a little more than tol = 1e-3 apart; k = 3."""
    figures = {}
    values = np.arange(600.0)[:, None]
    for columns in (3, 5):
        blocks = (np.random.default_rng(seed).standard_normal((600, columns)) for seed in range(starts))
        found = [pf.spectrum.block_eigenpairs(lambda V: values * V, block, k=3, tol=1e-3) for block in blocks]
        off = np.max(np.abs(np.array([eig.values for eig in found]) - [599, 598, 597]), axis=1)
        figures[f"starts of {columns} vectors"] = {
            "starts": starts,
            "skipped": int(np.sum(off > 0.6)),  # a residual
            "not converged": sum(not eig.converged for eig in found),
            "products": float(np.mean([eig.products for eig in found])),
        }
    return figures


class Problem(NamedTuple):
    """A network, its data, and the iterates of descent."""

    name: str
    network: Network
    data: Data
    objective: pf.Objective
    thetas: jax.Array


class Contender(NamedTuple):
    """`make(problem, tol)` returns `solve(theta, former)`, from what it found at the step before to what it finds."""

    make: Callable
    compiles: bool = False
    every_step: bool = False
    tol: float | None = None


class Found(NamedTuple):
    values: Any
    vectors: Any
    products: int


class Step(NamedTuple):
    at: int
    warm: bool
    products: int
    seconds: float
    residual: float
    values: np.ndarray


def compare(problem: Problem, options: argparse.Namespace) -> dict:
    """Runs everyone on one problem."""
    check_twin(problem)
    count, size = problem.thetas.shape
    every, some = [range(count)], blocks(count, options.peer_steps)
    product = problem.objective.hvp
    exact = {i: by_eigsh(partial(product, problem.thetas[i]), size, 1e-3).values for block in some for i in block}
    rows, ours = {}, []
    for name in options.only:
        contender = CONTENDERS[name]
        tol = contender.tol or options.tol
        try:
            steps = run(contender, problem, tol, every if contender.every_step else some)
        except ModuleNotFoundError:
            rows[name] = MISSING
            continue
        ours = steps if name == "principalflow" else ours
        rows[name] = summary(steps, tol, exact, ours)
    threads = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None
    facts = {"data": problem.data.source, "samples": len(problem.data.labels), "parameters": size}
    return {**facts, "k": K, "tol": options.tol, "torch threads": threads, "contenders": rows}


def blocks(steps: int, wanted: int) -> list[range]:
    """Spreads about `wanted` steps over the path, in runs of BLOCK."""
    length = min(BLOCK, wanted, steps)
    starts = np.linspace(0, steps - length, min(wanted, steps) // length).astype(int)
    return [range(start, start + length) for start in starts]


def run(contender: Contender, problem: Problem, tol: float, where: list[range]) -> list[Step]:
    solve = contender.make(problem, tol)
    found = None
    for theta in problem.thetas[: BLOCK if contender.compiles else 0]:
        found = solve(theta, found)
    steps = []
    for block in where:
        found = None
        for index in block:
            theta = jax.block_until_ready(problem.thetas[index])
            start = time.perf_counter()
            found = solve(theta, found)
            jax.block_until_ready((found.values, found.vectors))
            seconds = time.perf_counter() - start
            residual, values = judge(problem, theta, found), np.sort(found.values)[::-1]
            steps.append(Step(index, index > block[0], found.products, seconds, residual, values))
    return steps


def judge(problem: Problem, theta: jax.Array, found: Found) -> float:
    """The largest ||Hv - lambda v|| over the largest |lambda|."""
    vectors, values = jnp.asarray(found.vectors), jnp.asarray(found.values, jnp.float32)
    vectors = vectors / jnp.linalg.norm(vectors, axis=0)
    residuals = jnp.linalg.norm(problem.objective.hvp(theta, vectors) - vectors * values, axis=0)
    return float(jnp.max(residuals) / jnp.max(jnp.abs(values)))


def summary(steps: list[Step], tol: float, exact: dict[int, np.ndarray], ours: list[Step]) -> dict:
    warm = [step for step in steps if step.warm] or steps
    seconds = float(np.mean([step.seconds for step in warm]))
    where = {step.at for step in warm}
    our_seconds = [step.seconds for step in ours if step.at in where]
    errors = [np.max(np.abs(s.values - exact[s.at])) / exact[s.at][0] for s in steps if s.at in exact]
    return {
        "steps": len(steps),
        "products, first step": steps[0].products,
        "products per step": float(np.mean([step.products for step in warm])),
        "residual, mean": float(np.mean([step.residual for step in steps])),
        "residual, max": max(step.residual for step in steps),
        "steps within tol": float(np.mean([step.residual <= tol for step in steps])),
        "value error, max": float(max(errors)),
        "seconds per step": seconds,
        "seconds over principalflow's": seconds / float(np.mean(our_seconds)) if our_seconds else None,
    }


def principalflow(problem: Problem, tol: float) -> Callable:
    return lambda theta, former: pf.spectrum.top_eigenpairs(problem.objective, theta, K, guess=former, tol=tol)


def principalflow_torch(problem: Problem, tol: float) -> Callable:
    """The same solver on PyTorch's products."""
    twin = Twin(problem)
    objective = importlib.import_module("principalflow.torch").objective(
        twin.network, twin.criterion, (twin.inputs, twin.labels)
    )
    return lambda theta, former: pf.spectrum.top_eigenpairs(objective, theta, K, guess=former, tol=tol)


def eigsh_torch(problem: Problem, tol: float, product_of: Callable, warm: bool = False) -> Callable:
    """SciPy's Lanczos on PyTorch's products; warm, it starts from the sum of the former vectors."""
    twin = Twin(problem)

    def solve(theta, former):
        twin.load(theta)
        return by_eigsh(product_of(twin), theta.size, tol, former.vectors.sum(axis=1) if warm and former else None)

    return solve


def double_backward(twin: "Twin") -> Callable:
    """As is usual since Cohen et al. (2021), who start cold."""
    return twin.product


def curvlinops(twin: "Twin") -> Callable:
    from curvlinops import HessianLinearOperator  # pyright: ignore

    parameters, data = list(twin.network.parameters()), [(twin.inputs, twin.labels)]
    # Its check for determinism costs products, and is meant for data loaders.
    operator = HessianLinearOperator(twin.network, twin.criterion, parameters, data, check_deterministic=False)
    return operator.to_scipy(np.dtype("float32")).matvec


def pyhessian(problem: Problem, tol: float) -> Callable:
    """Power iteration with deflation. Its tol is for changes of a value, which go with the residual's square."""
    module = importlib.import_module("pyhessian.hessian")
    twin = Twin(problem)

    def solve(theta, former):
        twin.load(theta)
        twin.torch.manual_seed(0)
        product = Counted(module.hessian_vector_product)
        with patch.object(module, "hessian_vector_product", product), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a cycle of references, which it breaks itself
            hessian = module.hessian(twin.network, twin.criterion, data=(twin.inputs, twin.labels), cuda=False)
            values, vectors = hessian.eigenvalues(maxIter=100, tol=tol**2, top_n=K)
        return Found(values, np.stack([twin.flat(vector).numpy() for vector in vectors], axis=1), product.taken())

    return solve


def lobpcg(problem: Problem, tol: float) -> Callable:
    """JAX's own, started at the former block. Its tol is for the residual over 10 D (lambda + ||Hv||)."""
    product, size = Counted(pf.Objective.hvp), problem.thetas.shape[1]
    cold = jax.random.normal(jax.random.key(0), (size, K))

    @eqx.filter_jit
    def iterate(objective, theta, block):
        return lobpcg_standard(partial(product, objective, theta), block, tol=tol / (20 * size))

    def solve(theta, former):
        values, vectors, _ = iterate(problem.objective, theta, former.vectors if former else cold)
        # Less its check of shapes, one column whose result is not used, so that XLA drops it.
        return Found(values, vectors, product.taken() - 1)

    return solve


def matfree(problem: Problem, tol: float) -> Callable:
    """Lanczos with a fixed number of products: the least of some that serves the first and the last iterate."""
    from matfree import decomp, eig  # pyright: ignore

    product, start = Counted(pf.Objective.hvp), jax.random.normal(jax.random.key(0), problem.thetas.shape[1:])

    def solve_with(products):
        eigh = eig.eigh_partial(decomp.tridiag_sym(products))
        iterate = eqx.filter_jit(lambda objective, theta: eigh(partial(product, objective, theta), start))

        def solve(theta, former):
            values, vectors = iterate(problem.objective, theta)
            return Found(values[-K:], vectors[-K:].T, product.taken())

        return solve

    for products in (10, 15, 20, 25, 30, 40, 50, 70, 100):
        solve = solve_with(products)
        if all(judge(problem, theta, solve(theta, None)) <= tol for theta in problem.thetas[jnp.array([0, -1])]):
            break
    return solve


CONTENDERS = {
    "principalflow": Contender(principalflow, compiles=True, every_step=True),
    "principalflow-1e-4": Contender(principalflow, compiles=True, every_step=True, tol=1e-4),
    "principalflow.torch": Contender(principalflow_torch, compiles=True, every_step=True),
    "eigsh-cold": Contender(partial(eigsh_torch, product_of=double_backward)),
    "eigsh-warm": Contender(partial(eigsh_torch, product_of=double_backward, warm=True)),
    "curvlinops": Contender(partial(eigsh_torch, product_of=curvlinops)),
    "pyhessian": Contender(pyhessian),
    "lobpcg": Contender(lobpcg, compiles=True),
    "matfree": Contender(matfree, compiles=True, every_step=True),
}


def by_eigsh(product: Callable, size: int, tol: float, v0: np.ndarray | None = None) -> Found:
    counted = Counted(product)
    operator = LinearOperator((size, size), matvec=counted, dtype=np.float32)  # pyright: ignore
    values, vectors = eigsh(operator, K, which="LA", tol=tol, v0=v0)  # pyright: ignore
    return Found(values[::-1], vectors[:, ::-1], counted.taken())


class Counted:
    """A product whose last argument is a vector or block; counts columns when it runs, not when JAX traces it."""

    def __init__(self, product: Callable):
        self.product, self.columns = product, 0

    def __call__(self, *arguments):
        block = arguments[-1]
        jax.debug.callback(partial(self._add, block.shape[1] if getattr(block, "ndim", 1) == 2 else 1))
        return self.product(*arguments)

    def _add(self, columns):
        self.columns += columns

    def taken(self) -> int:
        jax.effects_barrier()
        columns, self.columns = self.columns, 0
        return columns


class Twin:
    """The same loss in PyTorch, with the same flat parameters."""

    def __init__(self, problem: Problem):
        import torch  # pyright: ignore

        self.torch = torch
        self.network = problem.network.twin(problem.objective.unravel(problem.thetas[0]))
        self.criterion = torch.nn.CrossEntropyLoss()
        self.inputs, self.labels = torch.tensor(problem.data.inputs), torch.tensor(problem.data.labels)

    def load(self, theta: jax.Array) -> None:
        self.torch.nn.utils.vector_to_parameters(self.torch.tensor(np.asarray(theta)), self.network.parameters())

    def loss(self):
        return self.criterion(self.network(self.inputs), self.labels)

    def product(self, v: np.ndarray) -> np.ndarray:
        """Forward, backward with its graph, and backward through the gradient's dot product with v."""
        parameters = list(self.network.parameters())
        gradient = self.flat(self.torch.autograd.grad(self.loss(), parameters, create_graph=True))
        return self.flat(self.torch.autograd.grad(gradient @ self.torch.tensor(v), parameters)).numpy()

    def flat(self, leaves):
        return self.torch.cat([leaf.flatten() for leaf in leaves])


def check_twin(problem: Problem) -> None:
    """Stops the benchmark if PyTorch, where it is installed, has another loss or Hessian than JAX."""
    try:
        twin = Twin(problem)
    except ModuleNotFoundError:
        return
    theta = problem.thetas[-1]
    twin.load(theta)
    v = np.random.default_rng(1).standard_normal(theta.size).astype(np.float32)
    loss, product = problem.objective.value(theta), problem.objective.hvp(theta, v)
    for name, ours, theirs in (("losses", loss, twin.loss().item()), ("products", product, twin.product(v))):
        difference = float(jnp.linalg.norm(ours - theirs) / jnp.linalg.norm(ours))
        if not difference < 1e-4:  # rounding makes some 1e-6
            sys.exit(f"{problem.name}: the {name} of JAX and PyTorch differ by {difference:.1e}.")


def trained(name: str, network: Network, data: Data, steps: int) -> Problem:
    objective = pf.Objective(network.cross_entropy, network.layers(), (data.inputs, data.labels.astype(np.int32)))
    return Problem(name, network, data, objective, pf.descend(objective, objective.theta, 0.05, steps - 1).thetas)


def print_table(name: str, section: dict) -> None:
    print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in section.items() if key != "contenders"))
    heads = ["steps", "first", "products", "residual", "max", "within", "error", "seconds", "ratio"]
    print(f"    {'':<18}" + "".join(f"{head:>10}" for head in heads))
    for contender, row in section["contenders"].items():
        values = [] if row == MISSING else ["-" if value is None else f"{value:.3g}" for value in row.values()]
        print(f"    {contender:<18}" + ("".join(f"{value:>10}" for value in values) or f"     {MISSING}"))
    print()


if __name__ == "__main__":
    main()
