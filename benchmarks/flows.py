"""What the flows cost, and how exact they are: the figures in docs/flows.md.

    python benchmarks/flows.py          a table
    python benchmarks/flows.py --json   the same for programs

Times are compared within this run; the ratio is the result, not the seconds. MNIST is that of `principalflow.data`: in
the folder PRINCIPALFLOW_DATA, or downloaded. `integrate` is compared with diffrax, which compiles a solver for each
flow and loss, and with scipy, whose solvers call the compiled field.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from functools import partial
from itertools import pairwise

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from _problems import mnist  # noqa: E402
from scipy.integrate import solve_ivp  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

import principalflow as pf  # noqa: E402
from principalflow.spectrum import krylov  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--first", choices=FIRST, help="print the seconds of one first call, for `first_calls`")
    arguments = parser.parse_args()
    as_json = arguments.json
    if arguments.first:
        problem, solve = FIRST[arguments.first]
        given = problem()
        began = time.perf_counter()
        solve(*given)
        print(time.perf_counter() - began)
        return
    figures = {}
    # The large network first: the peak of memory is the process's so far.
    sections = (
        mnist_network,
        digits_network,
        path,
        stops,
        adaptive_against_euler,
        quadratics,
        orders,
        banana_branches,
        first_calls,
    )
    for section in sections:
        figures[section.__name__] = section()
        if not as_json:
            print(f"{section.__name__}: {(section.__doc__ or '').strip()}")
            for name, value in figures[section.__name__].items():
                print(f"    {name:<44} {value:.4g}" if isinstance(value, float) else f"    {name:<44} {value}")
    if as_json:
        print(json.dumps(figures, indent=2))


def mnist_network() -> dict:
    """One principal field of a 784-100-100-100-10 network on 5,000 samples (at most 60 products, 3 GiB)."""
    images, labels, data = mnist(5000)
    inputs, targets = (images - 0.1307) / 0.3081, np.eye(10)[labels]
    objective = pf.Objective(square_loss, network([784, 100, 100, 100, 10]), (inputs, targets))
    theta = pf.descend(objective, objective.theta, 0.02, 30).thetas[-1]
    h = 1.5 / sharpness(objective, theta)
    flow = pf.flows.Principal(h)
    gradient_seconds, _ = timed(lambda: objective.gradient(theta))
    real_seconds, real = timed(lambda: flow.evaluate(objective, theta))
    complex_seconds, at_complex = timed(lambda: flow.evaluate(objective, theta + 0.001j))
    return {
        "data": data,
        "parameters": int(theta.size),
        "h lambda_0": 1.5,
        "products at real theta": int(real.products),
        "products at complex theta": int(at_complex.products),
        "error estimates": [float(real.error), float(at_complex.error)],
        "field over gradient, seconds, real theta": real_seconds / gradient_seconds,
        "field over gradient, seconds, complex theta": complex_seconds / gradient_seconds,
        "peak memory, GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def digits_network() -> dict:
    """Krylov against all eigenvalues on a 3,466-parameter network (1e-8, at most 30 products, 50 times faster)."""
    objective, theta, h = digits()
    krylov, dense = (pf.flows.Principal(h, method=method) for method in ("krylov", "dense"))
    krylov_seconds, fast = timed(lambda: krylov.evaluate(objective, theta))
    dense_seconds, exact = timed(lambda: dense.evaluate(objective, theta), repeats=1)
    return {
        "parameters": int(theta.size),
        "h lambda_0": h * sharpness(objective, theta),
        "relative difference": float(jnp.linalg.norm(fast.vector - exact.vector) / jnp.linalg.norm(exact.vector)),
        "products": int(fast.products),
        "dense over krylov, seconds": dense_seconds / krylov_seconds,
    }


def path() -> dict:
    """Fields along two learning rates from steps of the digits network's training (errors 1e-8)."""
    objective, _, h = digits()
    training, flow = pf.descend(objective, objective.theta, h, 1600).thetas, pf.flows.Principal(h)
    figures = {}
    for step in (100, 400, 800, 1600):
        thetas = pf.integrate(flow, objective, training[step], 2 * h, saves=40).thetas
        fields = [flow.evaluate(objective, theta) for theta in thetas]
        products = [int(field.products) for field in fields]
        exact = [pf.flows.Principal(h, rtol=1e-15).evaluate(objective, theta).vector for theta in thetas[::8]]
        errors = [relative(field.vector - vector, vector) for field, vector in zip(fields[::8], exact, strict=True)]
        fewest = [fewest_products(objective, *each) for each in zip(thetas[::8], exact, strict=True)]
        figures |= {
            f"step {step}: products of a field, mean": float(np.mean(products)),
            f"step {step}: products of a field, most": max(products),
            f"step {step}: fewest for any method": f"{min(fewest)} to {max(fewest)}",
            f"step {step}: largest relative error": max(errors),
        }
    return figures


