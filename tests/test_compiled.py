"""What is compiled for a loss lasts as long as the loss is in use."""

import copy
import gc
import pickle
import weakref

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import principalflow as pf


def closing_over(data):
    return lambda theta: jnp.mean((jnp.asarray(data) @ theta) ** 2) + jnp.sum(theta**4)


USES = {
    "value": lambda o: o.value(o.theta),
    "gradient": lambda o: o.gradient(o.theta),
    "product": lambda o: o.hvp(o.theta, o.theta),
    "eigenpairs": lambda o: pf.spectrum.top_eigenpairs(o, o.theta, 1),
    "function of the Hessian": lambda o: pf.spectrum.apply(o, o.theta, jnp.exp, o.theta),
    "descent": lambda o: pf.descend(o, o.theta, 0.01, 2),
    "field": lambda o: pf.flows.IGR(0.01).field(o, o.theta),
    "monitor": lambda o: pf.Monitor(o, k=1).observe(0, o.theta, 0.01),
}


@pytest.mark.parametrize("use", USES)
def test_a_loss_goes_with_the_last_objective_that_has_it(use):
    data = np.ones((4, 3))
    loss = closing_over(data)
    objective = pf.Objective(loss, jnp.ones(3))
    USES[use](objective)
    alive = weakref.ref(loss)
    del loss
    gc.collect()
    assert alive() is not None  # the objective has it
    del objective
    gc.collect()
    assert alive() is None


def test_a_loss_that_a_flow_was_integrated_on_goes_too():
    def integrated():
        loss = closing_over(np.ones((4, 3)))
        objective = pf.Objective(loss, jnp.ones(3))
        pf.integrate(pf.flows.NegativeGradient(), objective, objective.theta, 0.01)
        return weakref.ref(loss)

    alive = [integrated() for _ in range(3)]
    gc.collect()
    assert all(loss() is None for loss in alive)


def test_objectives_of_one_loss_share_what_is_compiled():
    traces = []

    def loss(theta):
        traces.append(1)
        return jnp.sum(theta**2)

    first, second = pf.Objective(loss, jnp.ones(2)), pf.Objective(loss, jnp.ones(2))
    first.value(first.theta)
    before = len(traces)
    second.value(second.theta + 1)
    assert len(traces) == before


def test_losses_without_a_hash_are_taken_for_different_ones():
    class Unhashable:
        __hash__ = None

        def __init__(self, scale):
            self.scale = scale

        def __call__(self, theta):
            return self.scale * jnp.sum(theta**2)

    values = [float(pf.Objective(Unhashable(s), jnp.ones(2)).value([1.0, 1.0])) for s in (1.0, 2.0)]
    assert values == [2.0, 4.0]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_an_objective_that_was_used_can_be_copied_and_pickled(copied):
    objective = pf.Objective(squares, {"w": jnp.arange(3.0)})
    assert objective.gradient(objective.theta).sum() == 6
    other = copied(objective)
    assert other._programs is not objective._programs
    assert other.gradient(other.theta + 1).sum() == 12


def squares(params):
    return jnp.sum(params["w"] ** 2)


def test_numbers_that_are_equal_but_of_another_type_are_compiled_apart():
    def loss(params):
        return params["w"] * (2.0 if params["n"] is True else 3.0)

    objectives = [pf.Objective(loss, {"w": jnp.array(1.0), "n": n}) for n in (True, 1)]
    assert [float(objective.value([1.0])) for objective in objectives] == [2.0, 3.0]


def test_losses_that_differ_by_the_type_of_a_number_share_nothing():
    class Loss(eqx.Module):
        n: int

        def __call__(self, theta):
            return theta[0] * (2.0 if self.n is True else 3.0)

    objectives = [pf.Objective(Loss(n), jnp.ones(1)) for n in (True, 1)]
    assert objectives[0]._programs is not objectives[1]._programs
