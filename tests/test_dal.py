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
from flax import nnx
from hypothesis import given
from hypothesis import strategies as st

import principalflow as pf

OPTIONS = [
    dict(),
    dict(power=0.5),
    dict(power=0.0, factor=0.3),
    dict(power=2.0, factor=0.7, max_learning_rate=0.4),
    dict(momentum=0.9),
    dict(curvature="finite_difference"),
    dict(every=3),
    dict(every=3, curvature="finite_difference", average=0.5),
    dict(average=0.9),
    dict(per_parameter=True),
    dict(per_parameter=True, power=0.5, momentum=0.5, every=2),
    dict(weight_decay=0.1),
    dict(skip_nonfinite=True),
]
each_option = pytest.mark.parametrize("options", OPTIONS, ids=str)


def bowl(dtype=np.float64, seed=0, size=5):
    """A quadratic: its Hessian, its loss, and a point in a tree of two leaves."""
    random = np.random.default_rng(seed)
    A = random.standard_normal((size, size))
    A = (A + A.T).astype(dtype)
    point = {
        "a": jnp.asarray(random.standard_normal((2, 1)), dtype),
        "b": jnp.asarray(random.standard_normal(3), dtype),
    }

    def loss(params):
        x = flat(params)
        return x @ A @ x / 2

    return A, loss, point


def flat(tree):
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])


def run(tx, loss, params, steps, **extra):
    """The parameters and the state after every step."""
    state, path = tx.init(params), []
    for _ in range(steps):
        updates, state = tx.update(jax.grad(loss)(params), state, params, value_fn=loss, **extra)
        params = optax.apply_updates(params, updates)
        path.append((params, state))
    return path


def in_numpy(A, x, steps, power=1.0, max_learning_rate=5.0, factor=2.0, momentum=0.0, per_parameter=False, every=1,
             average=0.0, weight_decay=0.0, **unused):  # fmt: skip
    """DAL on a quadratic, as the paper writes it: the points, curvatures and rates of every step."""
    x, velocity, path = np.asarray(x, float), 0.0, []
    curvature, weights, length = 0.0, 0.0, 0.0
    for step in range(steps):
        g = A @ x
        if step % every == 0:
            measured = np.abs(A @ g) if per_parameter else np.linalg.norm(A @ g / np.linalg.norm(g))
            weights = average * weights + 1
            curvature = np.maximum(measured, curvature + (measured - curvature) / weights)
            length = np.linalg.norm(g)
        rate = np.minimum(factor / curvature**power, max_learning_rate) * min(1, length / np.linalg.norm(g))
        velocity = momentum * velocity + rate * g
        x = x - velocity - weight_decay * rate * x
        path.append((x, curvature, rate))
    return path


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@each_option
def test_the_rate_on_a_quadratic_is_the_closed_form(options, dtype):
    A, loss, point = bowl(dtype)
    # What a gradient's rounding becomes when a finite difference divides it by 0.01.
    difference = 100 * np.finfo(dtype).eps if "finite_difference" in options.values() else 0.0
    tolerance = (1e-6 if dtype == np.float32 else 1e-12) + 10 * difference
    for (params, state), (x, curvature, rate) in zip(
        run(pf.dal(**options), loss, point, 4), in_numpy(A.astype(float), flat(point), 4, **options), strict=True
    ):
        np.testing.assert_allclose(_flat_if_tree(state.scale.curvature), curvature, rtol=4 * tolerance)
        np.testing.assert_allclose(_flat_if_tree(state.scale.drift_learning_rate), rate, rtol=8 * tolerance)
        np.testing.assert_allclose(flat(params), x, rtol=100 * tolerance, atol=100 * tolerance)


def _flat_if_tree(value):
    return flat(value) if isinstance(value, dict) else value


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-6), (np.float64, 1e-12)])
@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("given", ["value_fn", "hvp", "curvature_fn"])
def test_the_first_rate_is_two_over_the_norm_to_the_power(dtype, tolerance, power, given):
    A, loss, point = bowl(dtype)
    gradient = jax.grad(loss)(point)
    hvp = jax.jvp(jax.grad(loss), (point,), (gradient,))[1]
    extra = {"value_fn": loss, "hvp": hvp, "curvature_fn": loss}
    tx = pf.dal(power=power)
    _, state = tx.update(gradient, tx.init(point), point, **{given: extra[given]})
    g = A.astype(float) @ np.asarray(flat(point), float)
    expected = min(2 / np.linalg.norm(A.astype(float) @ g / np.linalg.norm(g)) ** power, 5.0)
    assert abs(optax.tree.get(state, "drift_learning_rate") / expected - 1) < tolerance


