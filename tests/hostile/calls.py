"""The table of what is called: the arguments that work, and what else is thrown at each of them."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from hostile.values import (
    BLOCKS,
    CUBIC,
    DATA,
    DATAS,
    FLOWS,
    FUNCTIONS,
    INDICES,
    LOSSES,
    MATRICES,
    NOTHINGS,
    NUMBERS,
    OBJECTIVES,
    PARAMETERS,
    PARAMS,
    SMALL,
    THETA,
    VECTORS,
    WORDS,
    mean_square,
)

import principalflow as pf


@dataclass(frozen=True)
class Call:
    """One row: a public function, arguments that work, and for some of them what is thrown at it instead.

    Attributes:
        name: Its name below `principalflow`.
        function: The function, or what calls it and uses its result.
        good: Arguments that work.
        hostile: What is thrown at each.
        names: Names that an error may say besides those of the arguments.
        is_formula: Whether it computes a plain formula, whose result is as finite as its arguments.
    """

    name: str
    function: Callable
    good: dict[str, Any]
    hostile: dict[str, Sequence]
    names: tuple[str, ...] = ()
    is_formula: bool = False

    @property
    def combinations(self) -> int:
        """How many cases with one or two hostile arguments there are."""
        sizes = [len(values) for values in self.hostile.values()]
        return sum(sizes) + (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2


PLACE = dict(objective=OBJECTIVES, theta=VECTORS)
AT = dict(objective=SMALL, theta=THETA)
BOWL = pf.functions.quadratic(np.diag([1.0, 2.0, 3.0]))
_SELECTS = (lambda path: "w" in path, lambda path: False, lambda path: None, lambda path: path, *NOTHINGS[:8], lambda: True)


# The objective.


def _objective(loss, params, data, chunk, holomorphic):
    objective = pf.Objective(loss, params, data, chunk, holomorphic)
    theta = objective.theta
    gradient, product = objective.linearize(theta)
    everything = (theta, objective.value(theta), gradient, product(theta), objective.hvp(theta, theta))
    return (*everything, objective.third(theta, theta, theta), objective.hessian(theta))


def _over(method):
    return lambda **arguments: getattr(SMALL, method)(**arguments).value(THETA)


OBJECTIVE = [
    Call(
        "Objective",
        _objective,
        dict(loss=mean_square, params=PARAMS, data=DATA, chunk=None, holomorphic=False),
        dict(loss=LOSSES, params=PARAMETERS, data=DATAS, chunk=NUMBERS, holomorphic=WORDS),
        is_formula=True,
    ),
    Call("Objective.value", SMALL.value, dict(theta=THETA), dict(theta=VECTORS), is_formula=True),
    Call("Objective.gradient", SMALL.gradient, dict(theta=THETA), dict(theta=VECTORS), is_formula=True),
    Call(
        "Objective.value_and_gradient",
        SMALL.value_and_gradient,
        dict(theta=THETA),
        dict(theta=VECTORS),
        is_formula=True,
    ),
    Call("Objective.hvp", CUBIC.hvp, dict(theta=THETA, v=THETA), dict(theta=VECTORS, v=BLOCKS), is_formula=True),
    Call("Objective.hessian", CUBIC.hessian, dict(theta=THETA), dict(theta=VECTORS), is_formula=True),
    Call(
        "Objective.third",
        CUBIC.third,
        dict(theta=THETA, u=THETA, v=THETA),
        dict(theta=VECTORS, u=BLOCKS, v=BLOCKS),
        is_formula=True,
    ),
    Call(
        "Objective.linearize",
        lambda theta, v: CUBIC.linearize(theta)[1](v),
        dict(theta=THETA, v=THETA),
        dict(theta=VECTORS, v=BLOCKS),
        is_formula=True,
    ),
    Call(
        "Objective.function",
        lambda theta: SMALL.function()(theta),
        dict(theta=THETA),
        dict(theta=VECTORS),
        is_formula=True,
    ),
    Call("Objective.unravel", SMALL.unravel, dict(theta=THETA), dict(theta=VECTORS), is_formula=True),
    Call("Objective.flat", SMALL.flat, dict(name="theta", theta=THETA), dict(theta=VECTORS), is_formula=True),
    Call("Objective.entries", SMALL.entries, dict(select=lambda path: True), dict(select=_SELECTS)),
    Call("Objective.first", _over("first"), dict(samples=2), dict(samples=NUMBERS)),
    Call("Objective.batch", _over("batch"), dict(index=[0, 2]), dict(index=INDICES)),
    Call("Objective.over", _over("over"), dict(data=DATA), dict(data=DATAS), is_formula=True),
    Call("functions.quadratic", pf.functions.quadratic, dict(A=np.eye(3), b=None), dict(A=MATRICES, b=VECTORS)),
    Call(
        "functions.banana",
        lambda theta: pf.functions.banana().value(theta),
        dict(theta=[1, 2]),
        dict(theta=VECTORS),
        is_formula=True,
    ),
    Call(
        "functions.cosine_valley",
        lambda theta: pf.functions.cosine_valley().value(theta),
        dict(theta=[1.0]),
        dict(theta=VECTORS),
        is_formula=True,
    ),
]


# Descent and flows.


def _recorded(every, k, tol, flow, steps):
    return pf.descend(BOWL, THETA, 0.1, steps, record=pf.Record(every, k, tol, flow), progress=False)


def _field(kind, **options):
    """A flow's field on an objective, with the flow's own options beside."""

    def call(objective, theta, **given):
        flow = kind(**given)
        return flow.field(objective, theta), getattr(flow, "evaluate", lambda *_: None)(objective, theta)

    return call


def _coefficients(kind):
    def call(z, **given):
        flow = kind(**given)
        return getattr(flow, "alpha", lambda z: None)(z), flow.jacobian_eigenvalues(z)

    return call


_FLOWS = dict(
    NegativeGradient=({}, {}),
    PositiveGradient=({}, {}),
    IGR=(dict(h=0.1), dict(h=NUMBERS)),
    ImplicitGradientRegularization=(dict(h=0.1), dict(h=NUMBERS)),
    ThirdOrder=(dict(h=0.1), dict(h=NUMBERS)),
    BackwardError=(dict(h=0.1, order=2), dict(h=NUMBERS, order=NUMBERS)),
    Principal=(
        dict(h=0.1, branch="continuous", method="auto", rtol=1e-8, max_products=10),
        dict(h=NUMBERS, branch=WORDS, method=WORDS, rtol=NUMBERS, max_products=NUMBERS),
    ),
    PrincipalThirdOrder=(dict(h=0.1, method="krylov"), dict(h=NUMBERS, method=WORDS)),
    FlippedDirection=(
        dict(index=0, rtol=1e-6, max_products=60),
        dict(index=NUMBERS, rtol=NUMBERS, max_products=NUMBERS),
    ),
)
_POINTS = tuple(value for value in VECTORS if not isinstance(value, dict))

DYNAMICS = [
    Call(
        "descend",
        pf.descend,
        dict(AT, h=0.1, steps=3, record=None, progress=False),
        dict(PLACE, h=NUMBERS, steps=NUMBERS, record=(*NOTHINGS, pf.Record, pf.Record()), progress=WORDS),
    ),
    Call(
        "Record",
        _recorded,
        dict(every=1, k=2, tol=1e-2, flow=None, steps=2),
        dict(every=NUMBERS, k=NUMBERS, tol=NUMBERS, flow=FLOWS, steps=NUMBERS),
    ),
    Call(
        "Record.start",
        lambda objective, theta, h: pf.Record(k=2).start(objective)(theta, h),
        dict(AT, h=0.1),
        dict(PLACE, h=NUMBERS),
    ),
    *(
        Call(
            f"flows.{name}",
            _field(getattr(pf.flows, name)),
            dict(good, objective=CUBIC, theta=THETA),
            dict(hostile, **PLACE),
            is_formula=True,
        )
        for name, (good, hostile) in _FLOWS.items()
    ),
    *(
        Call(
            f"flows.{name}.jacobian_eigenvalues",
            _coefficients(getattr(pf.flows, name)),
            dict(good, z=THETA),
            dict(hostile, z=_POINTS),
            names=("lambdas",),
            is_formula=True,
        )
        for name, (good, hostile) in _FLOWS.items()
    ),
    Call(
        "flows.FlippedDirection.direction",
        lambda index, objective, theta: pf.flows.FlippedDirection(index).direction(objective, theta),
        dict(AT, index=1),
        dict(PLACE, index=NUMBERS),
        is_formula=True,
    ),
    Call(
        "flows.PrincipalThirdOrder.non_principal",
        lambda h, objective, theta: pf.flows.PrincipalThirdOrder(h).non_principal(objective, theta),
        dict(h=0.1, objective=CUBIC, theta=THETA),
        dict(PLACE, h=NUMBERS),
        is_formula=True,
    ),
    Call(
        "flows.solve_quadratic",
        pf.flows.solve_quadratic,
        dict(flow=pf.flows.IGR(0.1), A=np.eye(3), b=np.zeros(3), theta=THETA, times=[0.0, 1.0]),
        dict(flow=FLOWS, A=MATRICES, b=VECTORS, theta=VECTORS, times=VECTORS),
        is_formula=True,
    ),
    Call(
        "integrate",
        pf.integrate,
        dict(
            flow=pf.flows.NegativeGradient(),
            objective=CUBIC,
            theta=THETA,
            time=0.3,
            rtol=1e-4,
            atol=1e-6,
            solver="auto",
            step=None,
            saves=None,
            max_steps=100,
        ),
        dict(
            PLACE,
            flow=FLOWS,
            time=NUMBERS,
            rtol=NUMBERS,
            atol=NUMBERS,
            solver=(*WORDS, "euler", "tsit5"),
            step=NUMBERS,
            saves=(*NUMBERS, *VECTORS),
            max_steps=NUMBERS,
        ),
    ),
    Call(
        "integrate (euler)",
        lambda time, step: pf.integrate(pf.flows.NegativeGradient(), CUBIC, THETA, time, solver="euler", step=step),
        dict(time=0.3, step=0.1),
        dict(time=NUMBERS, step=NUMBERS),
    ),
    Call(
        "compare",
        pf.compare,
        dict(
            objective=CUBIC,
            theta=THETA,
            h=0.1,
            steps=2,
            flows=[pf.flows.IGR(0.1)],
            rtol=1e-4,
            max_steps=100,
            kinds=("local", "global"),
        ),
        dict(
            PLACE,
            h=NUMBERS,
            steps=NUMBERS,
            flows=(*FLOWS, *([flow] for flow in FLOWS[-8:]), dict(a=FLOWS[0]), {1: FLOWS[0]}, 2 * [FLOWS[0]]),
            rtol=NUMBERS,
            max_steps=NUMBERS,
            kinds=(*WORDS, "local", ["local", "local"], [None], [1], ["LOCAL"], ["global", "hvp"]),
        ),
    ),
]


# Spectrum, stability, drift, landscape.


def _landscape(objective, plane, reach, points, together):
    return pf.landscape.evaluate(objective, plane, reach, points, together)


_PLANE = pf.landscape.random(CUBIC, seed=1)
_PLANES = (
    _PLANE,
    _PLANE._replace(origin=np.ones(2)),
    _PLANE._replace(origin=np.full(3, np.nan)),
    _PLANE._replace(directions=np.ones((2, 2))),
    _PLANE._replace(directions=np.ones(3)),
    _PLANE._replace(directions=np.full((3, 2), np.nan)),
    _PLANE._replace(directions=np.array([["a"] * 2] * 3)),
    _PLANE._replace(directions=None),
    _PLANE._replace(points=np.ones((2, 1))),
    _PLANE._replace(points=np.full((2, 2), np.nan)),
    _PLANE._replace(points=None),
    tuple(_PLANE),
    *NOTHINGS,
)
_EIGENPAIRS = pf.spectrum.top_eigenpairs(CUBIC, THETA, 2)
_OTHERS = pf.spectrum.top_eigenpairs(pf.functions.banana(), [1.0, 1.0], 1)

ANALYSIS = [
    Call(
        "spectrum.top_eigenpairs",
        pf.spectrum.top_eigenpairs,
        dict(AT, k=1, guess=None, tol=1e-3, which="largest", cover=None, select=None, max_products=100),
        dict(
            PLACE,
            k=NUMBERS,
            guess=(*BLOCKS, _EIGENPAIRS, _OTHERS),
            tol=NUMBERS,
            which=WORDS,
            cover=NUMBERS,
            select=_SELECTS,
            max_products=NUMBERS,
        ),
    ),
    Call(
        "spectrum.block_eigenpairs",
        pf.spectrum.block_eigenpairs,
        dict(product=lambda V: 2 * V, guess=np.eye(3), k=1, tol=1e-3, which="largest", cover=None, max_products=100),
        dict(
            product=(*FUNCTIONS, lambda V: V * np.nan, lambda V: V[:2], lambda V: V.tolist(), lambda V: np.triu(V)),
            guess=(*BLOCKS, _EIGENPAIRS, _OTHERS),
            k=NUMBERS,
            tol=NUMBERS,
            which=WORDS,
            cover=NUMBERS,
            max_products=NUMBERS,
        ),
    ),
    Call(
        "spectrum.density",
        pf.spectrum.density,
        dict(AT, probes=2, steps=2, points=10, width=None, select=None, seed=0),
        dict(
            PLACE,
            probes=NUMBERS,
            steps=NUMBERS,
            points=NUMBERS,
            width=NUMBERS,
            select=_SELECTS,
            seed=NUMBERS,
        ),
    ),
    Call(
        "spectrum.trace",
        pf.spectrum.trace,
        dict(AT, products=4, select=None, seed=0),
        dict(PLACE, products=NUMBERS, select=_SELECTS, seed=NUMBERS),
    ),
    Call(
        "spectrum.apply",
        pf.spectrum.apply,
        dict(AT, f=jnp.exp, v=THETA, rtol=1e-8, max_products=10),
        dict(PLACE, f=FUNCTIONS, v=BLOCKS, rtol=NUMBERS, max_products=NUMBERS),
    ),
    Call(
        "stability.analyse",
        pf.stability.analyse,
        dict(AT, h=0.1, k=2, guess=None, tol=1e-3),
        dict(PLACE, h=NUMBERS, k=NUMBERS, guess=(*BLOCKS, _EIGENPAIRS, _OTHERS), tol=NUMBERS),
    ),
    Call(
        "stability.predict_projection",
        pf.stability.predict_projection,
        dict(flow=pf.flows.IGR(0.1), lam=THETA, projection=THETA, time=0.1),
        dict(flow=FLOWS, lam=_POINTS, projection=_POINTS, time=NUMBERS),
        is_formula=True,
    ),
    Call(
        "stability.critical_point",
        pf.stability.critical_point,
        dict(flow=pf.flows.IGR(0.1), lambdas=THETA),
        dict(flow=FLOWS, lambdas=_POINTS),
        is_formula=True,
    ),
    Call(
        "stability.relative_progress",
        pf.stability.relative_progress,
        dict(AT, h=0.1),
        dict(PLACE, h=NUMBERS),
        is_formula=True,
    ),
    Call(
        "drift.per_iteration",
        pf.drift.per_iteration,
        dict(objective=CUBIC, theta=THETA, h=0.1, flow=None, rtol=1e-4),
        dict(PLACE, h=NUMBERS, flow=FLOWS, rtol=NUMBERS),
    ),
    Call(
        "drift.global_drift",
        pf.drift.global_drift,
        dict(objective=CUBIC, theta=THETA, h=0.1, steps=2, flow=None, rtol=1e-4),
        dict(PLACE, h=NUMBERS, steps=NUMBERS, flow=FLOWS, rtol=NUMBERS),
    ),
    Call(
        "drift.estimate",
        pf.drift.estimate,
        dict(AT, h=0.1, curvature="hvp"),
        dict(PLACE, h=NUMBERS, curvature=(*WORDS, "finite_difference")),
    ),
    Call(
        "drift.momentum",
        pf.drift.momentum,
        dict(AT, velocity=THETA, h=0.1, decay=0.9, curvature="hvp"),
        dict(PLACE, velocity=VECTORS, h=NUMBERS, decay=NUMBERS, curvature=(*WORDS, "finite_difference")),
    ),
    Call(
        "landscape.random",
        pf.landscape.random,
        dict(AT, dimensions=2, seed=0),
        dict(PLACE, dimensions=NUMBERS, seed=NUMBERS),
    ),
    Call(
        "landscape.through",
        pf.landscape.through,
        dict(thetas=np.eye(3), origin=None, dimensions=1),
        dict(thetas=MATRICES, origin=VECTORS, dimensions=NUMBERS),
    ),
    Call(
        "landscape.evaluate",
        _landscape,
        dict(objective=CUBIC, plane=_PLANE, reach=None, points=3, together=8),
        dict(objective=OBJECTIVES, plane=_PLANES, reach=NUMBERS, points=NUMBERS, together=NUMBERS),
        is_formula=True,
    ),
]


# Optimisers and monitors.

_OPTIONS = dict(
    power=NUMBERS,
    max_learning_rate=NUMBERS,
    factor=NUMBERS,
    per_parameter=(True, *WORDS),
    curvature=(*WORDS, "finite_difference"),
    every=NUMBERS,
    average=NUMBERS,
)
_GOOD_OPTIONS = dict(
    power=1.0, max_learning_rate=5.0, factor=2.0, per_parameter=False, curvature="hvp", every=1, average=None
)
_OWN_OPTIONS = dict(momentum=NUMBERS, weight_decay=NUMBERS, skip_nonfinite=WORDS)
_GOOD_OWN_OPTIONS = dict(momentum=None, weight_decay=None, skip_nonfinite=False)


def _loss_of_params(params):
    return mean_square(params, DATA)


_UPDATE = dict(grads=PARAMS, params=PARAMS, value_fn=_loss_of_params, hvp=None, curvature_fn=None, all_params=None)
_UPDATES = dict(
    grads=PARAMETERS,
    params=PARAMETERS,
    value_fn=tuple((lambda params, loss=loss: loss(params, DATA)) if callable(loss) else loss for loss in LOSSES),
    hvp=PARAMETERS,
    curvature_fn=FUNCTIONS,
    all_params=PARAMETERS,
)


def _updated(make):
    def call(grads, params, value_fn, hvp, curvature_fn, all_params, **options):
        tx = make(**options)
        extra = dict(value_fn=value_fn, hvp=hvp, curvature_fn=curvature_fn, all_params=all_params)
        steps, state = tx.update(grads, tx.init(PARAMS), params, **extra)
        return steps, state

    return call


def _started(make):
    return lambda params: make(per_parameter=True).init(params)


def _observed(objective, k, every, tol, budget, to, momentum, step, params, learning_rate):
    monitor = pf.Monitor(objective, k, every, tol, budget, to, momentum)
    row = monitor.observe(step, params, learning_rate)
    monitor.summary()
    monitor.table()
    return row


OPTIMIZERS = [
    Call(
        "dal",
        _updated(pf.dal),
        _UPDATE | _GOOD_OPTIONS | _GOOD_OWN_OPTIONS,
        _UPDATES | _OPTIONS | _OWN_OPTIONS,
        names=("updates",),
        is_formula=True,
    ),
    Call("dal (update)", _updated(pf.dal), dict(_UPDATE), dict(_UPDATES), names=("updates",), is_formula=True),
    Call(
        "scale_by_dal",
        _updated(pf.scale_by_dal),
        _UPDATE | _GOOD_OPTIONS,
        _UPDATES | _OPTIONS,
        names=("updates",),
        is_formula=True,
    ),
    Call("dal (init)", _started(pf.dal), dict(params=PARAMS), dict(params=PARAMETERS)),
    Call(
        "Monitor",
        _observed,
        dict(
            objective=SMALL,
            k=2,
            every=1,
            tol=1e-2,
            budget=None,
            to=None,
            momentum=0.0,
            step=0,
            params=PARAMS,
            learning_rate=0.1,
        ),
        dict(
            objective=OBJECTIVES,
            k=NUMBERS,
            every=NUMBERS,
            tol=NUMBERS,
            budget=NUMBERS,
            to=(1, [], object(), 1.5, {}, lambda row: None),
            momentum=NUMBERS,
            step=NUMBERS,
            params=(*PARAMETERS, *VECTORS),
            learning_rate=NUMBERS,
        ),
    ),
]


# Networks, data, runs, training.

_TEXTS = ("", "abc", "mlp", None, 1, b"a", [], {}, object(), float("nan"), "a" * 300, "\0", "/", ".", "~")
_KEYS = (jax.random.key(0), jax.random.PRNGKey(0), *NOTHINGS, 0, 1.5, np.ones(2, np.uint32))
_DTYPES = (None, float, "float32", jnp.float16, int, bool, complex, "abc", object, str, *NUMBERS[:3], b"f4")
_SHAPES = ((), (4,), (8, 8, 1), (8, 8), (0, 8, 1), (-1,), (2**63, 2, 2), (10**30,), (1.5,), ("a",), *NUMBERS, *NOTHINGS)
_IMAGES = dict(outputs=NUMBERS, key=_KEYS, width=NUMBERS, activation=_TEXTS, pooling=_TEXTS, gain=NUMBERS)
_LAYER = dict(key=_KEYS, gain=NUMBERS, dtype=_DTYPES)


def _network(kind, **fixed):
    return lambda **options: jax.tree.leaves(kind(**fixed, **options)) and None


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
        names=("model", "inputs"),
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
    Call("models.BatchNorm", _network(pf.models.BatchNorm), dict(channels=2), dict(channels=NUMBERS, dtype=_DTYPES)),
    Call("models.GroupNorm", _network(pf.models.GroupNorm), dict(channels=2), dict(channels=NUMBERS, dtype=_DTYPES)),
    Call(
        "models.cross_entropy",
        pf.models.cross_entropy,
        dict(logits=jnp.ones((3, 2)), labels=jnp.array([0, 1, 0])),
        dict(logits=MATRICES, labels=VECTORS),
        names=("targets", "outputs"),
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
    Call("models.loss", pf.models.loss, dict(name="cross-entropy"), dict(name=_TEXTS), names=("loss",)),
]


def _in_folder(function):
    """Calls it in a folder of its own, where `path` is a name if it is a text."""

    def call(path, **arguments):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "file").write_text("x")
            Path(folder, "table.csv").write_text("a,b\n" + "1.5,x\n2.5,y\n" * 5)
            with pf.runs.create(Path(folder, "run"), {"seed": 0}) as run:
                run.append({"step": 0, "loss": 2.5}, {"step": 1, "loss": 1.5})
            inside = isinstance(path, str) and not path.startswith(("/", "~")) and "\0" not in path
            return function(Path(folder, path) if inside else path, folder=Path(folder), **arguments)

    return call


_PATHS = ("new", "run", "file", "file/below", "table.csv", *_TEXTS, *NUMBERS[:20])
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


def _appended(path, folder, row, step, arrays, status, message):
    with pf.runs.create(path, {}) as run:
        run.append(row)
        run.checkpoint(step, arrays)
        run.close(status, message)


def _reopened(path, folder):
    with pf.runs.reopen(path) as run:
        run.restore()


def _trained(path, folder, **options):
    options = pf.training.Options(**options)
    options.check()
    options.config()
    options.runs()


def _option_values():
    whole = (
        "samples",
        "test_samples",
        "image_size",
        "warmup",
        "batch_size",
        "curvature_every",
        "steps",
        "record_every",
    )
    whole += ("directions", "evaluate_every", "checkpoint_every", "seed", "chunk")
    real = (
        "width",
        "gain",
        "learning_rate",
        "momentum",
        "power",
        "factor",
        "max_learning_rate",
        "average",
        "tolerance",
    )
    words = (
        "data",
        "label",
        "model",
        "activation",
        "normalization",
        "pooling",
        "stem",
        "loss",
        "optimizer",
        "schedule",
    )
    words += ("curvature", "precision", "per_parameter")
    of = {name: (*NUMBERS, [1, 2], [0.1, 0.1], (), (2**63,), ("a",)) for name in (*whole, *real)}
    return of | {name: (*_TEXTS, *WORDS) for name in words} | {"hidden": _SHAPES}


RUNS = [
    Call("runs.create", _in_folder(_created), dict(path="new", config={}), dict(path=_PATHS, config=_CONFIGS)),
    Call(
        "runs.Run",
        _in_folder(_appended),
        dict(path="new", row={"step": 0}, step=0, arrays={"a": np.ones(2)}, status="done", message=""),
        dict(
            row=_ROWS,
            step=NUMBERS,
            arrays=(*_CONFIGS, {"a": np.array(["x"], object)}, {"/": np.ones(1)}, {"..": np.ones(1)}),
            status=WORDS,
            message=NOTHINGS,
        ),
        names=("rows", "checkpoint"),
    ),
    Call("runs.reopen", _in_folder(_reopened), dict(path="run"), dict(path=_PATHS), names=("run",)),
    Call(
        "runs.load",
        _in_folder(lambda path, folder: pf.runs.load(path)),
        dict(path="run"),
        dict(path=_PATHS),
        names=("run",),
    ),
    Call(
        "runs.find",
        _in_folder(lambda path, folder: pf.runs.find(path)),
        dict(path="run"),
        dict(path=_PATHS),
        names=("run",),
    ),
    Call(
        "runs.export",
        _in_folder(
            lambda path, folder, to, format: pf.runs.export(path, folder / to if isinstance(to, str) else to, format)
        ),
        dict(path="run", to="a.csv", format=None),
        dict(
            path=_PATHS,
            to=("a.csv", "b.parquet", "c", "d.txt", "file/a.csv", "run", *NOTHINGS),
            format=(*WORDS, "csv", "parquet"),
        ),
        names=("run",),
    ),
    Call(
        "report.write",
        _in_folder(lambda path, folder, runs, title: pf.report.write(runs, path, title)),
        dict(
            path="new.html",
            runs={"a": pf.descend(BOWL, THETA, 0.1, 2, record=pf.Record(k=1), progress=False).records},
            title=None,
        ),
        dict(path=("file/below", "new"), runs=(*_CONFIGS, *_ROWS), title=_TEXTS),
        names=("frame", "table"),
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
        names=("table", "file"),
    ),
    Call(
        "data.image_folder",
        _in_folder(lambda path, folder, **options: pf.data.image_folder(path, **options)),
        dict(path="run"),
        dict(path=_PATHS, size=NUMBERS, samples=NUMBERS, test_samples=NUMBERS, max_gib=NUMBERS),
        names=("images", "folder"),
    ),
    Call("data.fetch", pf.data.fetch, dict(name="iris", progress=False), dict(name=_TEXTS, progress=WORDS)),
    Call("data.names", pf.data.names, {}, {}),
    Call("data.describe", lambda: None if pf.data.describe() is None else None, {}, {}),
    Call(
        "training.Options",
        _in_folder(_trained),
        dict(path="new", learning_rate=0.1),
        _option_values(),
        names=("option", "hidden", "list"),
    ),
    Call(
        "training.run",
        _in_folder(lambda path, folder, options: pf.training.run(options, path, progress=False)),
        dict(
            path="new",
            options=pf.training.Options(data="iris", learning_rate=0.1, hidden=(2,), steps=1, record_every=0),
        ),
        dict(path=("file/below", "run", None, 3), options=NOTHINGS),
        names=("out", "run"),
    ),
    Call(
        "training.restore",
        _in_folder(lambda path, folder: pf.training.restore(path)),
        dict(path="run"),
        dict(path=_PATHS),
        names=("run", "config"),
    ),
]


# Pictures.


def _drawn(function):
    def call(**arguments):
        try:
            function(**arguments)
        finally:
            plt.close("all")

    return call


_BANANA = pf.functions.banana()
_TABLE = pf.compare(CUBIC, THETA, 0.1, 2, [pf.flows.IGR(0.1)], rtol=1e-4)
_RECORDED = pf.descend(BOWL, THETA, 0.1, 2, record=pf.Record(k=1), progress=False)
_FOUND = pf.landscape.evaluate(CUBIC, _PLANE, points=3)

PICTURES = [
    Call(
        "plot.trajectories",
        _drawn(pf.plot.trajectories),
        dict(objective=_BANANA, paths={"a": np.ones((2, 2))}, descent=None, ax=None, colours=None),
        dict(
            objective=OBJECTIVES,
            paths=(
                {"a": np.full((2, 2), np.nan)},
                {"a": np.ones(2)},
                {"a": "x"},
                {"a": None},
                {1: np.ones((2, 2))},
                *NOTHINGS,
            ),
            descent=(np.full((2, 2), np.inf), *MATRICES),
            colours=({"a": "nope"}, {"a": 1}, *NOTHINGS),
            ax=NOTHINGS[1:6],
        ),
    ),
    Call(
        "plot.errors",
        _drawn(pf.plot.errors),
        dict(table=_TABLE, kind="global", relative=False),
        dict(
            table=(_TABLE[:0], _TABLE.drop(columns="kind"), dict(_TABLE), *NOTHINGS),
            kind=(*WORDS, "local"),
            relative=WORDS,
        ),
    ),
    Call(
        "plot.landscape",
        _drawn(pf.plot.landscape),
        dict(found=_FOUND, surface=False),
        dict(
            found=(
                _FOUND._replace(losses=_FOUND.losses * np.nan),
                _FOUND._replace(losses=np.ones(2)),
                tuple(_FOUND),
                *NOTHINGS,
            ),
            surface=(True, *WORDS[:4]),
        ),
    ),
    Call(
        "plot.stability",
        _drawn(pf.plot.stability),
        dict(records=_RECORDED),
        dict(records=(_RECORDED.records, _RECORDED.records[:0], _RECORDED.records[["step"]], _TABLE, *NOTHINGS)),
    ),
]


# PyTorch, where it is installed.


def _torch_calls() -> list[Call]:
    import torch

    from principalflow.torch import DAL, Monitor

    def parameters(*dtypes):
        return tuple([torch.ones(2, dtype=dtype, requires_grad=dtype.is_floating_point)] for dtype in dtypes)

    def stepped(params, closure, **options):
        params = (
            [p.clone().detach().requires_grad_(p.requires_grad) for p in params] if isinstance(params, list) else params
        )
        optimizer = DAL(params, **options)
        loss = optimizer.step(lambda: closure(params))
        return loss, params, optimizer

    def square(params):
        return sum((p * p).sum() for p in params)

    def observed(model, loss, data, step, learning_rate, **options):
        monitor = Monitor(model, loss, data, **options)
        row = monitor.observe(step, learning_rate)
        monitor.summary()
        return row

    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1).double()
    data = (torch.ones(4, 2).double(), torch.ones(4, 1).double())
    strange = (torch.ones(2), [torch.ones(2)], torch.ones(3, dtype=torch.int), *NOTHINGS)
    closures = (
        lambda params: params[0],
        lambda params: None,
        lambda params: 1.0,
        lambda params: square(params) * float("nan"),
        lambda params: square(params).detach(),
        lambda params: square(params) * 1e300,
        lambda params: (params[0] + 1j).sum(),
        *FUNCTIONS[-11:-5],
    )
    return [
        Call(
            "torch.DAL",
            stepped,
            dict(params=[torch.ones(2, requires_grad=True)], closure=square, **_GOOD_OPTIONS, **_GOOD_OWN_OPTIONS),
            dict(
                params=(
                    *parameters(torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.complex64),
                    *strange,
                ),
                closure=closures,
                **_OPTIONS,
                **_OWN_OPTIONS,
            ),
            names=("closure", "group"),
        ),
        Call(
            "torch.Monitor",
            observed,
            dict(model=model, loss=torch.nn.functional.mse_loss, data=data, k=1, every=1, step=0, learning_rate=0.1),
            dict(
                model=(model.half() if False else torch.nn.Linear(2, 1).half(), torch.nn.ReLU(), *NOTHINGS),
                loss=(lambda a, b: a, lambda a, b: None, lambda a, b: (a - b).sum() * float("nan"), *NOTHINGS),
                data=(data[0], list(data), [data], [], (data[0],), (data[0], data[1].float()), iter([data]), *strange),
                k=NUMBERS,
                every=NUMBERS,
                tol=NUMBERS,
                budget=NUMBERS,
                momentum=NUMBERS,
                step=NUMBERS,
                learning_rate=NUMBERS,
            ),
        ),
    ]


CALLS = [
    *(*OBJECTIVE, *DYNAMICS, *ANALYSIS, *OPTIMIZERS, *MODELS, *RUNS, *PICTURES),
    *(_torch_calls() if find_spec("torch") else []),
]
