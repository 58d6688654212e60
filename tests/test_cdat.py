from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import CDAT_OPTIONS, bowl, flat, run
from hypothesis import given, settings
from hypothesis import strategies as st

import principalflow as pf

BASES = {
    "sgd": partial(optax.sgd, 1.0),
    "momentum": partial(optax.sgd, 1.0, momentum=0.9),
    "adam": partial(optax.adam, 1.0),
    "adamw": partial(optax.adamw, 1.0, weight_decay=0.1),
    "rmsprop": partial(optax.rmsprop, 1.0),
}
each_base = pytest.mark.parametrize("base", BASES)
each_measure = pytest.mark.parametrize("measure", ["directional", "drift"])
on_sgd = partial(pf.cdat, optax.sgd(1.0), average=None)


def in_numpy(A, x, steps, base=None, scale=2.0, power=1.0, max_learning_rate=1.0, measure="directional", every=1,
             average=0.9, **unused):  # fmt: skip
    """CDAT on a quadratic, as its paper writes it: the points, slopes over curvatures, and rates of every step."""
    base, decay = base or optax.adam(1.0), average or 0.0
    x, state, path = np.asarray(x, float), base.init(x), []
    averages, weights = np.zeros(3), 0.0
    for step in range(steps):
        g = A @ x
        u, state = base.update(jnp.asarray(g), state, jnp.asarray(x))
        u, part = np.asarray(u), 1.0
        if step % every == 0:
            bend = abs(u @ A @ u) if measure == "directional" else np.linalg.norm(A @ u) * np.linalg.norm(u)
            averages = decay * averages + (1 - decay) * np.array([max(-g @ u, 0), bend, u @ u])
            weights = decay * weights + 1 - decay
        else:
            part = min(1, np.sqrt(averages[2] / weights / (u @ u)))
        n, d, _ = averages
        rate = min(scale / (d / n) ** power, max_learning_rate) * part
        x = x + rate * u
        path.append((x, n / d, rate))
    return path


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("options", CDAT_OPTIONS, ids=lambda o: ", ".join(o))
def test_the_rate_on_a_quadratic_is_the_papers_ratio_of_averages(options, dtype):
    A, loss, point = bowl(dtype)
    # What a gradient's rounding becomes when a finite difference divides it by 0.01.
    difference = 1000 * np.finfo(dtype).eps if "finite_difference" in options.values() else 0.0
    tolerance = (1e-5 if dtype == np.float32 else 1e-11) + 10 * difference
    for (params, state), (x, ratio, rate) in zip(
        run(pf.cdat(**options), loss, point, 5), in_numpy(A.astype(float), flat(point), 5, **options), strict=True
    ):
        np.testing.assert_allclose(state.slope / state.curvature, ratio, rtol=4 * tolerance)
        np.testing.assert_allclose(state.curvature_learning_rate, rate, rtol=8 * tolerance)
        np.testing.assert_allclose(flat(params), x, rtol=100 * tolerance, atol=100 * tolerance)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.floats(-3, 3))
def test_along_the_gradient_dals_rate_never_exceeds_cdats_at_scale_two(seed, scale):
    A, loss, point = bowl(seed=seed)
    point = jax.tree.map(lambda leaf: leaf * 10**scale, point)
    ((_, ours),) = run(on_sgd(max_learning_rate=1e9), loss, point, 1)
    ((_, dal),) = run(pf.dal(max_learning_rate=1e9), loss, point, 1)
    g = A @ flat(point)
    np.testing.assert_allclose(ours.curvature_learning_rate, min(2 * (g @ g) / abs(g @ A @ g), 1e9), rtol=1e-9)
    assert dal.scale.drift_learning_rate <= ours.curvature_learning_rate * (1 + 1e-12)


