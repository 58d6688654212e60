"""What a monitor costs: the loop with and without it, in JAX and PyTorch, and the products of a measurement.

    python benchmarks/monitor.py             tables
    python benchmarks/monitor.py --json      the same for programs

Loops are timed in blocks of steps, without and with the monitor by turns, so that a slow moment of the machine meets
both. The ratio of the medians is the result, with its spread over the repetitions; only on an idle machine.
PRINCIPALFLOW_DATA is the folder with MNIST, see _problems.py.
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from _problems import DIGITS_MLP, MLP, Data, Network, mnist
from sklearn.datasets import load_digits

import principalflow as pf

K, EVERY = 4, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="SECTION")
    options = parser.parse_args()
    figures = {name: SECTIONS[name](options.repeats) for name in options.only}
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    for name, section in figures.items():
        print(f"\n{name}")
        for label, figure in section.items():
            print(f"  {label:58} {figure}")


def cheap(repeats: int) -> dict[str, Any]:
    """The cheap measures at every step, on the step's own batch."""
    found = {}
    for name, network, data, size in problems():
        for framework, loops in (("JAX", jax_loops), ("PyTorch", torch_loops)):
            for optimizer in ("sgd", "adamw"):
                plain, forward, watched = loops(network, data, size, optimizer)
                figures = ratio(plain, watched, repeats)
                figures["ratio_of_forward_pass_alone"] = ratio(plain, forward, repeats)["ratio"]
                found[f"{framework}, {optimizer}, {name}"] = figures
    return found


def problems() -> list[tuple[str, Network, Data, int]]:
    return [
        ("MNIST MLP, batches of 512", MLP, mnist(5000), 512),
        ("MNIST MLP, all 5000 samples", MLP, mnist(5000), 5000),
        ("digits MLP, batches of 128", DIGITS_MLP, digits(), 128),
    ]


def ratio(plain: Callable, watched: Callable, repeats: int) -> dict[str, Any]:
    """Returns the milliseconds a step of both, and the ratio, as the median with the least and the most."""
    steps = max(5, int(0.5 / (timed(plain, 20) / 1000)))
    for loop in (plain, watched):
        loop(5)  # compiles
    pairs = [(timed(plain, steps), timed(watched, steps)) for _ in range(max(repeats, 3) * 3)]
    without, beside = np.array(pairs).T
    ratios = beside / without
    return {
        "plain_ms": round(float(np.median(without)), 3),
        "watched_ms": round(float(np.median(beside)), 3),
        "ratio": round(float(np.median(beside) / np.median(without)), 2),
        "spread": [round(float(x), 2) for x in (ratios.min(), ratios.max())],
    }


def timed(loop: Callable, steps: int) -> float:
    """Returns the milliseconds a step."""
    start = time.perf_counter()
    loop(steps)
    return 1000 * (time.perf_counter() - start) / steps


def jax_loops(network: Network, data: Data, size: int, name: str) -> list[Callable]:
    """Returns the loop alone, with one more forward pass a step, and with the monitor."""
    params = network.layers()
    tx = {"sgd": optax.sgd(0.01, momentum=0.9), "adamw": optax.adamw(1e-3)}[name]
    batches = [(jnp.asarray(x), jnp.asarray(y)) for x, y in parts(data, size)]
    monitor = pf.Monitor(pf.Objective(network.cross_entropy, params, batches[0]), optimizer=tx, measure="cheap")
    loss_of = jax.jit(network.cross_entropy)

    @jax.jit
    def step(params, state, batch):
        loss, gradient = jax.value_and_grad(network.cross_entropy)(params, batch)
        updates, state = tx.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, updates, gradient, loss

    def loop(after: Callable) -> Callable:
        here = [params, tx.init(params), 0]

        def run(steps: int) -> None:
            now, state, count = here
            for _ in range(steps):
                batch = batches[count % len(batches)]
                now, state, updates, gradient, loss = step(now, state, batch)
                count += 1
                after(count, now, state=state, updates=updates, gradient=gradient, loss=loss, batch=batch)
            here[:] = jax.block_until_ready(now), state, count

        return run

    forward = lambda step, params, batch, **_: loss_of(params, batch).item()  # noqa: E731
    return [loop(lambda *_, **__: None), loop(forward), loop(monitor.observe)]


