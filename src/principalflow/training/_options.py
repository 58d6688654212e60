"""What a training run, or a sweep of them, is made of."""

from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from os import PathLike
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from principalflow import _checks, models
from principalflow._checks import did_you_mean
from principalflow._curvature import Curvature, checked_curvature
from principalflow.training import _schedule
from principalflow.training._config import read_options

# Options that may be lists, in the order in which they name the runs of a sweep. They change numbers, never shapes, so
# the runs of a sweep share what is compiled.
SWEPT = ("learning_rate", "power", "seed")
_NUMBERS = (
    "width",
    "gain",
    "learning_rate",
    "momentum",
    "beta1",
    "beta2",
    "eps",
    "weight_decay",
    "power",
    "factor",
    "max_learning_rate",
    "tolerance",
    "average",
)
_MOST_STEPS = 10**8  # the rates of all are held in memory
_LARGEST_SEED = 2**32 - 1  # the seeds that give the same weights in both precisions
Optimizer = Literal["gd", "sgd", "dal", "adam", "adamw", "nadam", "rmsprop", "prodigy", "dog"]
OPTIMIZERS = get_args(Optimizer)
RESCALING = ("adam", "adamw", "nadam", "rmsprop")
_WITHOUT_RATE = ("dal", "prodigy", "dog")
# Those of DAL; given to another optimiser they would be ignored, so they are refused.
_OF_DAL = ("power", "factor", "max_learning_rate", "per_parameter", "curvature", "curvature_every", "average")
# Who has the others; they are refused in the same way.
_OF = {
    "momentum": ("gd", "sgd", "dal"),
    "beta1": ("adam", "adamw", "nadam"),
    "beta2": RESCALING,
    "eps": RESCALING,
    "weight_decay": ("adamw",),
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `principalflow train`; the keys of its config files are the same.

    They are checked by `run`, before any work.

    Example:
        >>> import principalflow as pf
        >>> options = pf.training.Options(learning_rate=(0.1, 0.2), seed=(0, 1))
        >>> list(options.runs())[:2]
        ['learning_rate=0.1,seed=0', 'learning_rate=0.1,seed=1']
    """

    data: str = "digits"
    """iris, breast-cancer, digits, mnist, cifar10, the path of a CSV file, or of a folder of images by class."""
    samples: int | None = None
    """Train on the first this many samples, in an order that is always the same."""
    test_samples: int | None = None
    """Test on the first this many samples."""
    label: str | None = None
    """The column of labels in a CSV file; by default the last."""
    image_size: int | None = None
    """The height and width to bring the images of a folder to; by default 224."""

    model: str = "mlp"
    """mlp, vgg11, vgg16, resnet18 or resnet50."""
    hidden: tuple[int, ...] = (100, 100, 100)
    """Units of an MLP's hidden layers."""
    width: float = 1.0
    """Multiplies hidden units, or the numbers of channels."""
    activation: str = "elu"
    """elu, tanh, softplus, gelu or relu."""
    normalization: str | None = None
    """none, batch or group, of convolutional networks; by default none for VGGs, batch for ResNets."""
    pooling: str = "average"
    """average or max."""
    stem: str = "auto"
    """small, imagenet or auto, of ResNets: the first layers leave images as large as they are, or halve them twice;
    auto halves them from 64 pixels on."""
    gain: float = 1.0
    """Multiplies the starting weights."""
    loss: str = "cross-entropy"
    """cross-entropy or mean-square."""

    optimizer: Optimizer = "gd"
    """gd: all samples at each step; sgd: batches; dal: the rate is computed from the drift, with or without batches.
    Also with or without batches: adam, adamw, nadam and rmsprop, whose curvature is recorded in the metric in which
    they take their steps, against their own threshold; prodigy and dog, which choose their rates themselves."""
    learning_rate: float | tuple[float, ...] | None = None
    """The rate, of all but dal, prodigy and dog; several make a sweep."""
    schedule: str = "constant"
    """constant; linear or cosine, which end at 0; or STEP:RATE,... for rates that begin at a step."""
    warmup: int = 0
    """Raise the rate linearly over the first this many steps."""
    momentum: float = 0.0
    """Heavy-ball momentum, of gd, sgd and dal."""
    beta1: float = 0.9
    """adam, adamw, nadam: the decay of the average of gradients."""
    beta2: float | None = None
    """The same and rmsprop: the decay of the average of squared gradients; by default 0.999, of rmsprop 0.99."""
    eps: float = 1e-8
    """The same: is added to the root of that average."""
    weight_decay: float | None = None
    """adamw: the decay of the weights, beside the gradient; by default 0.01."""
    batch_size: int | None = None
    """Samples per step of sgd and the others but gd; epochs are shuffled, and an incomplete last batch is left out."""
    power: float | tuple[float, ...] = 1.0
    """dal: the power p of the curvature; several make a sweep."""
    factor: float = 2.0
    """dal: the rate where the curvature is 1."""
    max_learning_rate: float = 5.0
    """dal: the cap on the rate."""
    per_parameter: bool = False
    """dal: a rate for each parameter."""
    curvature: Curvature = "hvp"
    """dal: exact Hessian products, or finite differences."""
    curvature_every: int = 1
    """dal: measure the curvature every this many steps."""
    average: float | None = None
    """dal: the decay of a running average of the curvature, for noisy batches."""

    steps: int = 1000
    """How many steps to take."""
    record_every: int = 10
    """Record sharpness, stability coefficients, drift and predictions every this many steps; 0 for never."""
    directions: int = 3
    """How many directions of largest curvature to record."""
    tolerance: float = 1e-2
    """How well to know their eigenvalues, relative to the largest; below 1."""
    evaluate_every: int = 50
    """Record accuracies and the test loss every this many steps, and at the end; 0 for never."""
    checkpoint_every: int = 100
    """Save a checkpoint every this many steps."""
    keep_every: int = 0
    """Keep the parameters every this many steps, in the run's iterates.npy (`runs.iterates`); 0 for never."""

    seed: int | tuple[int, ...] = 0
    """Of the starting weights and the batches; several make a sweep."""
    precision: Literal["float32", "float64"] = "float32"
    """Of parameters and data."""
    chunk: int | None = None
    """The most samples to evaluate at once, which bounds memory."""

    def __post_init__(self):
        for name in (*SWEPT, "hidden"):
            if isinstance(getattr(self, name), list):  # as config files have them
                object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in _NUMBERS:  # 1, 1.0 and NumPy's 1.0 are the same run, and JAX would take 2**31 for an int32
            object.__setattr__(self, name, _as_float(getattr(self, name)))

    def runs(self) -> dict[str, "Options"]:
        """Returns the single runs by name; one without swept options has the name ""."""
        swept = [name for name in SWEPT if isinstance(getattr(self, name), tuple)]
        choices = [dict(zip(swept, values, strict=True)) for values in product(*(getattr(self, s) for s in swept))]
        return {",".join(f"{k}={v}" for k, v in choice.items()): replace(self, **choice) for choice in choices}

    def config(self) -> dict[str, Any]:
        """Returns the options as a dict of plain values."""
        return asdict(self)

    def check(self) -> None:
        """Raises a ValueError for an option out of its range, or one that the chosen optimiser doesn't have."""
        _check(self)

    @classmethod
    def from_file(cls, path: str | PathLike[str]) -> "Options":
        """Returns the options in a TOML file, or in the config.json of a run; those it lacks have their defaults.

        Args:
            path: The file, in UTF-8, of at most 1 MiB.

        Returns:
            The options, of the right types; `check` compares their numbers.

        Raises:
            ValueError: For a file that can't be read, that holds no or unknown keys, or values that are none of theirs.
        """
        path = _checks.path("config", path)
        content = read_options(path)
        known = [field.name for field in fields(cls)]
        for key in content:
            if key not in known:
                raise ValueError(f"config {path} has the unknown key {_checks.shown(key)}.{did_you_mean(key, known)}")
        options = cls(**content)
        try:
            _check_kinds(options)
        except ValueError as error:
            raise ValueError(f"config {path}: {error}") from error
        return options


def _check_kinds(o: Options) -> None:
    """Raises for an option of another type, or a word that isn't among those that there are."""
    for name, hint in get_type_hints(Options).items():
        if not _fits(getattr(o, name), hint):
            wanted = getattr(hint, "__name__", str(hint)) if isinstance(hint, type) else str(hint)
            raise ValueError(f"{name} must be {wanted.replace('typing.', '')}, got {_checks.shown(getattr(o, name))}.")
    _checks.one_of("model", o.model, models.NAMES)
    _checks.one_of("activation", o.activation, tuple(models.ACTIVATIONS))
    _checks.one_of("loss", o.loss, tuple(models.LOSSES))
    _checks.one_of("optimizer", o.optimizer, OPTIMIZERS)
    checked_curvature(o.curvature)
    _checks.one_of("precision", o.precision, ("float32", "float64"))
    _checks.one_of("pooling", o.pooling, models.POOLINGS)
    if o.normalization is not None:
        _checks.one_of("normalization", o.normalization, models.NORMALIZATIONS)
    _checks.one_of("stem", o.stem, models.STEMS)


def _check(o: Options) -> None:
    _check_kinds(o)
    _checks.path("data", o.data)
    others = ("normalization", "pooling") if o.model == "mlp" else ("hidden",)
    others += () if o.model.startswith("resnet") else ("stem",)
    _refuse(o, others, f"a model {o.model!r} doesn't have")
    _checks.whole("steps", o.steps, 0, _MOST_STEPS)
    for name in ("record_every", "evaluate_every", "keep_every", "warmup"):
        _checks.whole(name, getattr(o, name), least=0)
    for name in ("checkpoint_every", "directions", "curvature_every"):
        _checks.whole(name, getattr(o, name), least=1)
    for units in o.hidden:
        _checks.whole("hidden", units, least=1)
    for name, least in (("samples", 1), ("test_samples", 0), ("image_size", 1), ("batch_size", 1), ("chunk", 1)):
        if getattr(o, name) is not None:
            _checks.whole(name, getattr(o, name), least)
    _checks.tolerance("tolerance", o.tolerance)
    for name in ("width", "gain", "tolerance", "factor", "max_learning_rate", "learning_rate", "eps"):
        for number in _values(o, name):
            _checks.positive(name, number)
            _check_precision(o, name, number)
    for name in ("momentum", "beta1", "beta2", "average"):
        if getattr(o, name) is not None:
            _checks.fraction(name, getattr(o, name))
    if o.weight_decay is not None:
        _checks.non_negative("weight_decay", o.weight_decay)
        _check_precision(o, "weight_decay", o.weight_decay)
    for seed in _values(o, "seed"):
        _checks.whole("seed", seed, 0, _LARGEST_SEED)
    for power in _values(o, "power"):
        _checks.non_negative("power", power)
        _check_precision(o, "power", power)
    _check_optimizer(o)


def _check_optimizer(o: Options) -> None:
    if o.optimizer in _WITHOUT_RATE:
        if o.learning_rate is not None or o.schedule != "constant" or o.warmup:
            instead = "factor and max_learning_rate, " if o.optimizer == "dal" else ""
            none = "no learning_rate, schedule or warmup"
            raise ValueError(f"optimizer {o.optimizer} computes its rate: it takes {instead}{none}.")
    elif o.learning_rate is None:
        raise ValueError(f"learning_rate must be given for {o.optimizer}; dal, prodigy and dog are those without one.")
    if o.optimizer != "dal":
        _refuse(o, _OF_DAL, "is of dal alone")
    _refuse(o, tuple(name for name, owners in _OF.items() if o.optimizer not in owners), f"{o.optimizer} doesn't have")
    if o.optimizer == "gd" and o.batch_size is not None:
        raise ValueError(f"batch_size must be None for gd, which takes all samples at each step, got {o.batch_size}.")
    if o.optimizer == "sgd" and o.batch_size is None:
        raise ValueError("batch_size must be given for sgd; gd is the optimizer that takes all samples.")
    _schedule.check(o.schedule)


def _refuse(o: Options, names: tuple[str, ...], why: str) -> None:
    """Raises if an option that would be ignored was given."""
    for name in names:
        if getattr(o, name) != getattr(Options, name):
            raise ValueError(f"{name} is an option that {why}, got {_checks.shown(getattr(o, name))}.")


def _check_precision(o: Options, name: str, number: float) -> None:
    """Raises for a number that would become zero or infinite in the precision of the run."""
    least, most = float(np.finfo(o.precision).tiny), float(np.finfo(o.precision).max)
    if number != 0 and not least <= number <= most:
        raise ValueError(f"{name} must be from {least:.2g} to {most:.2g} in {o.precision}, got {number:g}.")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is what an annotation says."""
    if isinstance(hint, UnionType):
        return any(_fits(value, choice) for choice in get_args(hint))
    if get_origin(hint) is tuple:
        return isinstance(value, tuple) and all(_fits(item, get_args(hint)[0]) for item in value)
    if get_origin(hint) is Literal:
        return isinstance(value, str)  # which, is checked with a guess
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    return isinstance(value, hint)


def _as_float(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_as_float(item) for item in value)
    try:
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value
    except OverflowError:  # `check` refuses it
        return value


def _values(o: Options, name: str) -> tuple:
    """The values of an option that may be a list; none where it isn't given."""
    option = getattr(o, name)
    if option is None:
        return ()
    values = option if isinstance(option, tuple) else (option,)
    if not values or len(set(values)) < len(values):
        raise ValueError(f"{name} must have some values, all different, got {_checks.shown(list(values))}.")
    return values