@pytest.mark.parametrize("options", [dict(), dict(power=0.5), dict(every=3), dict(curvature="finite_difference")])
def test_the_drift_along_the_gradient_is_dal(options):
    _, loss, point = bowl()
    ours = run(on_sgd(measure="drift", max_learning_rate=5.0, **options), loss, point, 6)
    for (params, state), (expected, dal) in zip(ours, run(pf.dal(**options), loss, point, 6), strict=True):
        np.testing.assert_allclose(flat(params), flat(expected), rtol=1e-9)
        np.testing.assert_allclose(state.curvature_learning_rate, dal.scale.drift_learning_rate, rtol=1e-9)


def convex(seed=0):
    """A quadratic with a positive Hessian, and a point."""
    random = np.random.default_rng(seed)
    A = random.standard_normal((5, 5))
    A = A @ A.T + 0.1 * np.eye(5)
    return A, lambda x: x @ A @ x / 2, jnp.asarray(random.standard_normal(5))


@each_base
def test_at_scale_one_a_step_ends_where_the_loss_is_lowest_along_it(base):
    A, loss, x = convex()
    tx = pf.cdat(BASES[base](), scale=1.0, average=None, max_learning_rate=1e9)
    for after, state in run(tx, loss, x, 3):
        step, x = after - x, after
        assert float(state.curvature_learning_rate) > 0
        assert abs(step @ A @ after) < 1e-9 * np.linalg.norm(step) * np.linalg.norm(A @ after)


@each_base
@each_measure
def test_at_scale_two_no_step_raises_a_quadratic(base, measure):
    _, loss, x = convex()
    losses = [loss(x)]
    tx = pf.cdat(BASES[base](), measure=measure, average=None, max_learning_rate=1e9)
    losses += [loss(after) for after, _ in run(tx, loss, x, 10)]
    assert np.all(np.diff(losses) <= 1e-9 * np.array(losses[:-1]))


@each_base
def test_the_drift_takes_no_larger_rate(base):
    _, loss, x = convex()
    rates = []
    for measure in ("directional", "drift"):
        ((_, state),) = run(pf.cdat(BASES[base](), measure=measure, max_learning_rate=1e9), loss, x, 1)
        rates.append(float(state.curvature_learning_rate))
    assert rates[1] <= rates[0] * (1 + 1e-12)


# What a rate must not depend on.


@each_base
@each_measure
def test_the_bases_own_rate_does_not_matter(base, measure):
    _, loss, x = convex()
    steps = [
        run(pf.cdat(optax.chain(BASES[base](), optax.scale(s)), measure=measure, max_learning_rate=1e9), loss, x, 4)
        for s in (1.0, 0.01)
    ]
    np.testing.assert_allclose(steps[0][-1][0], steps[1][-1][0], rtol=1e-9)


@pytest.mark.parametrize("base", ["sgd", "momentum", "adam", "rmsprop"])
@each_measure
def test_the_unit_of_the_loss_does_not_matter(base, measure):
    _, loss, x = convex()
    make = partial(BASES[base], eps=0.0) if base in ("adam", "rmsprop") else BASES[base]
    tx = pf.cdat(make(), measure=measure, max_learning_rate=1e9)
    paths = [run(tx, lambda x, unit=unit: unit * loss(x), x, 4) for unit in (1.0, 1000.0)]
    np.testing.assert_allclose(paths[0][-1][0], paths[1][-1][0], rtol=1e-8)


def test_dal_after_adam_in_a_chain_depends_on_the_unit_of_the_loss():
    # Its |Hu|/|u| doesn't know that Adam has divided by the gradient's size.
    _, loss, x = convex()
    tx = optax.chain(optax.scale_by_adam(), pf.scale_by_dal(max_learning_rate=1e9))
    first, second = (run(tx, lambda x, unit=unit: unit * loss(x), x, 1)[0][1] for unit in (1.0, 1000.0))
    rates = [optax.tree.get(state, "drift_learning_rate") for state in (first, second)]
    assert rates[0] / rates[1] == pytest.approx(1000.0)


def preconditioned(P):
    """Descent in the metric P."""
    return optax.stateless(lambda g, _: jnp.linalg.solve(-P, g))


