"""Networks, sweeps and the monitor: what they cost, beside PyTorch and beside doing without.

    python benchmarks/networks.py                    all sections as a table
    python benchmarks/networks.py --json             the same for programs
    python benchmarks/networks.py --only vgg sweep   some of them

Sections:
    vgg      gradient and Hessian product of VGG-11 on 128 images, beside PyTorch's with and without channels last
    narrow   the same for VGG-11 and ResNet-18 of an eighth of the channels, with each normalisation
    layers   the convolutions of these networks one by one, each way that JAX has beside ours and PyTorch's
    mlp      the same for the 784-100-100-100-10 network on 5,000 samples
    sweep    ten learning rates in one sweep, beside ten single runs without the time that they compile for; the same
             sweep with all runs at once; and 500 steps that log their loss beside 500 that don't
    monitor  a training loop with a monitor of budget 0.1, beside the same loop without
    memory   the peak of a whole-data gradient and product of VGG-11 on 5,000 images in chunks of 250

Times are the best of several rounds in which contenders take turns; ratios within this run are the result, and only on
an idle machine. Both frameworks have the same parameters and agree on loss and product, which is checked. Data are
random numbers of the right shapes, except for the sweep's digits. Memory is kept as the command line does.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np

import principalflow as pf
from principalflow import _steps
from principalflow.models import _convolution
from principalflow.training import Options, _problem
from principalflow.training._optimizer import optimizer

IMAGES = (32, 32, 3)
# The side of the images, channels in and out, the side of the kernel and the stride; of narrow networks and full ones.
LAYERS = (
    *((32, 3, 8, 3, 1), (32, 8, 8, 3, 1), (32, 8, 16, 3, 2), (16, 16, 16, 3, 1), (8, 32, 32, 3, 1), (8, 32, 64, 1, 2)),
    *((4, 64, 64, 3, 1), (2, 64, 64, 3, 1), (32, 3, 64, 3, 1), (16, 64, 128, 3, 1), (8, 256, 256, 3, 1)),
    *((4, 512, 512, 3, 1), (2, 512, 512, 3, 1)),
)
RATES = tuple(round(0.05 * (i + 1), 2) for i in range(10))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="SECTION")
    options = parser.parse_args()
    pf.keep_memory()
    figures: dict[str, dict[str, Any]] = {}
    for name in options.only:
        figures[name] = SECTIONS[name]()
        if not options.json:
            print(name, *(f"    {key:52} {value:.4g}" for key, value in figures[name].items()), sep="\n", flush=True)
    if options.json:
        print(json.dumps(figures, indent=2))


def vgg() -> dict[str, float]:
    return beside_torch(pf.models.VGG(IMAGES, 10, jax.random.key(0)), random_images(128, IMAGES), rounds=5)


def narrow() -> dict[str, float]:
    """Networks of an eighth of the channels, as the experiments have them."""
    figures: dict[str, float] = {}
    kinds: dict[str, Callable] = {"VGG-11": pf.models.VGG, "ResNet-18": pf.models.ResNet}
    for name, kind in kinds.items():
        for normalization in pf.models.NORMALIZATIONS:
            model = kind(IMAGES, 10, jax.random.key(0), width=0.125, normalization=normalization)
            figures |= {
                f"{name}, {normalization}: {what}": value
                for what, value in beside_torch(model, random_images(128, IMAGES), rounds=15).items()
            }
    return figures


def layers() -> dict[str, float]:
    """Milliseconds of a convolution and of its two derivatives, in our way, each of the others, and PyTorch's."""
    import torch  # pyright: ignore

    figures = {}
    for side, inputs, outputs, size, stride in LAYERS:
        random = np.random.default_rng(0)
        x = jnp.asarray(random.standard_normal((128, side, side, inputs)), jnp.float32)
        weight = jnp.asarray(random.standard_normal((size, size, inputs, outputs)), jnp.float32)
        y = _convolution.by_xla(x, weight, stride)
        ways = {"ours": _convolution.convolve, "patches": _convolution.by_patches, "XLA": _convolution.by_xla}
        calls: dict[str, Callable] = {}
        for name, way in ways.items():
            convolve = partial(way, stride=stride)
            calls[f"{name}: image"] = waited(convolve, x, weight)
            calls[f"{name}: by the image"] = waited(partial(by_image, convolve), x, weight, y)
            calls[f"{name}: by the weight"] = waited(partial(by_weight, convolve), x, weight, y)
        images, cotangents = (torch.tensor(np.asarray(a)).permute(0, 3, 1, 2) for a in (x, y))
        kernels = kernel(torch, torch.tensor(np.asarray(weight)), torch.channels_last)
        backward = partial(torch.ops.aten.convolution_backward, cotangents, images, kernels, None)
        sizes = [stride] * 2, [size // 2] * 2, [1, 1], False, [0, 0], 1
        calls["PyTorch: image"] = partial(torch.nn.functional.conv2d, images, kernels, None, stride, size // 2)
        calls["PyTorch: by the image"] = partial(backward, *sizes, [True, False, False])
        calls["PyTorch: by the weight"] = partial(backward, *sizes, [False, True, False])
        layer = f"{side} x {side}, {inputs} to {outputs}, {size} x {size}, stride {stride}"
        figures |= {f"{layer}: {name}, ms": 1000 * seconds for name, seconds in best(calls, rounds=10).items()}
    return figures


def by_image(convolve: Callable, x: jax.Array, weight: jax.Array, y: jax.Array) -> jax.Array:
    return jax.vjp(lambda x: convolve(x, weight), x)[1](y)[0]


def by_weight(convolve: Callable, x: jax.Array, weight: jax.Array, y: jax.Array) -> jax.Array:
    return jax.vjp(lambda weight: convolve(x, weight), weight)[1](y)[0]


def waited(function: Callable, *arguments: jax.Array) -> Callable:
    """Returns a compiled call that ends when its result is there."""
    compiled = jax.jit(function)
    return lambda: jax.block_until_ready(compiled(*arguments))


def mlp() -> dict[str, float]:
    model = pf.models.MLP(784, (100, 100, 100), 10, jax.random.key(0))
    return beside_torch(model, random_images(5000, (784,)), rounds=15)


def beside_torch(model: Any, data: tuple, rounds: int) -> dict[str, float]:
    """Gradients and Hessian products, ours and PyTorch's in its memory formats, and their ratios."""
    import torch  # pyright: ignore

    objective = pf.Objective(pf.models.loss(), model, data)
    theta = objective.theta
    v = jnp.asarray(np.random.default_rng(1).standard_normal(theta.size), theta.dtype)
    leaves, structure = jax.tree.flatten(model)
    leaves = [torch.tensor(np.asarray(leaf)) for leaf in leaves]
    directions = [torch.tensor(np.asarray(leaf)) for leaf in jax.tree.leaves(objective.unravel(v))]
    calls: dict[str, Callable] = {
        "gradient": lambda: jax.block_until_ready(objective.gradient(theta)),
        "product": lambda: jax.block_until_ready(objective.hvp(theta, v)),
        "four gradients in a loop": waited(
            lambda thetas: jax.lax.map(objective.gradient, thetas), jnp.stack([theta] * 4)
        ),
    }
    formats = {"PyTorch": torch.contiguous_format, "PyTorch, channels last": torch.channels_last}
    for name, memory in formats.items() if data[0].ndim == 4 else [("PyTorch", torch.contiguous_format)]:
        params = [kernel(torch, leaf, memory).requires_grad_() for leaf in leaves]
        along = [kernel(torch, leaf, memory) for leaf in directions]
        twin = jax.tree.unflatten(structure, params)  # the same modules, with PyTorch's tensors
        inputs, labels = torch.tensor(data[0]), torch.tensor(data[1])
        if inputs.ndim == 4:
            inputs = inputs.permute(0, 3, 1, 2).contiguous(memory_format=memory)

        def loss(twin=twin, inputs=inputs, labels=labels):
            return torch.nn.functional.cross_entropy(torch_outputs(torch.nn.functional, twin, inputs), labels)

        def gradient(params=params, loss=loss):
            return torch.autograd.grad(loss(), params)

        def product(params=params, along=along, loss=loss):
            gradients = torch.autograd.grad(loss(), params, create_graph=True)
            return torch.autograd.grad(gradients, params, grad_outputs=along)

        theirs = sum((a * b).sum().item() for a, b in zip(product(), along, strict=True))
        check(name, v, objective.hvp(theta, v), theirs)
        calls |= {f"{name}: gradient": gradient, f"{name}: product": product}
    seconds = best(calls, rounds)
    figures = {f"{name}, seconds": value for name, value in seconds.items()}
    figures["gradient in a loop over one alone"] = seconds["four gradients in a loop"] / (4 * seconds["gradient"])
    for kind in ("gradient", "product"):
        fastest = min(value for name, value in seconds.items() if name.endswith(f": {kind}"))
        figures[f"{kind} over PyTorch's best"] = seconds[kind] / fastest
    return figures


def torch_outputs(functional: Any, model: Any, x: Any) -> Any:
    """What PyTorch makes of one of our networks that has its tensors."""
    if isinstance(model, pf.models.MLP):
        for layer in model.layers[:-1]:
            x = functional.elu(functional.linear(x, layer.weight, layer.bias))
        return functional.linear(x, model.layers[-1].weight, model.layers[-1].bias)
    if isinstance(model, pf.models.VGG):
        for stage in model.stages:
            for layer in stage:
                x = functional.elu(torch_layer(functional, layer, x))
            x = functional.avg_pool2d(x, 2)
        return functional.linear(x.flatten(1), model.head.weight, model.head.bias)
    x = functional.elu(torch_layer(functional, model.stem, x))
    for block in model.blocks:
        y = x
        for layer in block.branch[:-1]:
            y = functional.elu(torch_layer(functional, layer, y))
        around = x if block.shortcut is None else torch_layer(functional, block.shortcut, x)
        x = functional.elu(torch_layer(functional, block.branch[-1], y) + around)
    return functional.linear(x.mean((2, 3)), model.head.weight, model.head.bias)


def torch_layer(functional: Any, layer: Any, x: Any) -> Any:
    """A convolution and its normalisation."""
    conv, norm = layer.conv, layer.norm
    x = functional.conv2d(x, conv.weight, conv.bias, stride=conv.stride, padding=conv.weight.shape[-1] // 2)
    if isinstance(norm, pf.models.BatchNorm):
        return functional.batch_norm(x, None, None, norm.scale, norm.shift, training=True)
    return x if norm is None else functional.group_norm(x, norm.groups, norm.scale, norm.shift)


def kernel(torch: Any, leaf: Any, memory: Any) -> Any:
    """Returns a weight in PyTorch's order of axes."""
    if leaf.ndim == 4:
        return leaf.permute(3, 2, 0, 1).contiguous(memory_format=memory)
    return leaf.T.contiguous() if leaf.ndim == 2 else leaf.clone()


def sweep() -> dict[str, float]:
    options = Options(learning_rate=RATES, steps=500)
    compiling = Compilation()
    run(Options(learning_rate=0.01, steps=10))  # what is compiled once in a process, whatever is trained
    seconds_of_sweep, _ = compiling.timed(lambda: run(options))
    single = compiled = 0.0
    for rate in RATES:
        seconds, of_compilation = compiling.timed(lambda rate=rate: run(Options(learning_rate=rate, steps=500)))
        single, compiled = single + seconds, compiled + of_compilation
    at_once, _ = compiling.timed(lambda: run(options, together=True))
    return {
        "sweep, seconds": seconds_of_sweep,
        "ten single runs, seconds": single,
        "of which they compile, seconds": compiled,
        "sweep over single runs without compilation": seconds_of_sweep / (single - compiled),
        "all at once (vmap) over one after another": at_once / seconds_of_sweep,
        **logging(),
    }


def run(options: Options, **how: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pf.training.run(options, folder, progress=False, **how)


def logging() -> dict[str, float]:
    """Steps of descent that log loss, gradient norm and rate, beside bare ones."""
    options = Options(learning_rate=0.1)
    objective, chosen = _problem.problem(options, progress=False).objective, optimizer(options)
    state, count = _steps.State(objective.theta, chosen.init(objective.theta)), jnp.asarray(_steps.AT_ONCE, jnp.int32)
    rates = jnp.full(_steps.AT_ONCE, 0.1, objective.theta.dtype)
    bare = jax.jit(
        lambda theta: jax.lax.fori_loop(0, _steps.AT_ONCE, lambda _, t: t - 0.1 * objective.gradient(t), theta)
    )
    calls = {
        "logged": lambda: jax.block_until_ready(_steps.advance(objective, chosen, state, rates, None, count)),
        "bare": lambda: jax.block_until_ready(bare(objective.theta)),
    }
    seconds = best(calls, 15)
    return {"steps with a log over bare ones": seconds["logged"] / seconds["bare"]}


def monitor() -> dict[str, float]:
    """A loop of descent on the MNIST network, without a monitor, and with one that compiles anew as a user's would."""
    steps = 4000
    model = pf.models.MLP(784, (100, 100, 100), 10, jax.random.key(0))
    objective = pf.Objective(pf.models.loss(), model, random_images(5000, (784,)))
    step = jax.jit(lambda theta: theta - 0.05 * objective.gradient(theta))

    def loop(observe: Callable) -> float:
        jax.block_until_ready(step(objective.theta))
        theta, began = objective.theta, time.perf_counter()
        for i in range(steps):
            observe(i, theta, 0.05)
            theta = step(theta)
        jax.block_until_ready(theta)
        return time.perf_counter() - began

    before = loop(lambda *_: None)
    jax.clear_caches()
    watch = pf.Monitor(objective, every=1, budget=0.1)
    watched = loop(watch.observe)
    without = (before + loop(lambda *_: None)) / 2  # of before and after, since machines drift
    return {
        "loop, seconds": without,
        "with a monitor over without": watched / without,
        "time that the monitor counts as its own, over the loop's": watch.overhead,
        "measurements": len(watch.rows),
    }


def memory() -> dict[str, float]:
    """Peaks in processes of their own."""
    code = "import networks; print(networks.peak({!r}))"
    figures = {}
    for kind in ("gradient", "product"):
        command = [sys.executable, "-c", code.format(kind)]
        output = subprocess.run(command, cwd=sys.path[0], capture_output=True, text=True, check=True).stdout
        figures[f"{kind}, peak in GiB"] = float(output)
    return figures


def peak(kind: str) -> float:
    objective = pf.Objective(
        pf.models.loss(), pf.models.VGG(IMAGES, 10, jax.random.key(0)), random_images(5000, IMAGES), chunk=250
    )
    theta = objective.theta
    call = objective.gradient if kind == "gradient" else lambda theta: objective.hvp(theta, theta)
    jax.block_until_ready(call(theta))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def random_images(samples: int, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    return random.standard_normal((samples, *shape), np.float32), random.integers(0, 10, samples)


def best(calls: dict[str, Callable], rounds: int) -> dict[str, float]:
    """Returns the least seconds of each call, which take turns; a first round, which may compile, doesn't count."""
    seconds = {name: float("inf") for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            if number:
                seconds[name] = min(seconds[name], time.perf_counter() - began)
    return seconds


class Compilation:
    """Adds up the seconds that JAX spends tracing, lowering and compiling."""

    def __init__(self) -> None:
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            self.seconds += duration_secs

    def timed(self, call: Callable) -> tuple[float, float]:
        """Returns the seconds of a call, and those of them that were compilation."""
        before, began = self.seconds, time.perf_counter()
        call()
        return time.perf_counter() - began, self.seconds - before


def check(name: str, v: jax.Array, product: jax.Array, theirs: float) -> None:
    """Ends with a sentence where v.Hv differs by more than rounding."""
    ours, scale = float(v @ product), float(jnp.linalg.norm(v) * jnp.linalg.norm(product))
    if abs(ours - theirs) > 1e-4 * scale:
        sys.exit(f"{name} has another Hessian: {theirs} instead of {ours}.")


SECTIONS: dict[str, Callable[[], dict[str, float]]] = {
    "vgg": vgg,
    "narrow": narrow,
    "layers": layers,
    "mlp": mlp,
    "sweep": sweep,
    "monitor": monitor,
    "memory": memory,
}


if __name__ == "__main__":
    main()
