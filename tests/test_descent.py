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
        (dict(steps=-1), "steps must be a whole number of at least 0, got -1"),
        (dict(steps=2.5), "steps must be a whole number"),
        (dict(theta=[1.0, np.inf]), "theta must be finite, but 1 of its 2 entries are not"),
        (dict(theta=[1.0]), r"theta must be flat with shape \(2,\)"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        pf.descend(pf.functions.banana(), **({"theta": [1.0, 1.0], "h": 0.1, "steps": 2} | arguments))


def test_a_start_without_a_finite_loss_is_refused():
    objective = pf.Objective(lambda p: jnp.sum(jnp.log(p)), jnp.ones(1))
    with pytest.raises(ValueError, match="theta must have a finite loss"):
        pf.descend(objective, [-1.0], h=0.1, steps=1)
