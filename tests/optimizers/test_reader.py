"""What is read from optax's functions and states, and what is refused."""

import functools
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import compilations

import principalflow as pf
from principalflow.optimizers import edge, reader

PARAMS = {"a": jnp.arange(1.0, 4.0), "b": jnp.full((2, 2), 0.5)}
ONLY_B = {"a": False, "b": True}
UNKNOWN = "no threshold is known for this optimizer: "


def gradients(seed=0, params=PARAMS):
    random = np.random.default_rng(seed)
    return jax.tree.map(lambda w: jnp.asarray(random.standard_normal(w.shape), w.dtype), params)


def trained(tx, steps=3, params=PARAMS, **extra):
    state = tx.init(params)
    for seed in range(steps):
        _, state = tx.update(gradients(seed, params), state, params, **extra)
    return state


def flat(tree):
    return jax.flatten_util.ravel_pytree(tree)[0]


def test_adams_metric_is_corrected_for_its_start():
    tx = optax.adam(0.1, b1=0.8, b2=0.9, eps=1e-2, eps_root=1e-3)
    state = trained(tx)
    found = edge(tx, state, PARAMS)
    moment = flat(state[0].nu) / (1 - 0.9**3)
    np.testing.assert_allclose(found.second_moment, moment, rtol=1e-12)
    np.testing.assert_allclose(found.preconditioner, (1 - 0.8**3) * (np.sqrt(moment + 1e-3) + 1e-2), rtol=1e-12)
    assert found.threshold == pytest.approx(2 * 1.8 / (0.2 * 0.1))
    assert found.optimizer == "adam"


def test_words_name_what_the_threshold_depends_on():
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(0.1, weight_decay=0.5))
    found = edge(tx, trained(tx), PARAMS)
    assert found.formula == "(2-hw)(1+b1)/((1-b1)h)"
    assert found.why == ", adamw's threshold with b1 = 0.9 and weight decay w = 0.5 while nothing is clipped,"


@pytest.mark.parametrize(
    "tx",
    [
        optax.adam(0.1),
        optax.adam(optax.linear_schedule(0.0, 0.1, 5)),
        optax.amsgrad(0.1),
        optax.rmsprop(0.1),
        optax.rmsprop(0.1, bias_correction=True),
        optax.MultiSteps(optax.nadam(0.1), 4),
        pf.dal(),
        pf.dal(per_parameter=True),
        pf.cdat(optax.sgd(1.0)),
    ],
)
def test_before_the_first_step_there_is_no_threshold_yet(tx):
    found = edge(tx, tx.init(PARAMS), PARAMS)
    assert found.starting
    assert "has taken no step yet" in found.unknown
    assert np.isnan(found.threshold)
    assert found.preconditioner is None


def test_rmsprop_from_an_initial_scale_needs_no_step():
    tx = optax.rmsprop(0.1, initial_scale=4.0, eps_in_sqrt=False, eps=0.5)
    found = edge(tx, tx.init(PARAMS), PARAMS)
    np.testing.assert_allclose(found.preconditioner, 2.5)
    assert found.threshold == pytest.approx(20)


def test_the_rate_is_that_of_the_next_step():
    tx = optax.sgd(optax.linear_schedule(1.0, 0.0, 10))
    rates = [edge(tx, trained(tx, steps), PARAMS).learning_rate for steps in (0, 1, 5, 10)]
    np.testing.assert_allclose(rates, [1.0, 0.9, 0.5, 0.0])
    assert edge(tx, trained(tx, 10), PARAMS).threshold == np.inf


def test_an_injected_rate_is_read_from_the_state_also_if_it_was_set_there():
    tx = optax.inject_hyperparams(optax.sgd)(learning_rate=0.1)
    state = trained(tx)
    assert edge(tx, state, PARAMS).learning_rate == pytest.approx(0.1)
    state.hyperparams["learning_rate"] = jnp.asarray(0.4)
    assert edge(tx, state, PARAMS).learning_rate == pytest.approx(0.4)
    schedule = optax.inject_hyperparams(optax.adamw)(learning_rate=optax.linear_schedule(1.0, 0.0, 10), b1=0.8)
    assert edge(schedule, trained(schedule, 5), PARAMS).learning_rate == pytest.approx(0.5)


