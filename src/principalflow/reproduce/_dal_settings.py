"""The sweeps of the experiments on DAL: networks, rates and powers by profile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas

from principalflow._lab import Profile, Tables
from principalflow.reproduce._sweeps import Sweep, batch, by_run, over_seeds, swept
from principalflow.training import Options

_SEEDS = (0, 1, 2)
_DIGITS = Options(
    data="digits",
    samples=1000,
    width=0.3,
    steps=300,
    record_every=20,
    evaluate_every=50,
    checkpoint_every=300,
    directions=1,
    seed=_SEEDS,
)
_SMALL_RESNET = replace(
    _DIGITS, samples=128, model="resnet18", width=0.0625, normalization="none", steps=50, record_every=0
)
_MNIST = replace(_DIGITS, data="mnist", samples=2000, test_samples=2000, width=1.0, steps=200, checkpoint_every=100)
_VGG = Options(
    data="cifar10",
    samples=1000,
    test_samples=1000,
    model="vgg11",
    width=0.0625,
    normalization="group",
    chunk=50,
    steps=50,
    record_every=25,
    evaluate_every=10,
    checkpoint_every=25,
    directions=1,
    tolerance=0.05,
    seed=_SEEDS,
)
_RESNET = replace(_VGG, model="resnet18", normalization="none", stem="imagenet")
_FULL = replace(
    _VGG,
    samples=None,
    test_samples=None,
    model="vgg16",
    width=1.0,
    chunk=1000,
    steps=3000,
    record_every=100,
    evaluate_every=100,
    checkpoint_every=100,
)
_FULL_RESNET = replace(_FULL, model="resnet18", stem="small")
_FULL_SAMPLES, _FULL_PASSES = 50_000, 100

# What stands for the paper's VGG on CIFAR-10, and for its ResNets.
VGG: dict[Profile, Options] = {"quick": _DIGITS, "cpu": _VGG, "paper": _FULL}
RESNET: dict[Profile, Options] = {"quick": _SMALL_RESNET, "cpu": _RESNET, "paper": _FULL_RESNET}
# The same as the VGG where that is cheap enough for many sweeps, else a cheaper network.
CHEAP: dict[Profile, Options] = {"quick": _DIGITS, "cpu": _MNIST, "paper": _FULL}

# The rates of the sweeps by network, data and width: one more than the one with the lowest loss, where that is known.
_RATES = {
    ("mlp", "digits", 0.3): (0.05, 0.1, 0.2, 0.4, 0.8),
    ("mlp", "mnist", 1.0): (0.02, 0.05, 0.1, 0.2, 0.4),
    ("resnet18", "digits", 0.0625): (0.1, 0.2, 0.4),
    ("vgg11", "cifar10", 0.0625): (0.05, 0.1, 0.2, 0.4),
    ("resnet18", "cifar10", 0.0625): (0.1, 0.2, 0.4, 0.8),
}
# The same with momentum.
_MOMENTUM_RATES = {
    ("mlp", "digits", 0.3): (0.05, 0.1, 0.2, 0.4),
    ("mlp", "mnist", 1.0): (0.02, 0.05, 0.1, 0.2),
    ("vgg11", "cifar10", 0.0625): (0.01, 0.02, 0.05),
}
_PAPER_RATES, _PAPER_MOMENTUM_RATES = (0.01, 0.02, 0.05, 0.1, 0.2), (0.001, 0.005, 0.01, 0.05)
MOMENTUM = 0.9
# DAL's powers: more of them where a run is cheap.
_POWERS = {"mlp": (1.0, 0.875, 0.75, 0.625, 0.5)}
_FEW_POWERS = (1.0, 0.75, 0.5)

_DATA = {"digits": "digits of 8 x 8 pixels", "mnist": "images of MNIST", "cifar10": "images of CIFAR-10"}
_NETWORKS = {"vgg11": "a VGG-11", "vgg16": "a VGG-16", "resnet18": "a ResNet-18"}


@dataclass(frozen=True)
class Config:
    """The sweeps, and a number that leads to other seeds than theirs."""

    sweeps: tuple[Sweep, ...]
    seed: int = 0


def on_batches(profile: Profile, size: int, network: dict[Profile, Options] = VGG) -> Options:
    """Returns the options of a network for batches of this size, with more steps where a step is much cheaper."""
    options = replace(network[profile], batch_size=size)
    if profile == "paper":
        steps = _FULL_PASSES * _FULL_SAMPLES // size
        often = max(steps // 30, 1)
        return replace(options, steps=steps, record_every=often, evaluate_every=often, checkpoint_every=often)
    if options.model != "mlp":
        return replace(options, steps=400, record_every=100, evaluate_every=100, checkpoint_every=200)
    return options


def descent(options: Options, rates: tuple[float, ...] | None = None, **more: Any) -> Sweep:
    """Returns a sweep over fixed rates, by default those of this network and data."""
    rates = rates or _RATES.get(_kind(options), _PAPER_RATES)
    optimizer = "gd" if options.batch_size is None else "sgd"
    return Sweep(replace(options, optimizer=optimizer, learning_rate=rates, **more))


def descent_with_momentum(options: Options, rates: tuple[float, ...] | None = None) -> Sweep:
    """Returns a sweep over fixed rates with momentum, by default those of this network and data."""
    return descent(options, rates or _MOMENTUM_RATES.get(_kind(options), _PAPER_MOMENTUM_RATES), momentum=MOMENTUM)


def dal(options: Options, powers: tuple[float, ...] | None = None, **more: Any) -> Sweep:
    """Returns a sweep over DAL's powers, by default those of this network."""
    return Sweep(replace(options, optimizer="dal", power=powers or _POWERS.get(options.model, _FEW_POWERS), **more))