def test_another_batch_gives_the_curvature():
    _, loss, point = bowl(seed=0)
    other, other_loss, _ = bowl(seed=1)
    tx = pf.scale_by_dal()
    _, state = tx.update(jax.grad(loss)(point), tx.init(point), point, value_fn=loss, curvature_fn=other_loss)
    g = other @ flat(point)
    np.testing.assert_allclose(state.curvature, np.linalg.norm(other @ g) / np.linalg.norm(g), rtol=1e-12)


@given(st.integers(0, 10_000), st.floats(-3, 3))
def test_no_step_raises_a_quadratic(seed, scale):
    # h |g.Hg| / |g|^2 <= h |Hg| / |g| = 2, and the loss changes by -h |g|^2 (1 - h g.Hg / (2 |g|^2)).
    A, loss, point = bowl(seed=seed)
    point = jax.tree.map(lambda leaf: leaf * 10**scale, point)
    ((after, _),) = run(pf.dal(max_learning_rate=1e9), loss, point, 1)
    assert loss(after) <= loss(point) + 1e-12 * np.linalg.norm(A) * float(flat(point) @ flat(point))


def test_the_average_falls_slowly_and_rises_at_once():
    tx, x = pf.scale_by_dal(average=0.5), jnp.ones(1)
    state, curvatures = tx.init(x), []
    for measured in (1.0, 2.0, 0.5, 0.5, 9.0):
        _, state = tx.update(x, state, x, hvp=measured * x)
        curvatures.append(float(state.curvature))
    # Weights of the newest: 1, 2/3, 4/7, 8/15, 16/31.
    third = 4 / 7 * 0.5 + 3 / 7 * 2
    np.testing.assert_allclose(curvatures, [1.0, 2.0, third, 8 / 15 * 0.5 + 7 / 15 * third, 9.0], rtol=1e-12)


def test_between_measurements_no_step_is_longer_than_the_measured_one():
    A = np.diag([1.0, 40.0])  # the start hardly sees the steep direction: the kept rate would multiply it by 40 a step

    def loss(x):
        return x @ A @ x / 2

    start = jnp.array([1.0, 1e-3])
    points = [start, *(params for params, _ in run(pf.dal(every=10), loss, start, 20))]
    lengths = np.linalg.norm(np.diff(points, axis=0), axis=1).reshape(2, 10)
    assert np.all(lengths <= lengths[:, :1] * (1 + 1e-12))


@pytest.mark.parametrize("curvature", ["hvp", "finite_difference"])
def test_the_exact_step_shares_the_gradients_work(curvature):
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
    assert flops(pf.dal(curvature=curvature)) < {"hvp": 2.6, "finite_difference": 2.1}[curvature] * plain


@each_option
def test_init_takes_shapes(options):
    _, _, point = bowl()
    tx = pf.dal(**options)
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), point)
    assert jax.tree.map(jnp.shape, tx.init(shapes)) == jax.tree.map(jnp.shape, tx.init(point))


@each_option
def test_jit_gives_the_same_and_compiles_once(options):
    _, loss, point = bowl()
    tx = pf.dal(**options)

    @jax.jit
    def step(params, state):
        updates, state = tx.update(jax.grad(loss)(params), state, params, value_fn=loss, something_else=1)
        return optax.apply_updates(params, updates), state

    params, state = point, tx.init(point)
    for expected, _ in run(tx, loss, point, 4):
        params, state = step(params, state)
        np.testing.assert_allclose(flat(params), flat(expected), rtol=1e-9)
    assert step._cache_size() == 1


@each_option
def test_parameters_and_state_can_be_donated(options):
    _, loss, point = bowl()
    tx = pf.dal(**options)

    def step(params, state):
        updates, state = tx.update(jax.grad(loss)(params), state, params, value_fn=loss)
        return optax.apply_updates(params, updates), state

    expected = run(tx, loss, point, 1)[0][0]
    params, _ = jax.jit(step, donate_argnums=(0, 1))(point, tx.init(point))
    np.testing.assert_allclose(flat(params), flat(expected), rtol=1e-9)


