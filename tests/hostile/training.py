"""Calls of networks, data, run directories and training."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas
from cases import REAL_OPTIONS, WHOLE_OPTIONS, WORD_OPTIONS
from hostile.call import Call
from hostile.values import (
    BLOCKS,
    MATRICES,
    NOTHINGS,
    NUMBERS,
    RECORDS,
    VECTORS,
    WORDS,
)
from PIL import Image

import principalflow as pf

_TEXTS = ("", "abc", "mlp", None, 1, b"a", [], {}, object(), float("nan"), "a" * 300, "\0")
_KEYS = (jax.random.key(0), jax.random.PRNGKey(0), *NOTHINGS, 0, 1.5, np.ones(2, np.uint32))
_DTYPES = (None, float, "float32", jnp.float16, int, bool, complex, "abc", object, str, *NUMBERS[:3], b"f4")
_SHAPES = ((), (4,), (8, 8, 1), (8, 8), (0, 8, 1), (-1,), (2**63, 2, 2), (10**30,), (1.5,), ("a",), *NUMBERS, *NOTHINGS)
# A VGG three times as wide is a good one, and takes a minute.
_WIDTHS = tuple(value for value in NUMBERS if not (isinstance(value, int | np.integer | jax.Array) and value in (2, 3)))
_IMAGES = dict(outputs=NUMBERS, key=_KEYS, width=_WIDTHS, activation=_TEXTS, pooling=_TEXTS, gain=NUMBERS)
_LAYER = dict(key=_KEYS, gain=NUMBERS, dtype=_DTYPES)


def _network(kind, **fixed):
    return lambda **options: jax.tree.leaves(kind(**fixed, **options))


_KEY = jax.random.key(0)
_PICTURE_SHAPES = ((3, 8, 8, 1), (3, 8, 8, 2), (3, 0, 8, 1), (0, 8, 8, 1), (3, 2, 2, 1))
_PICTURES = (
    *BLOCKS,
    *(np.full(shape, value) for shape in _PICTURE_SHAPES for value in (1.0, np.nan, 1, "1")),
)
# What is called with a batch: its name, the shape that it takes, and what is thrown at it.
_NETWORKS = (
    ("Linear", pf.models.Linear(3, 2, key=_KEY), (3, 3), MATRICES),
    ("MLP", pf.models.MLP(3, (2,), 1, key=_KEY), (3, 3), BLOCKS),
    ("Conv", pf.models.Conv(1, 2, 3, key=_KEY), (3, 8, 8, 1), _PICTURES),
    ("BatchNorm", pf.models.BatchNorm(1), (3, 8, 8, 1), _PICTURES),
    ("GroupNorm", pf.models.GroupNorm(1), (3, 8, 8, 1), _PICTURES),
    ("VGG", pf.models.VGG((8, 8, 1), 2, key=_KEY, width=0.02), (3, 8, 8, 1), _PICTURES),
    ("ResNet", pf.models.ResNet((8, 8, 1), 2, key=_KEY, width=0.02), (3, 8, 8, 1), _PICTURES),
)

MODELS = [
    Call(
        "models.MLP",
        _network(pf.models.MLP),
        dict(inputs=2, hidden=(2,), outputs=1, key=jax.random.key(0), activation="elu", gain=1.0, dtype=None),
        dict(_LAYER, inputs=NUMBERS, hidden=(_SHAPES, NUMBERS, *_SHAPES), outputs=NUMBERS, activation=_TEXTS),
    ),
    Call(
        "models.build",
        _network(pf.models.build),
        dict(name="mlp", input_shape=(2,), outputs=2, key=None, hidden=(2,), width=1.0, gain=1.0),
        dict(name=_TEXTS, input_shape=_SHAPES, outputs=NUMBERS, key=_KEYS, hidden=_SHAPES, width=NUMBERS, gain=NUMBERS),
    ),
    Call(
        "models.VGG",
        _network(pf.models.VGG, normalization="none"),
        dict(input_shape=(8, 8, 1), outputs=2, key=jax.random.key(0), depth=11, width=0.02, activation="elu"),
        dict(_IMAGES, input_shape=_SHAPES, depth=NUMBERS),
    ),
    Call(
        "models.ResNet",
        _network(pf.models.ResNet),
        dict(input_shape=(8, 8, 1), outputs=2, key=jax.random.key(0), depth=18, width=0.02, normalization="batch"),
        dict(_IMAGES, input_shape=_SHAPES, depth=NUMBERS, stem=_TEXTS, normalization=_TEXTS),
    ),
    Call(
        "models.Linear",
        _network(pf.models.Linear),
        dict(inputs=2, outputs=2, key=jax.random.key(0), gain=1.0, dtype=None),
        dict(_LAYER, inputs=NUMBERS, outputs=NUMBERS),
    ),
    Call(
        "models.Conv",
        _network(pf.models.Conv),
        dict(inputs=2, outputs=2, size=3, key=jax.random.key(0), stride=1, gain=1.0, dtype=None),
        dict(_LAYER, inputs=NUMBERS, outputs=NUMBERS, size=NUMBERS, stride=NUMBERS),
    ),
    *(
        Call(f"models.{name} (batch)", network, dict(x=jnp.ones(shape)), dict(x=batches), is_formula=True)
        for name, network, shape, batches in _NETWORKS
    ),
    Call("models.BatchNorm", _network(pf.models.BatchNorm), dict(channels=2), dict(channels=NUMBERS, dtype=_DTYPES)),
    Call("models.GroupNorm", _network(pf.models.GroupNorm), dict(channels=2), dict(channels=NUMBERS, dtype=_DTYPES)),
    Call(
        "models.cross_entropy",
        pf.models.cross_entropy,
        dict(logits=jnp.ones((3, 2)), labels=jnp.array([0, 1, 0])),
        dict(logits=MATRICES, labels=VECTORS),
        is_formula=True,
    ),
    Call(
        "models.mean_square",
        pf.models.mean_square,
        dict(outputs=jnp.ones((3, 2)), targets=jnp.array([0, 1, 0])),
        dict(outputs=MATRICES, targets=VECTORS),
        is_formula=True,
    ),
    Call(
        "models.accuracy",
        pf.models.accuracy,
        dict(outputs=jnp.ones((3, 2)), labels=jnp.array([0, 1, 0])),
        dict(outputs=MATRICES, labels=VECTORS),
        is_formula=True,
    ),
    Call("models.loss", pf.models.loss, dict(name="cross-entropy"), dict(name=_TEXTS)),
]


_TRAINING = pf.training.Options(data="iris", learning_rate=0.1, hidden=(2,), steps=1, record_every=0, keep_every=1)


@cache
def _kept():
    """A folder for all cases: a run with a checkpoint, and two images of each of two classes."""
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    pf.training.run(_TRAINING, folder / "trained")
    for name in ("a/1.png", "a/2.png", "b/1.png", "b/2.png"):
        (folder / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4)).save(folder / "images" / name)
    return folder


def _in_folder(function):
    """Calls it in a folder of its own, where `path` is a name if it is a text."""

    def call(path, **arguments):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "file").write_text("x")
            Path(folder, "table.csv").write_text("a,b\n" + "1.5,x\n2.5,y\n" * 5)
            with pf.runs.create(Path(folder, "run"), {"seed": 0}) as run:
                run.append({"step": 0, "loss": 2.5}, {"step": 1, "loss": 1.5})
            for name in ("trained", "images"):
                Path(folder, name).symlink_to(_kept() / name)
            return function(Path(folder, path) if isinstance(path, str) else path, folder=Path(folder), **arguments)

    return call


_PATHS = ("new", "run", "trained", "images", "file", "file/below", "table.csv", *_TEXTS, *NUMBERS[:20])
_STEPS = pandas.DataFrame({"step": [0, 1, 2], "loss": [3.0, 1.0, 2.0], "seed": 0, "status": "completed"}).assign(
    **dict.fromkeys(["rate", "power", "drift", "sharpness", "test_accuracy", "train_accuracy"], 0.5)
)
_CONFIGS = ({}, {"a": float("nan")}, {"a": object()}, {1: 2}, {"a": 10**400}, {(): 1}, {"a": {"b": [None]}}, *NOTHINGS)
_ROWS = (
    {},
    {"step": 1},
    {"step": 1, "loss": float("nan")},
    {"step": "a", "loss": object()},
    {"loss": 1j},
    {(): 1},
    {"step": 10**400},
    {"a": np.ones(2)},
    *NOTHINGS,
)


def _created(path, folder, config):
    pf.runs.create(path, config).close()


def _appended(path, folder, rows, step, theta, arrays, status, message):
    with pf.runs.create(path, {}) as run:
        run.append(rows)
        run.keep(step, theta)
        run.checkpoint(step, arrays)
        run.close(status, message)


def _reopened(path, folder):
    with pf.runs.reopen(path) as run:
        run.restore()


def _options(**options):
    options = pf.training.Options(**options)
    options.check()
    options.config()
    options.runs()


def _option_values():
    numbers = (*NUMBERS, [1, 2], [0.1, 0.1], (), (2**63,), ("a",))
    of = dict.fromkeys((*WHOLE_OPTIONS, *REAL_OPTIONS), numbers)
    return of | dict.fromkeys((*WORD_OPTIONS, "per_parameter"), (*_TEXTS, *WORDS)) | {"hidden": _SHAPES}


RUNS = [
    Call("runs.create", _in_folder(_created), dict(path="new", config={}), dict(path=_PATHS, config=_CONFIGS)),
    Call(
        "runs.Run",
        _in_folder(_appended),
        dict(
            path="new", rows={"step": 0}, step=0, theta=[1.0], arrays={"a": np.ones(2)}, status="completed", message=""
        ),
        dict(
            rows=_ROWS,
            step=NUMBERS,
            theta=VECTORS,
            arrays=(*_CONFIGS, {"a": np.array(["x"], object)}, {"/": np.ones(1)}, {"..": np.ones(1)}),
            status=WORDS,
            message=NOTHINGS,
        ),
    ),
    Call("runs.reopen", _in_folder(_reopened), dict(path="run"), dict(path=_PATHS)),
    Call(
        "runs.load",
        _in_folder(lambda path, folder: pf.runs.load(path).dropna()),  # of several, each has columns of its own
        dict(path="run"),
        dict(path=_PATHS),
    ),
    Call(
        "runs.find",
        _in_folder(lambda path, folder: pf.runs.find(path)),
        dict(path="run"),
        dict(path=_PATHS),
    ),
    Call(
        "runs.iterates",
        _in_folder(lambda path, folder: pf.runs.iterates(path)),
        dict(path="trained"),
        dict(path=_PATHS),
    ),
    Call(
        "runs.export",
        _in_folder(
            lambda path, folder, to, **options: pf.runs.export(
                path, folder / to if isinstance(to, str) else to, **options
            )
        ),
        dict(path="run", to="a.csv", format=None),
        dict(
            path=_PATHS,
            to=("a.csv", "b.parquet", "c", "d.txt", "file/a.csv", "run", *NOTHINGS),
            format=(*WORDS, "csv", "parquet"),
        ),
    ),
    Call(
        "report.write",
        _in_folder(lambda path, folder, runs, title: pf.report.write(runs, path, title=title)),
        dict(
            path="new.html",
            runs={"a": RECORDS},
            title=None,
        ),
        dict(path=("file/below", "new"), runs=(*_CONFIGS, *_ROWS), title=_TEXTS),
    ),
    Call(
        "data.load",
        pf.data.load,
        dict(
            name="iris",
            samples=10,
            test_samples=5,
            standardize=True,
            one_hot=False,
            progress=False,
            label=None,
            size=None,
        ),
        dict(
            name=_TEXTS,
            samples=NUMBERS,
            test_samples=NUMBERS,
            standardize=WORDS,
            one_hot=WORDS,
            progress=WORDS,
            label=_TEXTS,
            size=NUMBERS,
        ),
    ),
    Call(
        "data.csv",
        _in_folder(lambda path, folder, **options: pf.data.csv(path, **options)),
        dict(
            path="table.csv",
            label=None,
            samples=None,
            test_samples=None,
            standardize=True,
            one_hot=False,
            delimiter=",",
        ),
        dict(
            path=_PATHS,
            label=_TEXTS,
            samples=NUMBERS,
            test_samples=NUMBERS,
            one_hot=WORDS,
            delimiter=(*_TEXTS, ";;", "\n"),
        ),
    ),
    Call(
        "data.image_folder",
        _in_folder(lambda path, folder, **options: pf.data.image_folder(path, **options)),
        dict(path="images"),
        dict(path=_PATHS, size=NUMBERS, samples=NUMBERS, test_samples=NUMBERS, max_gib=NUMBERS),
    ),
    Call("data.fetch", pf.data.fetch, dict(name="iris", progress=False), dict(name=_TEXTS, progress=WORDS)),
    Call("data.names", pf.data.names, {}, {}),
    Call("data.describe", lambda: len(pf.data.describe()), {}, {}),
    Call(
        "training.Options",
        _options,
        dict(learning_rate=0.1),
        _option_values(),
    ),
    Call(
        "training.run",
        _in_folder(lambda path, folder, options: pf.training.run(options, path, progress=False)),
        dict(
            path="new",
            options=_TRAINING,
        ),
        dict(path=("file/below", "run", None, 3), options=NOTHINGS),
        names=("out",),
    ),
    Call("training.objective", pf.training.objective, dict(options=_TRAINING), dict(options=NOTHINGS)),
    Call(
        "training.steps",
        _in_folder(lambda path, folder: pf.training.steps(path).dropna(axis=1)),
        dict(path="trained"),
        dict(path=_PATHS),
    ),
    Call(
        "training.measures",
        lambda steps, by: pf.training.measures(steps, by).dropna(axis=1),
        dict(steps=_STEPS, by=["seed"]),
        dict(steps=(*NOTHINGS, _STEPS[["loss"]]), by=(*NOTHINGS, ["seed", "none"], "seed", [], [[1]])),
    ),
    Call(
        "training.restore",
        _in_folder(lambda path, folder: pf.training.restore(path)),
        dict(path="trained"),
        dict(path=_PATHS),
    ),
]
