"""What is thrown at the library: numbers, arrays, trees, losses and objects that have no place there.

All lists are fixed and short, and all problems have three parameters, so that what JAX has compiled is used again.
"""

from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pandas
from cases import OwnError, without_second_derivative
from jax import lax

import principalflow as pf


def mean_square(params, batch):
    inputs, targets = batch
    difference = inputs @ params["w"] + params["b"] - targets
    return jnp.mean(difference * difference)


def large_product(block, scale=1.0):
    if len(block) != 600:
        raise OwnError(f"a block of {len(block)} rows")
    return scale * np.arange(600.0)[:, None] * block


PARAMS = {"w": jnp.array([0.5, -0.3]), "b": jnp.array(0.1)}
DATA = (jnp.array([[1.0, 2.0], [0.5, -1.0], [2.0, 0.0], [1.5, 1.0]]), jnp.array([1.0, 0.0, 2.0, 1.0]))
SMALL = pf.Objective(mean_square, PARAMS, DATA)
CHUNKED = pf.Objective(mean_square, PARAMS, DATA, chunk=3)
CUBIC = pf.Objective(lambda p: jnp.sum(p**2) / 2 + jnp.sum(p**3) / 30, jnp.array([0.5, -0.3, 0.1]))
THETA = np.array([0.1, 0.5, -0.3])

# What functions return, made by hand: to compute it would take seconds before any test.
PLANE = pf.landscape.Plane(jnp.asarray(THETA), jnp.eye(3, 2), np.zeros((0, 2)), 1.0)
LANDSCAPE = pf.landscape.Landscape(PLANE, (np.arange(3.0), np.arange(3.0)), np.arange(9.0).reshape(3, 3))
EIGENPAIRS, OTHER_EIGENPAIRS = (
    pf.spectrum.Eigenpairs(np.ones(1), jnp.eye(size, 1), np.zeros(1), 1, True, "largest", "dense") for size in (3, 2)
)
# With a trail, as only a search leaves one.
LARGE_EIGENPAIRS = pf.spectrum.block_eigenpairs(large_product, np.random.default_rng(0).standard_normal((600, 2)), 1)
GUESSES = (
    *(EIGENPAIRS, OTHER_EIGENPAIRS, LARGE_EIGENPAIRS),
    *(
        replace(LARGE_EIGENPAIRS, trail=LARGE_EIGENPAIRS.trail.map(f))
        for f in (lambda x: x[:300], lambda x: x * np.nan)
    ),
)
COMPARISON = pandas.DataFrame(
    dict(
        flow="IGR",
        step=[1, 2],
        kind=["local", "global"],
        error=0.1,
        relative_error=0.1,
        evaluations=7,
        status="completed",
    )
)
_RECORDED = "step learning_rate loss loss_change relative_progress drift_estimate eigenvalue_0 coefficient_0_real"
_RECORDED += " next_projection_0 next_projection_0_ngf next_projection_0_igr next_projection_0_pf"
RECORDS = pandas.DataFrame({name: [0.5, 1.5] for name in _RECORDED.split()})
WATCHED = pandas.DataFrame({"step": [1, 2], "events": ["", "a spike"], "batch_loss": [1.0, 2.0]})

NOTHINGS = (None, "", "abc", b"1", object(), {}, [], (), int, len, np.random.default_rng(0))

_NOT_CALLED = tuple(value for value in NOTHINGS if not callable(value))

NUMBERS = (
    *(float("nan"), float("inf"), -float("inf"), 1e308, -1e308, 5e-324, -0.0, 0, 0.1, 1, -1, 3, 1e30),
    *(10**400, -(10**400), 2**63, 10**30, True, False, 1j, complex("nan"), "1", "nan"),
    *(np.float32("nan"), np.float64(0.1), np.int64(3), np.uint8(2), np.bool_(True), np.float16(0.5)),
    *(Fraction(1, 3), Fraction(10**400), Decimal("0.1"), Decimal("nan"), Decimal("sNaN"), Decimal("1e999")),
    *(np.array(0.1), np.array([0.1]), np.array([0.1, 0.2]), jnp.array(0.1), jnp.array(2), np.array("x")),
    *NOTHINGS,
)