@each_option
def test_it_works_inside_cond_scan_and_vmap(options):
    _, loss, point = bowl()
    tx = pf.dal(**options)

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


@each_option
def test_hyperparameters_can_be_injected(options):
    _, loss, point = bowl()
    plain, injected = pf.dal(**options), optax.inject_hyperparams(pf.dal)(**options)
    for (expected, _), (params, _) in zip(run(plain, loss, point, 3), run(injected, loss, point, 3), strict=True):
        np.testing.assert_allclose(flat(params), flat(expected), rtol=1e-9)


def test_a_schedule_can_drive_the_factor():
    _, loss, point = bowl()
    warm_up = optax.linear_schedule(0.0, 2.0, 2)
    tx = optax.inject_hyperparams(pf.dal)(factor=warm_up, max_learning_rate=1e9)
    rates = [
        optax.tree.get(state, "drift_learning_rate") * optax.tree.get(state, "curvature")
        for _, state in run(tx, loss, point, 3)
    ]
    np.testing.assert_allclose(rates, [0.0, 1.0, 2.0], rtol=1e-6)  # optax's schedules are float32


def test_injected_hyperparameters_may_come_back_as_numpy_arrays():
    _, loss, point = bowl()
    tx = optax.inject_hyperparams(pf.dal)(power=0.5)
    state = jax.tree.map(np.asarray, tx.init(point))  # as a checkpoint restores it
    updates, _ = tx.update(jax.grad(loss)(point), state, point, value_fn=loss)
    assert jnp.all(jnp.isfinite(flat(updates)))


def test_jitted_injected_hyperparameters_need_not_be_concrete():
    _, loss, point = bowl()
    tx = optax.inject_hyperparams(pf.dal)(power=0.5, every=2)
    update = jax.jit(partial(tx.update, value_fn=loss))
    updates, _ = update(jax.grad(loss)(point), tx.init(point), point)
    expected, _ = pf.dal(power=0.5).update(jax.grad(loss)(point), pf.dal(power=0.5).init(point), point, value_fn=loss)
    np.testing.assert_allclose(flat(updates), flat(expected), rtol=1e-9)


def test_clipping_before_it_changes_no_rate():
    _, loss, point = bowl()
    tx = optax.chain(optax.clip_by_global_norm(1e-3), pf.dal(curvature="finite_difference", max_learning_rate=1e9))
    _, state = tx.update(jax.grad(loss)(point), tx.init(point), point, value_fn=loss)
    ((_, plain),) = run(pf.dal(max_learning_rate=1e9), loss, point, 1)
    rates = [optax.tree.get(s, "drift_learning_rate") for s in (state, plain)]
    np.testing.assert_allclose(*rates, rtol=1e-9)


def test_accumulated_gradients_step_as_their_mean_does():
    A, loss, point = bowl()
    halves = [lambda p: loss(p) + jnp.sum(p["b"]), lambda p: loss(p) - jnp.sum(p["b"])]
    tx = optax.MultiSteps(pf.dal(), 2).gradient_transformation()
    params, state = point, tx.init(point)
    for half in halves:
        updates, state = tx.update(jax.grad(half)(params), state, params, value_fn=half)
        params = optax.apply_updates(params, updates)
    expected = in_numpy(A, flat(point), 1)[0][0]
    np.testing.assert_allclose(flat(params), expected, rtol=1e-6)  # MultiSteps averages in float32