def fewest_products(objective, theta, vector, rtol=1e-8) -> int:
    """Of the Krylov spaces of the Hessian and the gradient the first that has a vector so near to this one."""
    gradient, product = objective.linearize(theta)
    basis, w = [], gradient
    while True:
        for _ in range(2):
            for q in basis:
                w = w - q * jnp.vdot(q, w)
        basis.append(w / jnp.linalg.norm(w))
        rest = vector
        for q in basis:
            rest = rest - q * jnp.vdot(q, rest)
        if relative(rest, vector) <= rtol:
            return len(basis)
        w = product(basis[-1])


def stops() -> dict:
    """Shares of 3,000 errors above what was asked for and above 10 times it, weights above 1/h being 1e-2 to 1e-9."""
    size, random, flow = 80, np.random.default_rng(0), pf.flows.Principal(1.0)

    def coefficients(T):
        values, vectors = jnp.linalg.eigh(T)
        return (vectors * flow.alpha(values)) @ vectors[0], jnp.zeros(())

    by_krylov = jax.jit(lambda values, v, rtol: krylov(lambda w: values * w, v, coefficients, rtol, size, True).vector)
    beyond: dict[float, list[float]] = {1e-4: [], 1e-6: [], 1e-8: []}
    for _ in range(3000):
        values = 10.0 ** random.uniform(-6, -0.3, size) * random.choice([1, 1, 1, -0.2], size)
        large = random.integers(1, 12)
        values[:large] = random.uniform(0.3, 2.2, large)
        v = random.standard_normal(size) * np.where(values > 1, 10.0 ** random.uniform(-9, -2, size), 1)
        expected = v * flow.alpha(values)
        for rtol, errors in beyond.items():
            errors.append(relative(by_krylov(values, v, rtol) - expected, expected) / rtol)
    return {
        f"asked for {rtol:g}": [float(np.mean(np.array(errors) > most)) for most in (1, 10)]
        for rtol, errors in beyond.items()
    }


def relative(difference, vector) -> float:
    return float(jnp.linalg.norm(difference) / jnp.linalg.norm(vector))


def adaptive_against_euler() -> dict:
    """The NGF over one learning rate (at 1e-6: 20 times fewer gradients than Euler, and closer)."""
    objective, theta, _ = digits()
    flow, h = pf.flows.NegativeGradient(), 0.05
    reference = pf.integrate(flow, objective, theta, h, rtol=1e-12, atol=1e-15).thetas[-1]
    adaptive = pf.integrate(flow, objective, theta, h, rtol=1e-9)
    euler = pf.integrate(flow, objective, theta, h, solver="euler", step=5e-5)

    def error(solution):
        return float(jnp.linalg.norm(solution.thetas[-1] - reference) / jnp.linalg.norm(reference - theta))

    return {
        "h": h,
        "gradients, adaptive": adaptive.evaluations,
        "gradients, euler": euler.evaluations,
        "fewer by": euler.evaluations / adaptive.evaluations,
        "error over distance moved, adaptive": error(adaptive),
        "error over distance moved, euler": error(euler),
    }


def quadratics() -> dict:
    """The principal flow against descent over 20 steps, 20 dimensions, h lambda in (-1, 3) (1e-8)."""
    random, h = np.random.default_rng(0), 0.3
    z = np.concatenate([[-0.99, 2.99, 1e-3, -5e-4, 1 - 1e-3, 1 + 7e-4], random.uniform(-1, 3, 14)])
    basis, _ = np.linalg.qr(random.standard_normal((20, 20)))
    A, b, theta = (basis * z / h) @ basis.T, random.standard_normal(20), random.standard_normal(20)
    A = (A + A.T) / 2
    bowl, flow = pf.functions.quadratic(A, b), pf.flows.Principal(h)
    path = pf.descend(bowl, theta, h, 20).thetas
    integrated = pf.integrate(flow, bowl, theta, 20 * h, rtol=1e-12, atol=1e-14, saves=20).thetas
    closed = pf.flows.solve_quadratic(flow, A, b, theta, h * np.arange(21))
    worst = [jnp.max(jnp.linalg.norm(x - path, axis=1) / jnp.linalg.norm(path, axis=1)) for x in (integrated, closed)]
    return {
        "largest relative error, integrated": float(worst[0]),
        "largest relative error, closed form": float(worst[1]),
    }