_BY_DTYPE = [
    np.array([0.1, 0.5, -0.3], dtype)
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.complex64, np.complex128)
]
VECTORS = (
    *_BY_DTYPE,
    *(np.array([1, 2, 3]), np.array([1, 2, 3], np.int8), np.array([True, False, True]), [1, 2, 3], (0.1, 0.2, 0.3)),
    *(
        np.full(3, np.nan),
        np.array([0.1, np.inf, 0.2]),
        np.full(3, 1e308),
        np.full(3, 5e-324),
        np.zeros(3),
        -np.zeros(3),
    ),
    *(np.full(3, 1e30), [10**400, 0, 0], [2**63, 0, 0], [2**64, 1, 1], [Fraction(1, 3)] * 3, [Decimal("0.1")] * 3),
    *(np.array([0.1, None, 2], object), np.array([0.1, 0.2, 0.3], object), np.array(["a", "b", "c"]), ["0.1"] * 3),
    *(np.array(0.1), np.ones(0), np.ones(2), np.ones(4), np.ones((3, 1)), np.ones((1, 3)), np.ones((3, 0))),
    *([[1.0], [2.0, 3.0]], [1.0, [2.0], 3.0], [None] * 3, [1j] * 3, {0.1, 0.2, 0.3}, (x for x in range(3))),
    *(PARAMS, np.array([1, 2, 3], "datetime64[D]"), np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False])),
    *(1.0, float("nan"), 10**400, *NOTHINGS),
)

MATRICES = (
    *(np.eye(3), np.eye(3, dtype=np.float32), np.eye(3, dtype=int), np.eye(3, dtype=np.float16), 1j * np.eye(3)),
    *(np.full((3, 3), np.nan), 1e308 * np.eye(3), 5e-324 * np.eye(3), np.zeros((3, 3)), -np.eye(3), np.ones((3, 3))),
    *(np.triu(np.ones((3, 3))), np.eye(3)[:2], np.eye(2), np.ones((0, 0)), np.ones((3, 0)), np.ones((3, 3, 1))),
    *(np.eye(3, dtype=bool), np.eye(3).astype(object), np.eye(3).astype(str), np.eye(3).astype(ml_dtypes.bfloat16)),
    *([[1.0, 2.0], [3.0]], [[10**400]], [[1j]], *VECTORS[-14:]),
)

BLOCKS = (*MATRICES, *VECTORS, np.ones((3, 2)), np.ones((3, 2)) * 1j, np.ones((3, 2), np.float32))

INDICES = (
    *(0, -1, 3, 4, -5, 10**30, True, 1.5, None, "1", np.array([0, 4]), np.array([-1]), np.array([0.5]), np.array(1)),
    *(np.array([True, False, True, False]), np.array([True]), np.ones((2, 2), int), np.ones(0, int), [0, 3], [0, [1]]),
    *([2**63], [10**400], [None], ["a"], [], slice(2), slice(0, 9), np.array([2], np.uint8), object(), [1j]),
)

DATAS = (
    *(DATA[0], (DATA[0],), (DATA[0], DATA[1], DATA[1]), list(DATA), dict(enumerate(DATA)), (DATA[1], DATA[0])),
    *((DATA[0], DATA[1][:3]), (DATA[0][:3], DATA[1]), (DATA[0][:0], DATA[1][:0]), (DATA[0][:1], DATA[1][:1])),
    *((DATA[0] * np.nan, DATA[1]), (DATA[0].astype(int), DATA[1].astype(int)), (DATA[0].astype(bool), DATA[1])),
    *((np.asarray(DATA[0]).astype(str), DATA[1]), (np.asarray(DATA[0]).astype(object), DATA[1]), ("abc", DATA[1])),
    *((DATA[0].astype(jnp.float16), DATA[1]), (np.asarray(DATA[0]).astype(ml_dtypes.float8_e4m3fn), DATA[1])),
    *((DATA[0] + 1j, DATA[1]), (DATA[0], None), (None, None), ([[1.0, 2.0], [3.0]], DATA[1]), (1.0, 2.0)),
    *(
        ([[1.0, 2.0]] * 4, [1.0] * 4),
        ([[10**400, 0]] * 4, DATA[1]),
        (DATA[0][:, :1], DATA[1]),
        (DATA[0][..., None], DATA[1]),
    ),
    *(np.zeros((4, 2), "datetime64[D]"), (np.zeros((4, 0)), DATA[1]), iter(DATA), *NOTHINGS),
)

PARAMETERS = (
    *(dict(PARAMS, b=jnp.nan), dict(PARAMS, b=1j), dict(PARAMS, b=1), dict(PARAMS, b=True), dict(PARAMS, b="0.1")),
    *(
        dict(PARAMS, b=None),
        dict(PARAMS, b=[0.1]),
        dict(PARAMS, b=10**400),
        dict(PARAMS, b=np.array([0.1, None], object)),
    ),
    *(dict(PARAMS, b=np.array("x")), dict(PARAMS, b=np.float32(0.1)), dict(PARAMS, b=0.1), dict(PARAMS, extra=None)),
    *(dict(PARAMS, extra="name"), dict(PARAMS, extra=np.ones(2)), {"w": PARAMS["w"]}, dict(PARAMS, w=jnp.ones(3))),
    *(optax.tree.cast(PARAMS, dtype) for dtype in (jnp.float16, jnp.bfloat16, jnp.float32)),
    *(
        jax.tree.map(lambda leaf: np.asarray(leaf).astype(ml_dtypes.float8_e4m3fn), PARAMS),
        jax.tree.map(np.asarray, PARAMS),
    ),
    dict(PARAMS, b=np.asarray(0.1, ml_dtypes.float8_e4m3fn)),
    *(jax.tree.map(lambda leaf: leaf.astype(jnp.complex64), PARAMS), jax.tree.map(lambda leaf: leaf * 1e308, PARAMS)),
    *(jax.tree.map(lambda leaf: leaf * np.inf, PARAMS), jax.tree.map(lambda leaf: leaf.astype(int), PARAMS)),
    *(
        [PARAMS["w"], PARAMS["b"]],
        PARAMS["w"],
        THETA,
        jnp.ones(0),
        np.ones(3, object),
        [0.1, 0.2, 0.3],
        0.1,
        jnp.array(0.1),
    ),
    *({}, [], None, "abc", 3, object(), {"w": None}, [None, None], float("nan"), np.array(["a"]), jax.random.key(0)),
)