@pytest.mark.parametrize("given", ["value_fn", "hvp"])
def test_masked_parameters_are_held_fixed(given):
    A, loss, point = bowl()
    tx = optax.partition({"dal": pf.dal(), "still": optax.set_to_zero()}, {"a": "still", "b": "dal"})
    gradient = jax.grad(loss)(point)
    moving = {"a": jnp.zeros_like(gradient["a"]), "b": gradient["b"]}
    if given == "hvp":
        extra = dict(hvp=jax.jvp(jax.grad(loss), (point,), (moving,))[1])
    else:
        extra = dict(value_fn=loss, all_params=point)
    updates, state = tx.update(gradient, tx.init(point), point, **extra)
    part = np.linalg.norm(A[2:, 2:] @ gradient["b"]) / np.linalg.norm(gradient["b"])
    np.testing.assert_allclose(optax.tree.get(state, "curvature"), part, rtol=1e-12)
    np.testing.assert_allclose(updates["b"], -min(2 / part, 5.0) * gradient["b"], rtol=1e-12)
    assert not updates["a"].any()


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
@pytest.mark.parametrize("options", [o for o in OPTIONS if "finite_difference" not in o.values()], ids=str)
def test_dtypes_are_kept(options, dtype):
    params = {"x": jnp.ones(3, dtype)}
    tx = pf.dal(**options)
    state = tx.init(params)

    def loss(params):
        return jnp.sum(params["x"] ** 2)

    updates, after = jax.jit(partial(tx.update, value_fn=loss))(jax.grad(loss)(params), state, params)
    assert updates["x"].dtype == dtype
    assert jax.tree.map(lambda leaf: leaf.dtype, after) == jax.tree.map(lambda leaf: leaf.dtype, state)


def test_bfloat16_takes_the_rate_that_float32_takes():
    def loss(x):
        return 3.0 * jnp.sum(x**2)

    rates = []
    for dtype in (jnp.bfloat16, jnp.float32):
        x = jnp.asarray([1.0, 2.0, 3.0], dtype)
        ((_, state),) = run(pf.dal(), loss, x, 1)
        rates.append(float(optax.tree.get(state, "drift_learning_rate")))
    assert abs(rates[0] / rates[1] - 1) < float(jnp.finfo(jnp.bfloat16).eps)


def test_map_params_finds_what_is_shaped_like_the_parameters():
    _, _, point = bowl()
    tx = pf.dal(per_parameter=True, momentum=0.9)
    counted = optax.tree.map_params(tx, lambda leaf: leaf + 1, tx.init(point))
    assert float(counted.scale.curvature["b"][0]) == 1.0
    assert int(counted.scale.count) == 0


