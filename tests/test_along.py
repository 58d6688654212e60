"""What every optimiser that measures curvature along its update keeps to: DAL and CDAT."""

import os
import subprocess
import sys
from functools import partial

import cases
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import CDAT_OPTIONS, DAL_OPTIONS, bowl, flat, run
from flax import nnx

import principalflow as pf

OPTIONS = {pf.dal: DAL_OPTIONS, pf.cdat: CDAT_OPTIONS}
CASES = [
    pytest.param(make, options, id=f"{make.__name__} {i}")
    for make, each in OPTIONS.items()
    for i, options in enumerate(each)
]
EXACT = [case for case in CASES if "finite_difference" not in case.values[1].values()]
each_case = pytest.mark.parametrize(("make", "options"), CASES)
each_kind = pytest.mark.parametrize("make", OPTIONS)
X = jnp.ones(2)


@each_case
def test_init_takes_shapes(make, options):
    _, _, point = bowl()
    tx = make(**options)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), point)
    assert jax.tree.map(jnp.shape, tx.init(shapes)) == jax.tree.map(jnp.shape, tx.init(point))


@each_case
def test_jit_gives_the_same_and_compiles_once(make, options):
    _, loss, point = bowl()
    tx = make(**options)

    @jax.jit
    def step(params, state):
        updates, state = tx.update(jax.grad(loss)(params), state, params, value_fn=loss, something_else=1)
        return optax.apply_updates(params, updates), state

    params, state = point, tx.init(point)
    for expected, _ in run(tx, loss, point, 4):
        params, state = step(params, state)
        np.testing.assert_allclose(flat(params), flat(expected), rtol=1e-9)
    assert step._cache_size() == 1


@each_case
def test_parameters_and_state_can_be_donated(make, options):
    _, loss, point = bowl()
    tx = make(**options)

    def step(params, state):
        updates, state = tx.update(jax.grad(loss)(params), state, params, value_fn=loss)
        return optax.apply_updates(params, updates), state

    expected = run(tx, loss, point, 1)[0][0]
    params, _ = jax.jit(step, donate_argnums=(0, 1))(point, tx.init(point))
    np.testing.assert_allclose(flat(params), flat(expected), rtol=1e-9)


@each_case
def test_it_works_inside_cond_scan_and_vmap(make, options):
    _, loss, point = bowl()
    tx = make(**options)

    def step(carry, _):
        params, state = carry

        def move():
            return tx.update(jax.grad(loss)(params), state, params, value_fn=loss)

        updates, state = jax.lax.cond(state.nonfinite == 0, move, lambda: (optax.tree.zeros_like(params), state))
        return (optax.apply_updates(params, updates), state), None

    def train(params):
        return jax.lax.scan(step, (params, tx.init(params)), length=4)[0][0]

    expected = run(tx, loss, point, 4)[-1][0]
    np.testing.assert_allclose(flat(jax.jit(train)(point)), flat(expected), rtol=1e-9)
    two = jax.tree.map(lambda leaf: jnp.stack([-3 * leaf, leaf]), point)
    both = jax.vmap(train)(two)
    np.testing.assert_allclose(flat(jax.tree.map(lambda leaf: leaf[1], both)), flat(expected), rtol=1e-9)


@each_case
def test_hyperparameters_can_be_injected(make, options):
    _, loss, point = bowl()
    plain, injected = make(**options), optax.inject_hyperparams(make)(**options)
    for (expected, _), (params, _) in zip(run(plain, loss, point, 3), run(injected, loss, point, 3), strict=True):
        np.testing.assert_allclose(flat(params), flat(expected), rtol=1e-9)


@each_kind
def test_injected_hyperparameters_may_come_back_as_numpy_arrays(make):
    _, loss, point = bowl()
    tx = optax.inject_hyperparams(make)(power=0.5)
    state = jax.tree.map(np.asarray, tx.init(point))  # as a checkpoint restores it
    updates, _ = tx.update(jax.grad(loss)(point), state, point, value_fn=loss)
    assert jnp.all(jnp.isfinite(flat(updates)))


@each_kind
def test_jitted_injected_hyperparameters_need_not_be_concrete(make):
    _, loss, point = bowl()
    tx = optax.inject_hyperparams(make)(power=0.5, every=2)
    update = jax.jit(partial(tx.update, value_fn=loss))
    updates, _ = update(jax.grad(loss)(point), tx.init(point), point)
    expected, _ = make(power=0.5).update(jax.grad(loss)(point), make(power=0.5).init(point), point, value_fn=loss)
    np.testing.assert_allclose(flat(updates), flat(expected), rtol=1e-9)