ORTHOGONAL = np.linalg.qr(np.random.default_rng(1).standard_normal((5, 5)))[0]
SKEWED = np.diag([1.0, 3.0, 0.1, 20.0, 1.0]) @ ORTHOGONAL


@pytest.mark.parametrize(
    ("measure", "S"), [("directional", ORTHOGONAL), ("directional", SKEWED), ("drift", 7 * ORTHOGONAL)]
)
def test_coordinates_do_not_matter_where_the_base_does_not_depend_on_them(measure, S):
    _, loss, x = convex()
    P = np.diag([1.0, 2.0, 3.0, 4.0, 5.0])
    options = dict(measure=measure, max_learning_rate=1e9)
    plain = run(pf.cdat(preconditioned(P), **options), loss, x, 4)
    start = jnp.linalg.solve(S, x)
    other = run(pf.cdat(preconditioned(S.T @ P @ S), **options), lambda y: loss(S @ y), start, 4)
    np.testing.assert_allclose(S @ other[-1][0], plain[-1][0], rtol=1e-8)


def test_clipping_in_the_base_changes_no_step():
    _, loss, point = bowl()
    ((clipped, _),) = run(pf.cdat(optax.chain(optax.clip_by_global_norm(1e-3), optax.sgd(1.0)), max_learning_rate=1e9),
                          loss, point, 1)  # fmt: skip
    ((plain, _),) = run(pf.cdat(optax.sgd(1.0), max_learning_rate=1e9), loss, point, 1)
    np.testing.assert_allclose(flat(clipped), flat(plain), rtol=1e-9)


# The base.


def test_by_default_the_base_is_adam():
    _, loss, point = bowl()
    default, adam = (run(pf.cdat(*base), loss, point, 3)[-1][0] for base in ((), (optax.adam(1.0),)))
    assert jnp.array_equal(flat(default), flat(adam))


def test_weight_decay_of_the_base_is_in_the_measured_update():
    A, loss, x = convex()
    ((_, state),) = run(pf.cdat(optax.adamw(1.0, weight_decay=0.3), average=None, max_learning_rate=1e9), loss, x, 1)
    g = A @ x
    u = -jnp.sign(g) - 0.3 * x  # Adam's first update, but for its epsilon
    np.testing.assert_allclose(state.curvature_learning_rate, 2 * (-g @ u) / (u @ A @ u), rtol=1e-6)


def test_an_update_that_does_not_descend_is_not_taken_and_the_base_goes_on():
    _, loss, x = convex()
    tx, gradient = pf.cdat(optax.sgd(1.0, momentum=0.5), average=None), jax.grad(loss)(x)
    _, before = tx.update(-10 * gradient, tx.init(x), x, value_fn=loss)
    update, state = tx.update(gradient, before, x, value_fn=loss)  # whose momentum still goes the other way
    assert not update.any()
    assert float(state.curvature_learning_rate) == 0
    np.testing.assert_allclose(optax.tree.get(state, "trace"), -4 * gradient)


def test_a_rate_of_zero_is_measured_again():
    _, loss, x = convex()
    tx = pf.cdat(optax.sgd(1.0), every=10)
    _, state = tx.update(jnp.zeros(5), tx.init(x), x, value_fn=loss)
    _, state = tx.update(jax.grad(loss)(x), state, x, value_fn=loss)
    assert float(state.curvature_learning_rate) > 0


def test_the_base_is_given_what_update_is_given():
    given_to_base = {}

    def update(updates, state, params, **extra):
        given_to_base.update(extra)
        return jax.tree.map(jnp.negative, updates), state

    tx = pf.cdat(optax.GradientTransformationExtraArgs(lambda _: optax.EmptyState(), update))
    _, loss, x = convex()
    tx.update(jax.grad(loss)(x), tx.init(x), x, value_fn=loss, value=1.0)
    assert (given_to_base["value_fn"], given_to_base["value"]) == (loss, 1.0)