SHARDED = """
import jax, jax.numpy as jnp, optax, principalflow as pf
alone = jnp.arange(8.0)
loss = lambda x: jnp.sum((x - 1) ** 4)
step = lambda tx, x: tx.update(jax.grad(loss)(x), tx.init(x), x, value_fn=loss)
choices = [pf.dal(**options) for options in (dict(), dict(momentum=0.9), dict(curvature="finite_difference"))]
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


def test_an_equinox_model_trains_as_plain_parameters_do():
    model = eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))
    x = jnp.asarray(np.random.default_rng(0).standard_normal((8, 2)))
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def loss(params):
        return jnp.mean(jax.vmap(eqx.combine(params, static))(x) ** 2)

    ((_, state),) = run(pf.dal(), loss, params, 1)
    g = jax.grad(loss)(params)
    Hg = jax.jvp(jax.grad(loss), (params,), (g,))[1]
    np.testing.assert_allclose(state.scale.curvature, optax.tree.norm(Hg) / optax.tree.norm(g), rtol=1e-9)


def test_a_flax_optimizer_steps_as_plain_optax_does():
    model = nnx.Linear(2, 1, rngs=nnx.Rngs(0), param_dtype=jnp.float64)
    x = jnp.asarray(np.random.default_rng(0).standard_normal((8, 2)))
    optimizer = nnx.Optimizer(model, pf.dal(), wrt=nnx.Param)
    graph, params = nnx.split(model)

    def loss(params):
        return jnp.mean(jnp.tanh(nnx.merge(graph, params)(x)) ** 2)

    ((expected, _),) = run(pf.dal(), loss, params, 1)
    gradient = nnx.grad(lambda model: jnp.mean(jnp.tanh(model(x)) ** 2))(model)
    optimizer.update(model, gradient, value_fn=loss)
    np.testing.assert_allclose(model.kernel[...], expected["kernel"][...], rtol=1e-12)
    assert float(optax.tree.get(nnx.as_pure(optimizer.opt_state), "drift_learning_rate")) > 0


# Values that could give 0/0, inf - inf or an overflow.


@pytest.mark.parametrize("per_parameter", [False, True])
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("scale", "start"),
    [(1.0, 0.0), (0.0, 1.0), (1e30, 1.0), (1e30, 1e-30), (1e-30, 1e-8), (1e3, 1e-25)],
    ids=["zero gradient", "zero curvature", "huge", "huge curvature", "tiny", "tiny gradient"],
)
def test_no_extreme_gives_nan(per_parameter, power, dtype, scale, start):
    def loss(x):
        return jnp.asarray(scale, dtype) * (x @ x) / 2 + (0 if scale else x[0])

    x = jnp.full(3, start, dtype)
    for curvature in ("hvp", "finite_difference"):
        ((params, state),) = run(pf.dal(power=power, per_parameter=per_parameter, curvature=curvature), loss, x, 1)
        assert jnp.all(jnp.isfinite(params))
        # Not normalised, |Hg| leaves single precision where both are huge: a rate of zero, and counted.
        assert int(state.nonfinite) == int(not jnp.all(jnp.isfinite(state.scale.curvature)))
        assert per_parameter or int(state.nonfinite) == 0


def test_a_huge_curvature_gives_its_tiny_rate():
    def loss(x):
        return jnp.float32(1e30) * (x @ x) / 2

    ((_, state),) = run(pf.dal(), loss, jnp.ones(3, jnp.float32), 1)
    assert abs(float(state.scale.drift_learning_rate) / 2e-30 - 1) < 1e-6


@pytest.mark.parametrize("options", [dict(), dict(average=0.9), dict(every=2)])
def test_one_infinite_curvature_is_counted_and_forgotten(options):
    tx, x = pf.dal(**options), jnp.ones(2)
    state = tx.init(x)
    for hvp in (x, jnp.inf * x, x, x):
        updates, state = tx.update(x, state, hvp=hvp)
        assert jnp.all(jnp.isfinite(updates))
    assert float(state.scale.drift_learning_rate) == pytest.approx(2.0)
    assert int(state.nonfinite) == (0 if "every" in options else 1)


def test_a_gradient_of_zero_is_measured_again():
    tx, x = pf.dal(every=10), jnp.ones(2)
    _, state = tx.update(0 * x, tx.init(x), hvp=0 * x)
    _, state = tx.update(x, state, hvp=4 * x)
    assert float(state.scale.drift_learning_rate) == pytest.approx(0.5)


def test_a_zero_curvature_gives_the_cap():
    ((params, _),) = run(pf.dal(max_learning_rate=3.0), lambda x: jnp.sum(x), jnp.zeros(2), 1)
    assert params.tolist() == [-3.0, -3.0]


def test_a_gradient_that_is_not_finite_is_passed_on_and_counted():
    tx, x = pf.dal(), jnp.ones(2)
    updates, state = tx.update(jnp.array([1.0, jnp.nan]), tx.init(x), x, value_fn=lambda x: x @ x)
    assert jnp.isnan(updates).any()
    assert int(optax.tree.get(state, "nonfinite")) == 1


@pytest.mark.parametrize("options", [dict(), dict(momentum=0.9, average=0.5), dict(per_parameter=True, every=2)])
def test_a_gradient_that_is_not_finite_is_skipped_if_asked_for(options):
    _, loss, point = bowl()
    tx = pf.dal(skip_nonfinite=True, **options)
    params, before = run(tx, loss, point, 2)[-1]
    bad = jax.tree.map(lambda leaf: leaf.at[0].set(jnp.nan), jax.grad(loss)(params))
    updates, after = tx.update(bad, before, params, value_fn=loss)
    assert not flat(updates).any()
    assert int(after.nonfinite) == 1
    same = jax.tree.map(
        lambda a, b: bool(jnp.all(a == b)), (after.scale, after.momentum), (before.scale, before.momentum)
    )
    assert jax.tree.all(same)


# Bad input.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(power=-0.5), "power must be a finite number of at least 0, got -0.5"),
        (dict(max_learning_rate=0), "max_learning_rate must be a finite number above 0, got 0"),
        (dict(factor=0.0), "factor must be a finite number above 0, got 0.0"),
        (dict(every=0), "every must be a whole number of at least 1, got 0"),
        (dict(every=2.5), "every must be a whole number"),
        (dict(momentum=1.0), "momentum must be a number of at least 0 and below 1"),
        (dict(average=-0.1), "average must be"),
        (dict(weight_decay=-1), "weight_decay must be"),
        (dict(factor=optax.linear_schedule(0, 1, 5)), r"inject_hyperparams\(pf.dal\)\(factor=...\)"),
        (dict(curvature="exact"), "curvature must be one of 'hvp', 'finite_difference', got 'exact'"),
        (dict(factor=10**400), "factor must be within the range of floating-point numbers"),
        (dict(power=np.ones(2)), r"power must be one real number, got float64\(2,\)"),
        (dict(factor=np.array("x")), "factor must be one real number"),
        (dict(per_parameter="no"), "per_parameter must be True or False, got 'no'"),
        (dict(skip_nonfinite=None), "skip_nonfinite must be True or False"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        pf.dal(**options)


X = jnp.ones(2)


@jax.custom_vjp
def square(x):
    return jnp.sum(x**2)


square.defvjp(lambda x: (square(x), x), lambda x, ct: (2 * ct * x,))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(), "got neither"),
        (dict(value_fn=jnp.sum, hvp=X), "got both"),
        (dict(curvature_fn=jnp.sum, hvp=X), "got both"),
        (dict(value_fn=jnp.sum, params=None), "update needs params"),
        (dict(hvp=jnp.ones(3)), "hvp must be a tree like the updates"),
        (dict(hvp={"x": X}), "hvp must be a tree like the updates"),
        (dict(hvp=jnp.ones((2, 1))), "hvp must be a tree like the updates"),
        (dict(loss_fn=jnp.sum), r"got neither, but \['loss_fn'\]; a wrapper may have dropped it"),
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
def test_bad_arguments_of_update_are_refused(arguments, message):
    tx = pf.dal()
    arguments = {"params": X} | arguments
    with pytest.raises(ValueError, match=message):
        tx.update(X, tx.init(X), **arguments)


def test_masks_without_all_params_are_refused():
    _, loss, point = bowl()
    tx = optax.masked(pf.dal(), {"a": False, "b": True})
    with pytest.raises(ValueError, match="all_params=params"):
        tx.update(jax.grad(loss)(point), tx.init(point), point, value_fn=loss)


def test_weight_decay_takes_params_that_are_plain_numbers():
    tx = pf.dal(weight_decay=0.1)
    found, expected = (
        tx.update(jnp.ones(()), tx.init(jnp.ones(())), w, hvp=jnp.ones(()))[0] for w in (0.5, jnp.array(0.5))
    )
    assert found == expected


def test_weight_decay_without_params_is_refused():
    tx = pf.dal(weight_decay=0.1)
    with pytest.raises(ValueError, match="update needs params"):
        tx.update(X, tx.init(X), hvp=X)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_a_finite_difference_in_half_precision_is_refused(dtype):
    with pytest.raises(ValueError, match="lost in rounding: use curvature='hvp'"):
        pf.dal(curvature="finite_difference").init(jnp.ones(2, dtype))


@pytest.mark.parametrize("dtype", [jnp.complex64, jnp.int32])
def test_parameters_that_are_not_real_are_refused(dtype):
    with pytest.raises(ValueError, match="params must be real"):
        pf.dal().init(jnp.ones(2, dtype))


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
@pytest.mark.parametrize("per_parameter", [False, True])
def test_gradients_unlike_the_parameters_are_refused(updates, message, per_parameter):
    tx = pf.dal(per_parameter=per_parameter)
    with pytest.raises(ValueError, match=message):
        tx.update(updates, tx.init(X), X, value_fn=jnp.sum)


@pytest.mark.parametrize("make", [pf.dal, pf.scale_by_dal])
def test_a_state_of_another_optimiser_is_refused(make):
    with pytest.raises(ValueError, match="state must be what init or the last update returned, got a tuple"):
        make().update(X, (), X, value_fn=jnp.sum)


def test_eight_bits_are_refused():
    with pytest.raises(ValueError, match="params must be real floating-point numbers of at least 16 bits"):
        pf.dal().init(jnp.ones(2, jnp.float8_e4m3fn))


def test_parameters_may_be_plain_floats():
    loss = lambda p: 2 * p["x"] ** 2  # noqa: E731
    tx = pf.dal()
    params = {"x": 3.0}
    updates, _ = tx.update(jax.grad(loss)(params), tx.init(params), params, value_fn=loss)
    np.testing.assert_allclose(updates["x"], -6.0)