@pytest.mark.parametrize("mean", [True, False])
def test_several_batches_a_step_are_their_mean_or_their_sum(mean):
    several = optax.MultiSteps(optax.sgd(0.1), 4, use_grad_mean=mean)
    for tx in (several, several.gradient_transformation()):
        found = edge(tx, trained(tx), PARAMS)
        assert (found.learning_rate, found.threshold) == pytest.approx((0.1, 20))
        if mean:
            assert found.preconditioner is None
        else:
            np.testing.assert_allclose(found.preconditioner, 0.25)


def test_several_batches_a_step_are_read_at_the_end_of_a_chain():
    several = optax.MultiSteps(optax.adam(0.1), 2, use_grad_mean=False)
    tx = optax.chain(optax.clip(1.0), several.gradient_transformation())
    found, P = edge(tx, trained(tx, 4), PARAMS), edge(optax.adam(0.1), trained(tx, 4)[1].inner_opt_state, PARAMS)
    assert found.threshold == pytest.approx(380)
    np.testing.assert_allclose(found.preconditioner, P.preconditioner / 2)


def test_the_rate_of_the_last_step_can_be_read():
    tx = optax.sgd(optax.piecewise_constant_schedule(0.01, {3: 10.0}))
    rates = [[reader(tx)(trained(tx, n), PARAMS, last=last).learning_rate for last in (True, False)] for n in (3, 4)]
    np.testing.assert_allclose(rates, [[0.01, 0.1], [0.1, 0.1]])


def test_dal_is_descent_at_the_rate_of_its_last_step():
    loss = lambda x: 2.0 * x @ x  # noqa: E731
    x = jnp.array([3.0, 4.0])
    for options, threshold in ((dict(), 8.0), (dict(momentum=0.5), 12.0), (dict(momentum=0.5, weight_decay=4.0), 6.0)):
        tx = pf.dal(factor=1.0, **options)
        _, state = tx.update(jax.grad(loss)(x), tx.init(x), x, value_fn=loss)
        assert edge(tx, state, x).threshold == pytest.approx(threshold)
    tx = optax.chain(pf.scale_by_dal(factor=1.0, per_parameter=True), optax.scale(-1))
    _, state = tx.update(jax.grad(loss)(x), tx.init(x), x, value_fn=loss)
    np.testing.assert_allclose(edge(tx, state, x).preconditioner, 4 * jax.grad(loss)(x))


@pytest.mark.parametrize(
    ("base", "gain"), [(optax.sgd(1.0), 1), (optax.sgd(0.5, momentum=0.9), 1.9 / 0.5), (optax.adam(1.0), 19)]
)
def test_cdat_is_its_base_at_the_rate_of_its_last_step(base, gain):
    loss = lambda x: 2.0 * x @ x  # noqa: E731
    x, tx = jnp.array([3.0, 4.0]), pf.cdat(base, scale=1.0)
    _, state = tx.update(jax.grad(loss)(x), tx.init(x), x, value_fn=loss)
    assert edge(tx, state, x).threshold == pytest.approx(2 * gain / state.curvature_learning_rate)


def test_what_is_read_is_verified_once():
    tx, calls = optax.adam(0.1), []

    @functools.wraps(tx.update)
    def counted(*arguments, **extra):
        calls.append(1)
        return tx.update(*arguments, **extra)

    state, read = trained(tx), reader(optax.GradientTransformationExtraArgs(tx.init, counted))
    assert read(state, PARAMS).threshold == read(state, PARAMS).threshold == pytest.approx(380)
    assert len(calls) == 2


def test_steps_of_length_zero_verify_nothing():
    tx, calls = optax.sgd(optax.piecewise_constant_schedule(0.0, {5: 1.0})), []

    @functools.wraps(tx.update)
    def counted(*arguments, **extra):
        calls.append(1)
        return tx.update(*arguments, **extra)

    read = reader(optax.GradientTransformationExtraArgs(tx.init, counted))
    for _ in range(2):
        assert read(tx.init(PARAMS), PARAMS).threshold == np.inf
    assert len(calls) == 4


def test_reading_another_step_compiles_nothing_anew():
    tx = optax.adamw(optax.linear_schedule(0.1, 0.0, 10), nesterov=True)
    states, read = [trained(tx, steps) for steps in (3, 4)], reader(tx)
    read(states[0], PARAMS)
    with compilations() as compiled:
        read(states[1], PARAMS)
    assert compiled == []