def orders() -> dict:
    """Slopes of the one-step error of BackwardError, which should be n + 2 within 0.4."""
    random = np.random.default_rng(0)
    small = pf.Objective(
        square_loss, network([2, 4, 1]), (random.standard_normal((11, 2)), random.standard_normal((11, 1)))
    )
    problems = {
        "banana": (pf.functions.banana(), jnp.array([1.3, 1.5]), np.geomspace(1.5e-5, 6e-5, 4)),
        "tanh network": (small, small.theta, np.geomspace(0.006, 0.024, 4)),
    }
    slopes = {}
    for name, (objective, theta, rates) in problems.items():
        for order in range(6):
            errors = []
            for h in rates:
                flow = pf.flows.BackwardError(h, order=order)
                end = pf.integrate(flow, objective, theta, h, rtol=1e-14, atol=1e-16).thetas[-1]
                errors.append(jnp.linalg.norm(end - (theta - h * objective.gradient(theta))))
            slopes[f"{name}, order {order}"] = float(np.polyfit(np.log(rates), np.log(errors), 1)[0])
    return slopes


def banana_branches() -> dict:
    """One step of h = 0.0017 from (1.3, 1.5) (at most 50 solver steps, a fifth of the principal branch's error)."""
    banana, theta, h = pf.functions.banana(), jnp.array([1.3, 1.5]), 0.0017
    step = theta - h * banana.gradient(theta)
    continuous = pf.integrate(pf.flows.Principal(h), banana, theta, h, rtol=1e-9)
    textbook = pf.flows.Principal(h, branch="principal")
    adaptive = pf.integrate(textbook, banana, theta, h, rtol=1e-9)
    euler = pf.integrate(textbook, banana, theta, h, solver="euler", step=h / 20_000)
    errors = [float(jnp.linalg.norm(s.thetas[-1] - step)) for s in (continuous, euler)]
    return {
        "solver steps, continuous": continuous.steps,
        "status, principal, adaptive": adaptive.status,
        "error, continuous": errors[0],
        "error, principal, 20,000 Euler steps": errors[1],
        "principal over continuous": errors[1] / errors[0],
    }