def _not_finite(loss):
    loss.not_finite = True
    return loss


def _total(params):
    return sum(jnp.sum(leaf) for leaf in jax.tree.leaves(params))


def _raises(*_):
    raise OwnError("the loss of the user")


def _branches(params, batch):
    return _total(params) if _total(params) > 0 else -_total(params)


def _loops(params, batch):
    return lax.while_loop(lambda x: x < 3, lambda x: 2 * x, 1 + _total(params) ** 2)


def _calls_back(params, batch):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), jnp.result_type(_total(params))), _total(params))


def _square(params):
    return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params))


LOSSES = (
    lambda params, batch: _total(params) > 0,
    lambda params, batch: jnp.round(_total(params)).astype(int),
    lambda params, batch: _total(params) + 1j,
    lambda params, batch: params["w"],
    lambda params, batch: jnp.ones(1) * _total(params),
    lambda params, batch: (_total(params), 0),
    lambda params, batch: 1.0,
    lambda params, batch: jnp.array(1.0),
    lambda params, batch: None,
    lambda params, batch: "abc",
    lambda params, batch: np.float64(2),
    _not_finite(lambda params, batch: _total(params) * jnp.nan),
    _not_finite(lambda params, batch: _total(params) + jnp.inf),
    _not_finite(lambda params, batch: jnp.sqrt(_total(params) ** 2 - _total(params) ** 2)),
    _not_finite(lambda params, batch: _square(params) * 1e300),
    lambda params, batch: _square(params).astype(jnp.float16),
    lambda params, batch: jnp.sum(jnp.ones(2) @ jnp.ones(3)),
    lambda params, batch: params["missing"],
    lambda params, batch: float(_total(params)),
    lambda params, batch: np.asarray(_total(params)),
    lambda params: _total(params),
    lambda: 1.0,
    lambda params, batch, more: 1.0,
    lambda params, batch: without_second_derivative(params),
    lambda params, batch: jnp.abs(_total(params)),
    lambda params, batch: lax.stop_gradient(_square(params)),
    *(_raises, _branches, _loops, _calls_back, jax.jit(mean_square), mean_square, *_NOT_CALLED),
)


def _of_params(loss):
    function = lambda params: loss(params, DATA)  # noqa: E731
    return _not_finite(function) if hasattr(loss, "not_finite") else function


# The same as functions of the parameters alone.
VALUE_FUNCTIONS = tuple(_of_params(loss) if callable(loss) else loss for loss in LOSSES)

FUNCTIONS = (
    *(lambda z: z, jnp.sqrt, jnp.log, lambda z: 1 / (z - z), lambda z: z[0], lambda z: None, lambda z: "abc"),
    *(lambda z: z.astype(int), lambda z: jnp.exp(1e3 * z), lambda: 1, _raises, *_NOT_CALLED),
)

OBJECTIVES = (SMALL, CHUNKED, CUBIC, mean_square, pf.Objective, *NOTHINGS)

FLOWS = (
    *(pf.flows.NegativeGradient(), pf.flows.PositiveGradient(), pf.flows.IGR(0.1), pf.flows.ThirdOrder(0.1)),
    *(pf.flows.BackwardError(0.1, 2), pf.flows.Principal(0.1), pf.flows.PrincipalThirdOrder(0.1)),
    *(
        pf.flows.FlippedDirection(),
        pf.flows.FlippedDirection(2),
        pf.flows.FlippedDirection(5),
        pf.flows.Principal(1e30),
    ),
    *(pf.flows.IGR(1e30), pf.flows.NegativeGradient, pf.flows.IGR, *NOTHINGS),
)

# For functions that compile much for each flow.
FEW_FLOWS = (*FLOWS[:3], *FLOWS[-13:])

WORDS = (
    "",
    "hvp",
    "HVP",
    "largest",
    "auto",
    None,
    1,
    b"hvp",
    ["hvp"],
    {},
    object(),
    float("nan"),
    np.array(["a", "b"]),
)