@each_kind
def test_accumulated_gradients_step_as_their_mean_does(make):
    _, loss, point = bowl()
    halves = [lambda p: loss(p) + jnp.sum(p["b"]), lambda p: loss(p) - jnp.sum(p["b"])]
    tx = optax.MultiSteps(make(), 2).gradient_transformation()
    params, state = point, tx.init(point)
    for half in halves:
        updates, state = tx.update(jax.grad(half)(params), state, params, value_fn=half)
        params = optax.apply_updates(params, updates)
    expected = run(make(), loss, point, 1)[0][0]
    np.testing.assert_allclose(flat(params), flat(expected), rtol=1e-6)  # MultiSteps averages in float32


@each_kind
def test_masked_parameters_are_held_fixed(make):
    _, loss, point = bowl()
    tx = optax.partition({"move": make(), "still": optax.set_to_zero()}, {"a": "still", "b": "move"})
    updates, _ = tx.update(jax.grad(loss)(point), tx.init(point), point, value_fn=loss, all_params=point)
    ((expected, _),) = run(make(), lambda b: loss({"a": point["a"], "b": b}), point["b"], 1)
    np.testing.assert_allclose(point["b"] + updates["b"], expected, rtol=1e-9)
    assert not updates["a"].any()


@each_kind
def test_masks_without_all_params_are_refused(make):
    _, loss, point = bowl()
    tx = optax.masked(make(), {"a": False, "b": True})
    with pytest.raises(ValueError, match="all_params=params"):
        tx.update(jax.grad(loss)(point), tx.init(point), point, value_fn=loss)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
@pytest.mark.parametrize(("make", "options"), EXACT)
def test_dtypes_are_kept(make, options, dtype):
    params = {"x": jnp.ones(3, dtype)}
    tx = make(**options)
    state = tx.init(params)

    def loss(params):
        return jnp.sum(params["x"] ** 2)

    updates, after = jax.jit(partial(tx.update, value_fn=loss))(jax.grad(loss)(params), state, params)
    assert updates["x"].dtype == dtype
    assert jax.tree.map(lambda leaf: leaf.dtype, after) == jax.tree.map(lambda leaf: leaf.dtype, state)


@pytest.mark.parametrize(("make", "rate"), [(pf.dal, "drift_learning_rate"), (pf.cdat, "curvature_learning_rate")])
def test_bfloat16_takes_the_rate_that_float32_takes(make, rate):
    def loss(x):
        return 3.0 * jnp.sum(x**2)

    rates = []
    for dtype in (jnp.bfloat16, jnp.float32):
        x = jnp.asarray([1.0, 2.0, 3.0], dtype)
        ((_, state),) = run(make(max_learning_rate=1e9), loss, x, 1)
        rates.append(float(optax.tree.get(state, rate)))
    assert abs(rates[0] / rates[1] - 1) < float(jnp.finfo(jnp.bfloat16).eps)


SHARDED = """
import jax, jax.numpy as jnp, optax, principalflow as pf
alone = jnp.arange(8.0)
loss = lambda x: jnp.sum((x - 1) ** 4)
step = lambda tx, x: tx.update(jax.grad(loss)(x), tx.init(x), x, value_fn=loss)
choices = [pf.dal(**options) for options in (dict(), dict(momentum=0.9), dict(curvature="finite_difference"))]
choices += [pf.cdat(), pf.cdat(measure="drift")]
expected = [step(tx, alone)[0] for tx in choices]
for axis in jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit:
    mesh = jax.make_mesh((4,), ("x",), axis_types=(axis,))
    jax.set_mesh(mesh)
    sharding = jax.sharding.NamedSharding(mesh, jax.P("x"))
    params = jax.device_put(alone, sharding)
    for tx, update in zip(choices, expected):
        updates, _ = jax.jit(lambda x: step(tx, x))(params)
        assert updates.sharding.is_equivalent_to(sharding, 1), (axis, updates.sharding)
        assert jnp.allclose(jax.device_get(updates), jax.device_get(update), rtol=1e-5)
    _, state = jax.jit(lambda x: step(pf.dal(per_parameter=True), x))(params)
    assert state.scale.curvature.sharding.is_equivalent_to(sharding, 1), (axis, state.scale.curvature.sharding)
print("kept")
"""


@pytest.mark.slow
def test_sharding_is_kept():
    flags = f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=4"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", SHARDED]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert result.stdout == "kept\n", result.stderr


@each_kind
@pytest.mark.parametrize("curvature", ["hvp", "finite_difference"])
def test_the_exact_step_shares_the_gradients_work(make, curvature):
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), cases.network([784, 100, 100, 100, 10]))
    batch = (jnp.ones((64, 784), jnp.float32), jnp.ones((64, 10), jnp.float32))

    def flops(tx):
        def step(params, state):
            loss = partial(cases.square_loss, batch=batch)
            updates, state = tx.update(jax.grad(loss)(params), state, params, value_fn=loss)
            return optax.apply_updates(params, updates), state

        analysis = jax.jit(step).lower(params, tx.init(params)).compile().cost_analysis()
        return analysis["flops"]

    plain = flops(optax.with_extra_args_support(optax.sgd(0.1)))
    # Without sharing, exact would cost the gradient twice: 3.3.
    assert flops(make(curvature=curvature)) < {"hvp": 2.6, "finite_difference": 2.1}[curvature] * plain