def torch_loops(network: Network, data: Data, size: int, name: str) -> list[Callable]:
    """Returns the same in PyTorch."""
    import torch  # pyright: ignore

    from principalflow.torch import Monitor

    batches = [(torch.tensor(x), torch.tensor(y)) for x, y in parts(data, size)]
    criterion = torch.nn.functional.cross_entropy
    sgd, adamw = lambda p: torch.optim.SGD(p, 0.01, momentum=0.9), lambda p: torch.optim.AdamW(p, 1e-3)

    def loop(after_of: Callable) -> Callable:
        model = network.twin(network.layers())
        optimizer = {"sgd": sgd, "adamw": adamw}[name](model.parameters())
        after, count = after_of(model, optimizer), 0

        def run(steps: int) -> None:
            nonlocal count
            for _ in range(steps):
                x, y = batch = batches[count % len(batches)]
                optimizer.zero_grad()
                loss = criterion(model(x), y)
                loss.backward()
                optimizer.step()
                count += 1
                after(count, batch=batch, loss=loss)

        return run

    def forward(model: Any, optimizer: Any) -> Callable:
        @torch.no_grad()
        def loss_of(step: int, batch: Any, loss: Any) -> None:
            criterion(model(batch[0]), batch[1]).item()

        return loss_of

    def monitor(model: Any, optimizer: Any) -> Callable:
        return Monitor(model, criterion, batches[0], optimizer=optimizer, measure="cheap").observe

    return [loop(lambda *_: lambda *_, **__: None), loop(forward), loop(monitor)]


def parts(data: Data, size: int) -> list[tuple[np.ndarray, np.ndarray]]:
    starts = range(0, len(data.labels) - size + 1, size)
    return [(data.inputs[i : i + size], data.labels[i : i + size]) for i in starts]


def products(repeats: int) -> dict[str, Any]:
    """Hessian products of each measurement in AdamW's metric along full-batch training, k = 4, residual 1e-2."""
    found = {}
    for name, network, data, steps in [("MNIST MLP", MLP, mnist(5000), 200), ("digits MLP", DIGITS_MLP, digits(), 400)]:
        params, batch = network.layers(), (jnp.asarray(data.inputs), jnp.asarray(data.labels))
        tx = optax.adamw(1e-3)
        objective = pf.Objective(network.cross_entropy, params, batch)
        monitor = pf.Monitor(objective, optimizer=tx, k=K, every=1, tol=1e-2)

        @jax.jit
        def step(params, state, network=network, batch=batch, tx=tx):
            updates, state = tx.update(jax.grad(network.cross_entropy)(params, batch), state, params)
            return optax.apply_updates(params, updates), state

        state = tx.init(params)
        for number in range(1, steps + 1):
            params, state = step(params, state)
            monitor.observe(number, params, state=state)
        spent = np.array([row["products"] for row in monitor.rows])
        later = spent[len(spent) // 4 :]
        found[f"{name}, {steps} steps"] = {
            "first": int(spent[0]),
            "median_after_a_quarter": float(np.median(later)),
            "mean_after_a_quarter": round(float(later.mean()), 2),
            "mean": round(float(spent.mean()), 2),
            "converged": round(float(np.mean([row["converged"] for row in monitor.rows])), 3),
        }
    return found


def digits() -> Data:
    images, labels = (np.asarray(array) for array in load_digits(return_X_y=True))
    return Data(np.asarray(images[:600] / 16, np.float32), labels[:600], "digits")


def objective(repeats: int) -> dict[str, Any]:
    """A PyTorch model as an objective: gradient and Hessian product, over PyTorch's own."""
    import torch  # pyright: ignore

    from principalflow.torch import objective as torch_objective

    data = mnist(5000)
    x, y = torch.tensor(data.inputs), torch.tensor(data.labels)
    model = MLP.twin(MLP.layers())
    params, criterion = list(model.parameters()), torch.nn.functional.cross_entropy
    ours = torch_objective(model, criterion, (x, y))
    v = jnp.asarray(np.random.default_rng(0).standard_normal(ours.theta.size), ours.theta.dtype)
    parts = torch.tensor(np.asarray(v)).split([p.numel() for p in params])
    along = [part.reshape(p.shape) for p, part in zip(params, parts, strict=True)]

    def own_gradient(steps: int) -> None:
        for _ in range(steps):
            torch.autograd.grad(criterion(model(x), y), params)

    def own_product(steps: int) -> None:
        for _ in range(steps):
            gradient = torch.autograd.grad(criterion(model(x), y), params, create_graph=True)
            torch.autograd.grad(gradient, params, grad_outputs=along)

    def gradients(steps: int) -> None:
        for _ in range(steps):
            jax.block_until_ready(ours.gradient(ours.theta))

    def our_products(steps: int) -> None:
        for _ in range(steps):
            jax.block_until_ready(ours.hvp(ours.theta, v))

    return {
        "gradient, MNIST MLP, 5000 samples": ratio(own_gradient, gradients, repeats),
        "Hessian product, the same": ratio(own_product, our_products, repeats),
    }


SECTIONS = {"cheap": cheap, "products": products, "objective": objective}

if __name__ == "__main__":
    main()
