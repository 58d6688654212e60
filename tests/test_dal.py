import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import DAL_OPTIONS, bowl, flat, run
from hypothesis import given
from hypothesis import strategies as st

import principalflow as pf

each_option = pytest.mark.parametrize("options", DAL_OPTIONS, ids=str)


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


def test_a_schedule_can_drive_the_factor():
    _, loss, point = bowl()
    warm_up = optax.linear_schedule(0.0, 2.0, 2)
    tx = optax.inject_hyperparams(pf.dal)(factor=warm_up, max_learning_rate=1e9)
    rates = [
        optax.tree.get(state, "drift_learning_rate") * optax.tree.get(state, "curvature")
        for _, state in run(tx, loss, point, 3)
    ]
    np.testing.assert_allclose(rates, [0.0, 1.0, 2.0], rtol=1e-6)  # optax's schedules are float32


def test_clipping_before_it_changes_no_rate():
    _, loss, point = bowl()
    tx = optax.chain(optax.clip_by_global_norm(1e-3), pf.dal(curvature="finite_difference", max_learning_rate=1e9))
    _, state = tx.update(jax.grad(loss)(point), tx.init(point), point, value_fn=loss)
    ((_, plain),) = run(pf.dal(max_learning_rate=1e9), loss, point, 1)
    rates = [optax.tree.get(s, "drift_learning_rate") for s in (state, plain)]
    np.testing.assert_allclose(*rates, rtol=1e-9)


def test_a_product_may_have_what_masks_hide():
    A, loss, point = bowl()
    tx = optax.partition({"dal": pf.dal(), "still": optax.set_to_zero()}, {"a": "still", "b": "dal"})
    gradient = jax.grad(loss)(point)
    moving = {"a": jnp.zeros_like(gradient["a"]), "b": gradient["b"]}
    hvp = jax.jvp(jax.grad(loss), (point,), (moving,))[1]
    _, state = tx.update(gradient, tx.init(point), point, hvp=hvp)
    part = np.linalg.norm(A[2:, 2:] @ gradient["b"]) / np.linalg.norm(gradient["b"])
    np.testing.assert_allclose(optax.tree.get(state, "curvature"), part, rtol=1e-12)


def test_map_params_finds_what_is_shaped_like_the_parameters():
    _, _, point = bowl()
    tx = pf.dal(per_parameter=True, momentum=0.9)
    counted = optax.tree.map_params(tx, lambda leaf: leaf + 1, tx.init(point))
    assert float(counted.scale.curvature["b"][0]) == 1.0
    assert int(counted.scale.count) == 0


# Values that could give 0/0, inf - inf or an overflow.


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
        (dict(factor=optax.linear_schedule(0, 1, 5)), r"inject_hyperparams\(...\)\(factor=...\)"),
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(value_fn=jnp.sum, hvp=X), "got both"),
        (dict(curvature_fn=jnp.sum, hvp=X), "got both"),
        (dict(hvp=jnp.ones(3)), "hvp must be a tree like the updates"),
        (dict(hvp={"x": X}), "hvp must be a tree like the updates"),
        (dict(hvp=jnp.ones((2, 1))), "hvp must be a tree like the updates"),
    ],
)
def test_a_bad_product_is_refused(arguments, message):
    tx = pf.dal()
    with pytest.raises(ValueError, match=message):
        tx.update(X, tx.init(X), X, **arguments)


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