@each_kind
def test_an_equinox_model_trains(make):
    model = eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))
    x = jnp.asarray(np.random.default_rng(0).standard_normal((8, 2)))
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(params):
        return jnp.mean(jax.vmap(eqx.combine(params, static))(x) ** 2)

    after, _ = run(make(), loss, params, 5)[-1]
    assert loss(after) < loss(params)


@each_kind
def test_a_flax_optimizer_steps_as_plain_optax_does(make):
    model = nnx.Linear(2, 1, rngs=nnx.Rngs(0), param_dtype=jnp.float64)
    x = jnp.asarray(np.random.default_rng(0).standard_normal((8, 2)))
    optimizer = nnx.Optimizer(model, make(), wrt=nnx.Param)
    graph, params = nnx.split(model)

    def loss(params):
        return jnp.mean(jnp.tanh(nnx.merge(graph, params)(x)) ** 2)

    ((expected, _),) = run(make(), loss, params, 1)
    gradient = nnx.grad(lambda model: jnp.mean(jnp.tanh(model(x)) ** 2))(model)
    optimizer.update(model, gradient, value_fn=loss)
    np.testing.assert_allclose(model.kernel[...], expected["kernel"][...], rtol=1e-12)
    assert float(optax.tree.get(nnx.as_pure(optimizer.opt_state), "curvature")) > 0


# Values that could give 0/0, inf - inf or an overflow.

SGD = dict(base=optax.sgd(1.0))


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (pf.dal, dict()),
        (pf.dal, dict(per_parameter=True)),
        (pf.cdat, SGD),
        (pf.cdat, SGD | dict(measure="drift", average=None)),
        (pf.cdat, dict()),
    ],
    ids=["dal", "dal per parameter", "cdat", "cdat drift", "cdat adam"],
)
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("scale", "start"),
    [(1.0, 0.0), (0.0, 1.0), (1e30, 1.0), (1e30, 1e-30), (1e-30, 1e-8), (1e3, 1e-25)],
    ids=["zero gradient", "zero curvature", "huge", "huge curvature", "tiny", "tiny gradient"],
)
def test_no_extreme_gives_nan(make, options, power, dtype, scale, start):
    def loss(x):
        return jnp.asarray(scale, dtype) * (x @ x) / 2 + (0 if scale else x[0])

    x = jnp.full(3, start, dtype)
    for curvature in ("hvp", "finite_difference"):
        ((params, state),) = run(make(power=power, curvature=curvature, **options), loss, x, 1)
        assert jnp.all(jnp.isfinite(params))
        # Not normalised, |Hg| leaves single precision where both are huge: a rate of zero, and counted.
        assert int(state.nonfinite) == int(not jnp.all(jnp.isfinite(optax.tree.get(state, "curvature"))))
        assert "per_parameter" in options or int(state.nonfinite) == 0


@each_kind
@pytest.mark.parametrize("average", [0.5, 0.9, 0.99, 0.999])
def test_averages_begin_well_in_single_precision(make, average):
    with jax.enable_x64(False):  # or weights would be in double precision
        _, loss, point = bowl(np.float32)
        first, *_, last = run(make(average=average), loss, point, 3)
        (plain, _), *_ = run(make(average=None), loss, point, 1)
    np.testing.assert_allclose(flat(first[0]), flat(plain), rtol=1e-5)
    assert jnp.all(jnp.isfinite(flat(last[0])))


@each_kind
def test_a_gradient_that_is_not_finite_is_passed_on_and_counted(make):
    tx = make()
    updates, state = tx.update(jnp.array([1.0, jnp.nan]), tx.init(X), X, value_fn=lambda x: x @ x)
    assert jnp.isnan(updates).any()
    assert int(optax.tree.get(state, "nonfinite")) == 1


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (pf.dal, dict()),
        (pf.dal, dict(momentum=0.9, average=0.5)),
        (pf.dal, dict(per_parameter=True, every=2)),
        (pf.cdat, dict()),
        (pf.cdat, dict(average=None, every=2)),
    ],
)
def test_a_gradient_that_is_not_finite_is_skipped_if_asked_for(make, options):
    _, loss, point = bowl()
    tx = make(skip_nonfinite=True, **options)
    params, before = run(tx, loss, point, 2)[-1]
    bad = jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan), jax.grad(loss)(params))
    updates, after = tx.update(bad, before, params, value_fn=loss)
    assert not flat(updates).any()
    assert int(after.nonfinite) == 1
    same = jax.tree.map(lambda a, b: bool(jnp.all(a == b)), after, before._replace(nonfinite=after.nonfinite))
    assert jax.tree.all(same)


