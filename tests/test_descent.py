import jax.numpy as jnp
import numpy as np
import pytest

import principalflow as pf


def test_each_iterate_is_a_gradient_step_from_the_one_before():
    banana = pf.functions.banana()
    path = pf.descend(banana, banana.theta, h=0.001, steps=5)
    assert path.thetas.shape == (6, 2)
    for before, after in zip(path.thetas[:-1], path.thetas[1:], strict=True):
        np.testing.assert_allclose(after, before - 0.001 * banana.gradient(before), rtol=1e-14)
    np.testing.assert_allclose(path.losses, [banana.value(theta) for theta in path.thetas], rtol=1e-14)
    assert not path.diverged


def test_a_diverging_run_stops_at_its_last_finite_iterate_and_says_so():
    banana = pf.functions.banana()
    path = pf.descend(banana, banana.theta, h=0.05, steps=1000)
    assert path.diverged
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
        r"steps asks for 100000001 iterates of 2 parameters, which take 2.24 GiB of memory where 1 GiB are available"
    )
    for record in (None, pf.Record()):
        with pytest.raises(ValueError, match=message):
            pf.descend(pf.functions.banana(), [1.0, 1.0], h=0.001, steps=10**8, record=record)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_descent_in_half_precision_stays_in_it(dtype):
    objective = pf.Objective(lambda p: jnp.sum(p**2), jnp.ones(2, dtype))
    assert pf.descend(objective, objective.theta, h=0.1, steps=2).thetas.dtype == dtype