@pytest.mark.parametrize("change", ["gradients", "updates", "memory"])
def test_an_optimiser_that_does_not_do_what_its_options_say_is_unknown(change):
    tx = optax.adam(0.1)

    @functools.wraps(tx.update)
    def other(updates, state, params=None, **extra):
        if change == "gradients":
            updates = jax.tree.map(jnp.sign, updates)
        updates, (adam, rest) = tx.update(updates, state, params, **extra)
        if change == "updates":
            updates = jax.tree.map(lambda u: 1.01 * u, updates)
        if change == "memory":
            adam = adam._replace(mu=jax.tree.map(lambda m: m + 0.01, adam.mu))
            updates = jax.tree.map(lambda u, m: u + 0.01 * m, updates, state[0].mu)
        return updates, (adam, rest)

    found = edge(optax.GradientTransformationExtraArgs(tx.init, other), trained(tx), PARAMS)
    assert found.unknown == f"{UNKNOWN}its steps are not what its options say"


OTHERS = {
    "scale_by_lion": optax.lion(0.1),
    "scale_by_lbfgs": optax.lbfgs(),
    "scale_by_rss": optax.adagrad(0.1),
    "scale_by_trust_ratio": optax.lamb(0.1),
    "add_noise": optax.noisy_sgd(0.1, key=0),
    "scale_by_sign": optax.sign_sgd(0.1),
    "scale_by_radam": optax.radam(0.1),
    "scale_by_optimistic_gradient": optax.optimistic_gradient_descent(0.1),
    "schedule_free": optax.contrib.schedule_free_sgd(0.1),
    "scale_by_muon": optax.contrib.muon(0.1),
    "flatten": optax.flatten(optax.adam(0.1)),
    "MultiSteps": optax.chain(optax.trace(0.9), optax.MultiSteps(optax.sgd(0.1), 2).gradient_transformation()),
}


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_unknown_by_name(name):
    found = edge(OTHERS[name], OTHERS[name].init(PARAMS), PARAMS)
    assert found.unknown == f"{UNKNOWN}optax.{name} can't be read"
    assert not found.starting
    assert np.isnan(found.threshold)


def test_a_function_of_the_users_is_unknown_by_name():
    def halve(updates, state, params=None):
        return jax.tree.map(lambda u: u / 2, updates), state

    tx = optax.chain(optax.GradientTransformation(lambda params: (), halve), optax.sgd(0.1))
    assert ".test_a_function_of_the_users_is_unknown_by_name can't be read" in edge(tx, tx.init(PARAMS), PARAMS).unknown


@pytest.mark.parametrize(
    ("tx", "why"),
    [
        (
            optax.masked(optax.sgd(0.1), ONLY_B),
            "some gradients are passed on as they are, as steps uphill: optax",
        ),
        (optax.sgd(-0.1), "sgd moves along the gradient, not against it, so no step size is stable"),
        (
            optax.chain(optax.trace(0.9), optax.adam(0.1)),
            "adam has momentum of another kind than its threshold is known for",
        ),
        (
            optax.chain(optax.trace(0.9), optax.add_decayed_weights(0.1), optax.adam(0.1)),
            "weight decay comes between its momentum and what else it does to the gradients",
        ),
        (
            optax.adamw(1.0, weight_decay=3.0),
            "the weight decay is unstable by itself: rate times .* is 1 \\* 3",
        ),
    ],
)
def test_combinations_without_a_threshold_say_why(tx, why):
    assert re.match(UNKNOWN + why, edge(tx, trained(tx), PARAMS).unknown)


def test_a_state_of_other_parameters_is_said_so():
    tx = optax.adam(0.1)
    found = edge(tx, tx.init(PARAMS["a"]), PARAMS)
    assert found.unknown == f"{UNKNOWN}the state doesn't fit the parameters: give those that tx.init was called with"


@pytest.mark.parametrize("other", [None, optax.sgd(0.1, momentum=0.9).init(PARAMS), optax.EmptyState()])
def test_a_state_of_another_optimiser_is_said_so(other):
    expected = f"{UNKNOWN}the state isn't one of this optimizer's: give what tx.init or the last tx.update returned"
    assert edge(optax.adam(0.1), other, PARAMS).unknown == expected