# Bad input.


@jax.custom_vjp
def square(x):
    return jnp.sum(x**2)


square.defvjp(lambda x: (square(x), x), lambda x, ct: (2 * ct * x,))


@each_kind
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(), "^update needs .*value_fn=, .* got n"),
        (dict(loss_fn=jnp.sum), r"but \['loss_fn'\]; a wrapper may have dropped it"),
        (dict(value_fn=jnp.sum, params=None), "update needs params"),
        (dict(value_fn=jnp.ones(())), "value_fn must be a function"),
        (dict(value_fn=lambda x: x), "must return one number"),
        (dict(value_fn=lambda x: (jnp.sum(x), x)), "must return one number"),
        (dict(value_fn=lambda x: jnp.sum(x) > 0), "value_fn must return one number, the real loss"),
        (dict(value_fn=lambda x: jnp.sum(x) + 1j), "value_fn must return one number, the real loss"),
        (dict(value_fn=lambda x: "loss"), "value_fn must return one number, the real loss.* got str"),
        (dict(curvature_fn=lambda x: None), "curvature_fn must return one number, the real loss"),
        (dict(value_fn=lambda: 1.0), "value_fn must be a function of params, got one that takes"),
        (dict(value_fn=lambda x: jnp.ones(2) @ jnp.ones(3)), "value_fn can't be evaluated at these params. JAX says"),
        (dict(value_fn=lambda x: square(x) ** 2), "value_fn must have Hessian products, .* has none. JAX says"),
        (dict(value_fn=jnp.sum, params=jnp.ones(3)), "params must be a tree like the updates"),
        (dict(value_fn=jnp.sum, params={"x": X}), "params must be a tree like the updates"),
        (dict(value_fn=jnp.sum, params=["a"]), "params must be a tree like the updates"),
        (dict(value_fn=jnp.sum, params=jnp.ones(2, int)), "params must be real floating-point numbers .* got int"),
        (dict(value_fn=jnp.sum, all_params=jnp.ones(3)), "all_params must be a tree like the updates"),
    ],
)
def test_bad_arguments_of_update_are_refused(make, arguments, message):
    tx = make()
    arguments = {"params": X} | arguments
    with pytest.raises(ValueError, match=message):
        tx.update(X, tx.init(X), **arguments)


@each_kind
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_a_finite_difference_in_half_precision_is_refused(make, dtype):
    with pytest.raises(ValueError, match="lost in rounding: use curvature='hvp'"):
        make(curvature="finite_difference").init(jnp.ones(2, dtype))


@each_kind
@pytest.mark.parametrize("dtype", [jnp.complex64, jnp.int32])
def test_parameters_that_are_not_real_are_refused(make, dtype):
    with pytest.raises(ValueError, match="params must be real"):
        make().init(jnp.ones(2, dtype))


@each_kind
def test_eight_bits_are_refused(make):
    with pytest.raises(ValueError, match="params must be real floating-point numbers of at least 16 bits"):
        make().init(jnp.ones(2, jnp.float8_e4m3fn))


@pytest.mark.parametrize(
    ("updates", "message"),
    [
        ("abc", "updates must be real floating-point numbers .* got str"),
        (X * 1j, "updates must be real floating-point numbers .* got complex128"),
        (np.array([1.0, None]), "updates must be real floating-point numbers"),
        ({"x": X}, "(updates|params) must be a tree like"),
        (jnp.ones(3), "(updates|params) must be a tree like"),
    ],
)
@pytest.mark.parametrize(("make", "options"), [(pf.dal, dict()), (pf.dal, dict(per_parameter=True)), (pf.cdat, dict())])
def test_gradients_unlike_the_parameters_are_refused(make, options, updates, message):
    tx = make(**options)
    with pytest.raises(ValueError, match=message):
        tx.update(updates, tx.init(X), X, value_fn=jnp.sum)


@pytest.mark.parametrize("make", [pf.dal, pf.scale_by_dal, pf.cdat])
def test_a_state_of_another_optimiser_is_refused(make):
    with pytest.raises(ValueError, match="state must be what init or the last update returned, got a tuple"):
        make().update(X, (), X, value_fn=jnp.sum)


@each_kind
def test_parameters_may_be_plain_floats(make):
    loss = lambda p: 2 * p["x"] ** 2  # noqa: E731
    params = {"x": 3.0}
    ((after, _),) = run(make(), loss, params, 1)
    ((expected, _),) = run(make(), loss, {"x": jnp.asarray(3.0)}, 1)
    assert after == expected