@pytest.mark.parametrize("base", [optax.scale_by_adam(), optax.identity(), optax.scale_by_lion()])
def test_a_base_that_climbs_is_refused(base):
    with pytest.raises(ValueError, match="base must point down the slope"):
        pf.cdat(base).init(jnp.ones(3))


@pytest.mark.parametrize(
    "base", [optax.adamw(1.0, weight_decay=0.5), optax.set_to_zero(), optax.lbfgs(1.0), optax.polyak_sgd()]
)
def test_a_base_that_does_not_climb_by_a_trial_or_needs_more_than_a_gradient_is_taken(base):
    pf.cdat(base).init({"a": jnp.ones(3), "b": jnp.ones((2, 2), jnp.bfloat16)})


def test_a_base_is_not_tried_where_the_start_is_compiled():
    jax.jit(pf.cdat(optax.scale_by_adam()).init)(jnp.ones(3))


def test_another_batch_gives_gradient_and_curvature():
    _, loss, point = bowl(seed=0)
    A, other, _ = bowl(seed=1)
    tx = on_sgd(max_learning_rate=1e9)
    gradient = jax.grad(loss)(point)
    _, state = tx.update(gradient, tx.init(point), point, value_fn=loss, curvature_fn=other)
    u = -flat(gradient)
    expected = 2 * max(-(A @ flat(point)) @ u, 0) / abs(u @ A @ u)
    np.testing.assert_allclose(state.curvature_learning_rate, expected, rtol=1e-9)


def test_a_schedule_can_drive_the_scale():
    _, loss, point = bowl()
    tx = optax.inject_hyperparams(pf.cdat)(
        base=optax.sgd(1.0), scale=optax.linear_schedule(0.0, 2.0, 2), average=None, max_learning_rate=1e9
    )
    scales = [
        optax.tree.get(state, "curvature_learning_rate") * optax.tree.get(state, "curvature")
        for _, state in run(tx, loss, point, 3)
    ]
    np.testing.assert_allclose(scales, [0.0, 1.0, 2.0], rtol=1e-6)  # optax's schedules are float32


def test_a_zero_curvature_gives_the_cap():
    ((params, _),) = run(pf.cdat(optax.sgd(1.0), max_learning_rate=3.0), lambda x: jnp.sum(x), jnp.zeros(2), 1)
    assert params.tolist() == [-3.0, -3.0]


def test_an_infinite_curvature_is_counted_and_forgotten():
    _, loss, x = convex()
    tx = pf.cdat(optax.sgd(1.0))
    state = tx.init(x)
    for value_fn in (loss, lambda x: jnp.inf * loss(x), loss):
        _, state = tx.update(jax.grad(loss)(x), state, x, value_fn=value_fn)
    ((_, fresh),) = run(pf.cdat(optax.sgd(1.0)), loss, x, 1)
    assert int(state.nonfinite) == 1
    np.testing.assert_allclose(state.curvature_learning_rate, fresh.curvature_learning_rate, rtol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(base=1.0), "base must be an optax.GradientTransformation, got 1.0"),
        (dict(base=optax.sgd), "base must be an optax.GradientTransformation"),
        (dict(scale=0.0), "scale must be a finite number above 0, got 0.0"),
        (dict(power=-0.5), "power must be a finite number of at least 0, got -0.5"),
        (dict(max_learning_rate=0), "max_learning_rate must be a finite number above 0, got 0"),
        (dict(measure="norm"), "measure must be one of 'directional', 'drift', got 'norm'"),
        (dict(every=0), "every must be a whole number of at least 1, got 0"),
        (dict(average=1.0), "average must be a number of at least 0 and below 1"),
        (dict(curvature="exact"), "curvature must be one of 'hvp', 'finite_difference', got 'exact'"),
        (dict(scale=optax.linear_schedule(0, 1, 5)), r"inject_hyperparams\(...\)\(scale=...\)"),
        (dict(skip_nonfinite=None), "skip_nonfinite must be True or False"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        pf.cdat(**options)