def first_calls() -> dict:
    """Seconds of a first call in a new process, compiling included, and how many times longer others take."""
    seconds = {}
    for name in FIRST:
        command = [sys.executable, __file__, "--first", name]
        runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(REPEATS)]
        seconds[name] = sorted(float(text.split()[-1]) for text in runs)
    ours = {name.partition(",")[0]: times[REPEATS // 2] for name, times in seconds.items() if name.endswith("ours")}
    return {
        name: f"{times[REPEATS // 2]:.2f} s ({times[0]:.2f} to {times[-1]:.2f})"
        + ("" if name.endswith("ours") else f", over ours {times[REPEATS // 2] / ours[name.partition(',')[0]]:.1f}")
        for name, times in seconds.items()
    }


def readme():
    """The network of the README, its rate, and the three flows that are compared there."""
    keys = jax.random.split(jax.random.key(0), 4)
    params = {"in": jax.random.normal(keys[0], (2, 10)), "out": jax.random.normal(keys[1], (10, 1))}
    data = (jax.random.normal(keys[2], (5, 2)), jax.random.normal(keys[3], (5, 1)))

    def loss(params, batch):
        hidden = jnp.tanh(batch[0] @ params["in"])
        return jnp.mean((hidden @ params["out"] - batch[1]) ** 2)

    h = 0.1
    flows = {"NGF": pf.flows.NegativeGradient(), "IGR": pf.flows.IGR(h), "PF": pf.flows.Principal(h)}
    return pf.Objective(loss, params, data), h, flows


def compare(objective, h, flows) -> None:
    pf.compare(objective, objective.theta, h, 5, flows)


def compare_by(solve, objective, h, flows) -> None:
    """The paths of the same table: each flow for five steps from the start, and for one from each iterate."""
    path = pf.descend(objective, objective.theta, h, 5).thetas
    for flow in flows.values():
        for theta in path[:-1]:
            solve(flow, objective, theta, h, 1, 1e-6)
        solve(flow, objective, path[0], h, 5, 1e-6)


def banana():
    """The principal flow on the banana function over thousands of solver steps."""
    h = 0.0006
    return pf.flows.Principal(h), pf.functions.banana(), jnp.array([1.0, 0.7]), h, 500, 1e-9


def edge():
    """The complex flow of 3,466 parameters for one step, at the edge."""
    objective, theta, h = digits()
    return pf.flows.Principal(h, rtol=1e-5), objective, theta, h, 1, 1e-4


def training():
    """The negative gradient flow along a training of an MLP on MNIST."""
    images, labels, _ = mnist(1000)
    objective = pf.Objective(square_loss, network([784, 100, 100, 10]), (images - 0.1307, np.eye(10)[labels]))
    return pf.flows.NegativeGradient(), objective, objective.theta, 0.1, 100, 1e-5


def ours(flow, objective, theta, h, steps, rtol) -> None:
    pf.integrate(flow, objective, theta, steps * h, rtol=rtol, saves=steps, max_steps=100_000)


def by_scipy(flow, objective, theta, h, steps, rtol) -> None:
    field = jax.jit(lambda theta: flow.field(objective, theta))
    start = np.asarray(flow.start(objective, theta))
    times, method = np.linspace(0, steps * h, steps + 1), "DOP853" if rtol < 1e-8 else "RK45"
    span = (0, times[-1])
    solve_ivp(lambda _, y: np.asarray(field(y)), span, start, method=method, t_eval=times, rtol=rtol, atol=1e-9)


def by_diffrax(flow, objective, theta, h, steps, rtol) -> None:
    import diffrax  # pyright: ignore

    times = jnp.linspace(0, steps * h, steps + 1)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, args: flow.field(objective, y)),
        diffrax.Dopri8() if rtol < 1e-8 else diffrax.Tsit5(),
        0.0,
        steps * h,
        h / 10,
        flow.start(objective, theta),
        stepsize_controller=diffrax.PIDController(rtol=rtol, atol=1e-9),
        saveat=diffrax.SaveAt(ts=times),
        adjoint=diffrax.ForwardMode(),
        max_steps=100_000,
    )
    jax.block_until_ready(solution.ys)


PATHS = {"banana": banana, "edge": edge, "training": training}
WAYS = {"ours": ours, "diffrax": by_diffrax, "scipy": by_scipy}
FIRST = {
    "compare, ours": (readme, compare),
    **{f"compare, {way}": (readme, partial(compare_by, WAYS[way])) for way in ("diffrax", "scipy")},
    **{f"{name}, {way}": (problem, solve) for name, problem in PATHS.items() for way, solve in WAYS.items()},
}
REPEATS = 3


def digits():
    """A tanh network after 1,600 steps on 600 digits, where the largest curvature is close to 2/h."""
    images, labels = load_digits(return_X_y=True)
    data = (images[:600] / 16, np.eye(10)[labels[:600]])
    objective = pf.Objective(square_loss, network([64, 32, 32, 10]), data)
    h = 0.115
    return objective, pf.descend(objective, objective.theta, h, 1600).thetas[-1], h


def network(sizes):
    random = np.random.default_rng(0)
    return [(jnp.asarray(random.standard_normal((a, b)) / np.sqrt(a)), jnp.zeros(b)) for a, b in pairwise(sizes)]


def square_loss(params, batch):
    x, targets = batch
    for weights, bias in params[:-1]:
        x = jnp.tanh(x @ weights + bias)
    difference = x @ params[-1][0] + params[-1][1] - targets
    return jnp.mean(jnp.sum(difference * difference, axis=1)) / 2


def sharpness(objective, theta) -> float:
    """The largest eigenvalue, by power iteration."""
    v = jnp.ones(theta.size)
    for _ in range(100):
        v = objective.hvp(theta, v / jnp.linalg.norm(v))
    return float(jnp.linalg.norm(v))


def timed(call, repeats=5):
    """The least seconds of several calls after a first one that compiles, and the result."""
    result = jax.block_until_ready(call())
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = jax.block_until_ready(call())
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


if __name__ == "__main__":
    main()
