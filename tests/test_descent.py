import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import compilations

import principalflow as pf


def test_each_iterate_is_a_gradient_step_from_the_one_before():
    banana = pf.functions.banana()
    path = pf.descend(banana, banana.theta, h=0.001, steps=5)
    assert path.thetas.shape == (6, 2)
    for before, after in zip(path.thetas[:-1], path.thetas[1:], strict=True):
        np.testing.assert_allclose(after, before - 0.001 * banana.gradient(before), rtol=1e-14)
    np.testing.assert_allclose(path.losses, [banana.value(theta) for theta in path.thetas], rtol=1e-14)
    assert path.status == "completed"


def test_a_diverging_run_stops_at_its_last_finite_iterate_and_says_so():
    banana = pf.functions.banana()
    path = pf.descend(banana, banana.theta, h=0.05, steps=1000)
    assert path.status == "diverged"
    assert len(path.thetas) == len(path.losses) < 20
    assert jnp.all(jnp.isfinite(path.thetas))
    assert jnp.all(jnp.isfinite(path.losses))
    assert path.message == f"diverged: step {len(path.thetas)} left the finite numbers"


def test_no_steps_give_the_start_alone():
    path = pf.descend(pf.functions.banana(), [1.0, 1.0], h=1, steps=0)
    np.testing.assert_allclose(path.thetas, [[1.0, 1.0]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(h=0.0), "h must be a finite number above 0, got 0.0"),
        (dict(h=-1), "h must be a finite number above 0"),
        (dict(h=np.nan), "h must be a finite number above 0"),
        (dict(h=np.inf), "h must be a finite number above 0"),
        (dict(h="fast"), "h must be a real number, got 'fast'"),
        (dict(h=1j), "h must be a real number"),
        (dict(h=10**400), "h must be within the range of floating-point numbers, got 1000.*characters"),
        (dict(h=1e308), r"h must be a learning rate from 1e-100 to 1e\+100, got 1e\+308"),
        (dict(h=5e-324), "h must be a learning rate from 1e-100"),
        (dict(h=np.bool_(True)), "h must be a real number"),
        (dict(h=[0.1]), r"h must be a real number, got \[0.1\]"),
        (dict(steps=10**30), "steps must be a whole number of at most 2147483647, got 10000"),
        (dict(theta=[10**400, 0]), "theta must hold numbers within the range of JAX's"),
        (dict(theta=[None, 1.0]), "theta must be an array of numbers"),
        (dict(objective="banana"), "objective must be a principalflow.Objective"),
        (dict(record=pf.Record), "record must be a principalflow.Record"),
        (dict(steps=-1), "steps must be a whole number of at least 0, got -1"),
        (dict(steps=2.5), "steps must be a whole number"),
        (dict(theta=[1.0, np.inf]), "theta must be finite, but 1 of its 2 entries are not"),
        (dict(theta=[1.0]), r"theta must be flat with shape \(2,\)"),
        (dict(theta={"a": np.ones(2)}), r"theta must have the objective's structure: at the root it has shape \(2,\)"),
        (dict(momentum=1.0), "momentum must be a number of at least 0 and below 1, got 1.0"),
        (dict(nesterov=1), "nesterov must be True or False, got 1"),
        (dict(nesterov=True), "momentum must be above 0 where nesterov is True, got 0"),
        (dict(keep="lats"), "keep must be 'all', 'last' or a whole number, got 'lats'"),
        (dict(keep=0), "keep must be a whole number of at least 1, got 0"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    good = {"objective": pf.functions.banana(), "theta": [1.0, 1.0], "h": 0.1, "steps": 2}
    with pytest.raises(ValueError, match=message):
        pf.descend(**(good | arguments))


def test_a_start_without_a_finite_loss_is_refused():
    objective = pf.Objective(lambda p: jnp.sum(jnp.log(p)), jnp.ones(1))
    with pytest.raises(ValueError, match="theta must have a finite loss"):
        pf.descend(objective, [-1.0], h=0.1, steps=1)


def test_a_run_beyond_memory_is_refused_beforehand(monkeypatch):
    monkeypatch.setattr("principalflow._checks._available_memory", lambda: 2**30)
    message = (
        "keep asks for 100000001 iterates of 2 parameters and 100000001 losses, which take 3.73 GiB of memory where "
        "1 GiB are available"
    )
    for record in (None, pf.Record()):
        with pytest.raises(ValueError, match=message):
            pf.descend(pf.functions.banana(), [1.0, 1.0], h=0.001, steps=10**8, record=record)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_descent_in_half_precision_stays_in_it(dtype):
    objective = pf.Objective(lambda p: jnp.sum(p**2), jnp.ones(2, dtype))
    assert pf.descend(objective, objective.theta, h=0.1, steps=2).thetas.dtype == dtype


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_is_that_of_optax(nesterov):
    banana, tx = pf.functions.banana(), optax.sgd(0.0003, momentum=0.9, nesterov=nesterov)
    path = pf.descend(banana, banana.theta, 0.0003, 30, momentum=0.9, nesterov=nesterov)
    theta, state = banana.theta, tx.init(banana.theta)
    for iterate in path.thetas:
        np.testing.assert_allclose(iterate, theta, rtol=1e-12)
        update, state = tx.update(banana.gradient(theta), state)
        theta = theta + update


@pytest.mark.parametrize(("keep", "steps"), [(1, range(600)), (7, range(0, 600, 7)), (10**6, [0]), ("last", [599])])
def test_what_is_kept_is_what_was_asked_for(keep, steps):
    banana = pf.functions.banana()
    whole, part = (pf.descend(banana, banana.theta, 0.0005, 599, keep=which) for which in ("all", keep))
    assert part.steps.tolist() == list(steps)
    np.testing.assert_array_equal(part.thetas, whole.thetas[np.array(steps)])
    np.testing.assert_array_equal(part.losses, whole.losses)


@pytest.mark.parametrize("h", [0.05, 1e100])  # it leaves the finite numbers after many steps, or a few
def test_the_last_of_a_run_that_diverges_is_its_last_finite_one(h):
    bowl = pf.functions.quadratic(np.diag([100.0, 1.0]))
    whole, last = (pf.descend(bowl, [1.0, 1.0], h, 10_000, keep=keep) for keep in ("all", "last"))
    assert last.status == "diverged"
    assert last.steps.tolist() == [len(whole.losses) - 1]
    np.testing.assert_array_equal(last.thetas, whole.thetas[-1:])


def test_parameters_that_are_not_finite_end_a_run_whatever_the_loss_makes_of_them():
    flat = pf.Objective(lambda p: jnp.sum(jnp.where(jnp.abs(p) < 1e30, -(p**2), 0.0)), jnp.ones(1))
    path = pf.descend(flat, [1.0], h=1e100, steps=5)
    assert jnp.all(jnp.isfinite(path.thetas))


def test_a_new_number_of_steps_rate_or_momentum_compiles_nothing():
    banana = pf.functions.banana()
    pf.descend(banana, banana.theta, 0.0005, 3, momentum=0.5)
    with compilations() as compiled:
        pf.descend(banana, banana.theta, 0.0006, 900, momentum=0.6)
    assert compiled == []


def test_a_run_whose_every_step_is_recorded_compiles_no_steps():
    bowl = pf.functions.quadratic(np.eye(3))
    with compilations("_advance") as compiled:
        pf.descend(bowl, np.ones(3), 0.1, 3, record=pf.Record(k=1))
    assert compiled == []


def test_the_start_may_be_the_parameters_that_the_objective_was_made_with():
    params = {"w": np.arange(6.0).reshape(2, 3), "b": 1.0}
    objective = pf.Objective(lambda p: jnp.sum(p["w"] ** 2) + p["b"] ** 2, params)
    flat, tree = (pf.descend(objective, theta, 0.1, 2) for theta in (objective.theta, params))
    np.testing.assert_array_equal(tree.thetas, flat.thetas)


@pytest.mark.parametrize("params", [np.ones((2, 3)), [np.ones((2, 3)), np.zeros(2)], [1.0, 2.0], (np.ones(2),)])
def test_arrays_and_lists_of_them_are_such_parameters_too(params):
    objective = pf.Objective(lambda p: sum(jnp.sum(part**2) for part in p), params)
    np.testing.assert_array_equal(pf.descend(objective, params, 0.1, 0).thetas[0], objective.theta)


def test_an_interruption_before_the_first_step_is_raised():
    class Interrupting:
        every = 1

        def start(self, objective):
            def take(theta, h):
                raise KeyboardInterrupt

            return take

    with pytest.raises(KeyboardInterrupt):
        pf.descend(pf.functions.banana(), [1.0, 0.7], 0.001, 3, record=Interrupting())