def _kind(options: Options) -> tuple[str, str, float]:
    return options.model, options.data, options.width


def both(*networks: Options) -> tuple[Sweep, ...]:
    """Returns the sweeps over fixed rates and over DAL's powers of each of these."""
    return tuple(sweep for options in networks for sweep in (descent(options), dal(options)))


def stand_ins(profiles: Mapping[str, Config]) -> dict[str, str]:
    """Returns what stands in for the paper's networks, which the settings tell."""
    return {profile: f"Here: {'; '.join(_networks(config))}." for profile, config in profiles.items()}


def _networks(config: Config) -> list[str]:
    batches: dict[str, dict[str, None]] = {}
    for sweep in config.sweeps:
        o = sweep.options
        batches.setdefault(_network(o), {})[f"{batch(o)}, {o.steps:,} steps"] = None
    return [f"{network} ({'; '.join(sizes)})" for network, sizes in batches.items()]


def _network(o: Options) -> str:
    samples = _DATA[o.data] if o.samples is None else f"{o.samples:,} {_DATA[o.data]}"
    if o.model == "mlp":
        return f"an MLP of 3 x {round(100 * o.width)} units on {samples}"
    width = "" if o.width == 1 else f" of 1/{round(1 / o.width)} of the channels"
    normalization = "without normalisation" if o.normalization == "none" else f"with {o.normalization} normalisation"
    return f"{_NETWORKS[o.model]}{width} {normalization} on {samples}"


def trainings(config: Config) -> Sequence[Sweep]:
    """Returns the sweeps that the settings ask for."""
    return [sweep.seeded(config.seed) for sweep in config.sweeps]


def run(config: Config) -> Tables:
    """Returns what came out of the sweeps: `steps`, `runs` (measures of each) and `contenders` (over the seeds)."""
    steps = pandas.concat([swept(sweep) for sweep in trainings(config)], ignore_index=True)
    measures = by_run(steps)
    return {"steps": steps, "runs": measures, "contenders": over_seeds(measures)}