def test_a_state_that_is_not_finite_has_no_threshold_until_it_is():
    tx = optax.adam(0.1)
    state, read = trained(tx), reader(tx)
    broken = jax.tree.map(lambda leaf: leaf * jnp.nan if leaf.ndim else leaf, state)
    assert read(broken, PARAMS).unknown == f"{UNKNOWN}the next step is not finite"
    assert not read(state, PARAMS).unknown
    assert read(broken, PARAMS).unknown == f"{UNKNOWN}some entries of adam's metric aren't above 0"


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16, jnp.float32, jnp.float64])
@pytest.mark.parametrize(
    "tx",
    [
        optax.adamw(0.1, weight_decay=0.5),
        optax.rmsprop(0.1, momentum=0.9),
        optax.adam(0.1, mu_dtype=jnp.bfloat16),
        optax.nadam(0.1, mu_dtype=jnp.bfloat16),
    ],
)
def test_every_precision_is_read(tx, dtype):
    params = optax.tree.cast(PARAMS, dtype)
    found = edge(tx, trained(tx, params=params), params)
    assert not found.unknown
    assert found.preconditioner.dtype == (jnp.float64 if dtype == jnp.float64 else jnp.float32)


def test_a_velocity_of_half_precision_is_read():
    tx = optax.sgd(0.1, 0.9, nesterov=True, accumulator_dtype=jnp.bfloat16)
    assert edge(tx, trained(tx), PARAMS).threshold == pytest.approx(38 / 2.8)


def test_without_double_precision_the_first_steps_are_read_too():
    with jax.enable_x64(False):
        params = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float32), PARAMS)
        tx = optax.adamw(0.1, b2=0.9999)
        assert edge(tx, trained(tx, 1, params), params).threshold == pytest.approx(380, rel=1e-4)


def test_leaves_that_are_no_parameters_are_left_out():
    class Model(eqx.Module):
        w: jax.Array
        depth: int
        name: str = "model"
        b: jax.Array | None = None

    model = Model(jnp.ones(3), 2)
    tx = optax.adam(0.1)
    state = trained(tx, params=eqx.filter(model, eqx.is_inexact_array))
    assert edge(tx, state, model).preconditioner.shape == (3,)


def test_masks_may_be_functions_and_have_the_structure_of_a_part():
    params = {"a": {"w": jnp.ones(2), "c": jnp.ones(1)}, "b": jnp.ones(3)}
    tx = optax.chain(optax.sgd(0.1), optax.masked(optax.scale(2.0), {"a": True, "b": False}))
    np.testing.assert_allclose(edge(tx, tx.init(params), params).preconditioner, [1, 1, 1, 2, 2, 2])
    by_shape = lambda tree: jax.tree.map(lambda leaf: leaf.size == 3, tree)  # noqa: E731
    tx = optax.chain(optax.sgd(0.1), optax.masked(optax.scale(2.0), by_shape))
    np.testing.assert_allclose(edge(tx, tx.init(params), params).preconditioner, [1, 1, 1, 0.5, 0.5, 0.5])


def test_the_reading_decides_with_top_eigenpairs():
    objective = pf.functions.quadratic(jnp.diag(jnp.arange(1.0, 4.0)))
    tx = optax.adamw(1.0, weight_decay=0.0)
    _, state = tx.update(objective.gradient([1.0, 1.0, 1.0]), tx.init(objective.theta), jnp.ones(3))
    found = edge(tx, state, jnp.ones(3))
    eig = pf.spectrum.top_eigenpairs(objective, jnp.ones(3), 1, preconditioner=found.preconditioner, decay=found.decay)
    np.testing.assert_allclose(eig.values, 10.0, rtol=1e-6)  # P is a tenth of |g| here


@pytest.mark.parametrize("tx", [None, "adam", 0.1, optax.adam, object()])
def test_what_is_no_optimiser_is_refused(tx):
    with pytest.raises(ValueError, match=r"^tx must be an optax.GradientTransformation, got"):
        reader(tx)


@pytest.mark.parametrize("params", [None, {}, [1, 2], {"a": np.ones(0)}, "abc"])
def test_params_without_numbers_are_refused(params):
    with pytest.raises(ValueError, match=r"^params must hold at least one floating-point number, got none"):
        edge(optax.sgd(0.1), optax.EmptyState(), params)
