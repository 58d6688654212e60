"""Flows of several steps: their series, their stability, and that they follow descent through its edge."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import network, outputs, regression, slope

import principalflow as pf
from principalflow.flows import StepFlow, TwoStep
from principalflow.flows._steps import damped_weights

S, Q, H = 3.0, 1.0, 0.8  # S w^2/2 - Q w^4/4, with h*lambda = 2.4 at 0


def quartic(start):
    return pf.Objective(lambda w: S * w[0] ** 2 / 2 - Q * w[0] ** 4 / 4, jnp.array([start]))


def descent_step(h):
    return lambda objective, theta: theta - h * objective.gradient(theta)


@pytest.mark.slow
@pytest.mark.parametrize("order", range(5))
@pytest.mark.parametrize(
    ("objective", "theta", "rates"),
    [
        (pf.functions.banana(), jnp.array([1.3, 1.5]), np.geomspace(7e-6, 3e-5, 4)),
        (regression(), regression().theta, np.geomspace(0.002, 0.008, 4)),
    ],
)
def test_two_steps_have_an_error_of_slope_n_plus_2(objective, theta, rates, order):
    errors = []
    for h in rates:
        solution = pf.integrate(TwoStep(h, order=order), objective, theta, 2 * h, rtol=1e-14, atol=1e-16)
        errors.append(jnp.linalg.norm(solution.theta - pf.descend(objective, theta, h, 2).thetas[-1]))
    assert abs(slope(rates, errors) - (order + 2)) < 0.4


@pytest.mark.parametrize("order", [0, 1, 4])
def test_alpha_is_the_coefficient_on_quadratics(order):
    flow, z = TwoStep(0.5, order=order), np.array([-0.4, 0.0, 0.7, 1.0, 1.9, 2.2])
    bowl = pf.functions.quadratic(np.diag(z / flow.h))
    theta = jnp.arange(1.0, 7.0)
    np.testing.assert_allclose(flow.field(bowl, theta), flow.alpha(z) * bowl.gradient(theta), rtol=1e-12)


def test_the_series_is_that_of_the_principal_flows_real_part():
    z = np.array([0.3, 0.6, 1.5, 1.9, 2.0, 2.1, 2.3])
    np.testing.assert_allclose(TwoStep(0.5, order=40).alpha(z), pf.flows.Principal(0.5).alpha(z).real, atol=0.01)
    z = np.array([1.8, 1.9, 2.0, 2.1, 2.2])
    np.testing.assert_allclose(TwoStep(0.5, order=40).alpha(z), pf.flows.Principal(0.5).alpha(z).real, rtol=1e-10)


@pytest.mark.parametrize("order", range(6))
def test_critical_points_attract_exactly_below_two_over_h(order):
    flow = TwoStep(1.0, order=order)
    assert np.all(flow.jacobian_eigenvalues(np.linspace(0.01, 1.99, 100)) < 0)
    if order % 2 == 0:
        assert np.all(flow.jacobian_eigenvalues(np.linspace(2.01, 2.6, 60)) > 0)
    else:
        assert np.all(flow.jacobian_eigenvalues(np.linspace(2.01, 2.4, 40)) > 0)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_the_quartic_comes_to_rest_where_descent_does(order):
    h = 0.7  # h*lambda = 2.1 at 0
    solution = pf.integrate(TwoStep(h, order=order), quartic(0.3), [0.3], 400 * h, rtol=1e-12, atol=1e-14)
    assert solution.theta[0] ** 2 == pytest.approx((S - 2 / h) / Q, abs=1e-12)


def test_it_follows_descent_through_three_spikes():
    # y x^2/2 - y/1000: the curvature y along x grows until x does, which makes it fall.
    objective = pf.Objective(lambda w: w[1] * w[0] ** 2 / 2 - w[1] / 1000, jnp.array([0.05, 2.0]))
    path = pf.descend(objective, objective.theta, 1.0, 500).thetas
    length = jnp.sum(jnp.linalg.norm(path[2::2] - path[:-2:2], axis=1))
    assert jnp.sum(jnp.diff(jnp.sign(path[1:, 1] - path[:-1, 1])) < 0) == 3  # so often the curvature turned down
    apart = {}
    for flow in (TwoStep(1.0, order=3), pf.flows.NegativeGradient()):
        solution = pf.integrate(flow, objective, objective.theta, 500.0, rtol=1e-9)
        apart[type(flow)] = jnp.linalg.norm(solution.theta - path[-1]) / length
    assert apart[TwoStep] < 1e-3
    assert apart[TwoStep] < apart[pf.flows.NegativeGradient] / 100


def test_kinks_do_not_matter():
    random = np.random.default_rng(0)
    data = random.standard_normal((20, 3)), random.standard_normal((20, 1))
    loss = lambda params, batch: jnp.mean((outputs(params, batch[0], jax.nn.relu) - batch[1]) ** 2)  # noqa: E731
    objective = pf.Objective(loss, network((3, 8, 1)), data)
    solution = pf.integrate(TwoStep(0.05), objective, objective.theta, 1.0)
    end = pf.descend(objective, objective.theta, 0.05, 20).thetas[-1]
    assert solution.status == "completed"
    assert jnp.linalg.norm(solution.theta - end) < 0.01 * jnp.linalg.norm(end - objective.theta)


def test_the_odd_iterates_are_a_step_away():
    objective, h = quartic(0.5), 0.7
    flow = TwoStep(h)
    now, following = flow.iterates(objective, objective.theta)
    np.testing.assert_allclose(following, pf.descend(objective, now, h, 1).thetas[-1])
    np.testing.assert_allclose(flow.centre(objective, now), (now + following) / 2)
    np.testing.assert_allclose(flow.amplitude(objective, now), (now - following) / 2)


def test_beyond_the_series_the_solution_says_so_and_names_the_remedy():
    bowl = pf.functions.quadratic(jnp.diag(jnp.array([2.45, 0.1])))
    solution = pf.integrate(TwoStep(1.0), bowl, [1e-3, 1.0], 20.0)
    assert solution.status == "inexact"
    assert "pf.flows.Pair" in solution.message
    below = pf.functions.quadratic(jnp.diag(jnp.array([2.35, 1.0])))
    assert pf.integrate(TwoStep(1.0), below, [1e-3, 1.0], 10.0).status == "completed"


@pytest.mark.parametrize("order", [2, 3])
def test_a_growing_oscillation_is_seen_beside_what_decays(order):
    bowl = pf.functions.quadratic(jnp.diag(jnp.array([2.45, 1.8, 1.0, 0.1])))
    theta = jnp.array([0.01, 0.1, 1.0, 1.0])
    field = TwoStep(1.0, order=order).evaluate(bowl, pf.descend(bowl, theta, 1.0, 10).thetas[-1])
    assert field.error == np.inf


def test_momentum_below_its_edge_is_no_divergence():
    bowl = pf.functions.quadratic(jnp.diag(jnp.array([3.0, 1.0, 0.1])))
    flow = StepFlow.from_optax(optax.sgd(1.0, momentum=0.9), order=3)
    assert pf.integrate(flow, bowl, [1.0, 1.0, 1.0], 50).status == "completed"


@pytest.mark.parametrize("order", [0, 3])
def test_any_update_has_the_flow_that_its_kind_has(order):
    objective, h = regression(), 0.1
    theta = objective.theta
    of_step = lambda period: StepFlow(descent_step(h), period=period, order=order, h=h)  # noqa: E731
    two, one = TwoStep(h, order=order).field(objective, theta), pf.flows.BackwardError(h, order).field(objective, theta)
    np.testing.assert_allclose(of_step(2).field(objective, theta), two, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(of_step(1).field(objective, theta), one, rtol=1e-9, atol=1e-12)
    of_optax = StepFlow.from_optax(optax.sgd(h), order=order, modulus=0)
    state = of_optax.start(objective, theta)
    np.testing.assert_allclose(of_optax.field(objective, state).theta, h * two, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "tx", [optax.adam(1e-3), optax.rmsprop(optax.cosine_decay_schedule(1e-3, 100)), optax.nadamw(1e-3)]
)
def test_counters_are_functions_of_time(tx):
    objective = regression()
    flow = StepFlow.from_optax(tx)
    field = flow.field(objective, flow.start(objective, objective.theta))
    counts = optax.tree.get_all_with_path(field.optimizer, "count")
    assert counts
    for _, rate in counts:
        assert float(rate) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("tx", [optax.adam(2e-3, b1=0.5), optax.rmsprop(1e-3), optax.sgd(0.01, momentum=0.5)])
def test_optimisers_are_followed_from_where_a_run_is(tx):
    objective, params = regression(), regression().unravel(regression().theta)
    state = tx.init(params)
    gradient = lambda params: objective.unravel(objective.gradient(params))  # noqa: E731

    def run(params, state, steps):
        for _ in range(steps):
            updates, state = tx.update(gradient(params), state, params)
            params = optax.apply_updates(params, updates)
        return params, state

    params, state = run(params, state, 20)
    end, _ = run(params, state, 20)
    start, end = objective.flat("theta", params), objective.flat("theta", end)
    solution = pf.integrate(StepFlow.from_optax(tx, state=state), objective, start, 20)
    assert jnp.linalg.norm(solution.theta - end) < 1e-3 * jnp.linalg.norm(end - start)


@pytest.mark.parametrize(("order", "modulus"), [(0, 1.0), (1, 1.0), (2, 0.956), (3, 0.839), (4, 0.725)])
def test_complex_multipliers_decay_up_to_a_modulus(order, modulus):
    def rates(r):
        w = np.outer(np.linspace(0, r, 50), np.exp(1j * np.linspace(0, np.pi, 1000)))
        return -sum((1 - w) ** k / k for k in range(1, order + 2)).real

    assert np.max(rates(modulus)) <= 1e-12
    assert modulus == 1 or np.max(rates(modulus + 0.002)) > 0


@pytest.mark.parametrize(
    ("order", "modulus", "terms"), [(2, 0.9, 3), (3, 0.9, 6), (4, 0.9, 9), (3, 0.8, 4), (3, 0.949, 8)]
)
def test_further_terms_let_all_multipliers_decay_and_keep_the_order(order, modulus, terms):
    weights = damped_weights(order, modulus)
    rate = lambda w: (w - 1) * np.polyval(weights[::-1], w)  # noqa: E731
    w = np.outer(np.linspace(0, modulus, 50), np.exp(1j * np.linspace(0, np.pi, 1000)))
    assert len(weights) == terms
    assert np.max(rate(w).real) < 1e-9
    steps = np.geomspace(0.01, 0.04, 4)
    assert abs(slope(steps, np.abs(rate(1 + steps) - np.log1p(steps))) - (order + 2)) < 0.2


@pytest.mark.parametrize("order", range(5))
def test_heavy_ball_is_followed_at_every_order(order):
    # At lambda = 15 multipliers have the modulus sqrt(0.9) and an angle of 90 degrees: squared, they are at -0.9.
    lambdas = np.array([0.5, 4.0, 15.0, 30.0, 37.5])
    bowl, tx = pf.functions.quadratic(np.diag(lambdas)), optax.sgd(0.1, momentum=0.9)
    theta = jnp.ones(5)
    solution = pf.integrate(StepFlow.from_optax(tx, order=order), bowl, theta, 100, rtol=1e-7)
    end = pf.descend(bowl, theta, 0.1, 100, momentum=0.9).thetas[-1]
    assert jnp.max(jnp.abs(solution.theta - end)) < 0.03  # where they began at 1


def test_a_runs_averages_of_squares_stay_above_0():
    # The second weight has no gradient any more, and its average of squares decays to nothing.
    objective = pf.Objective(lambda w: w[0] ** 2 / 2, jnp.ones(2))
    tx = optax.adam(0.01, b2=0.9)
    state = tx.init(objective.theta)
    state = (state[0]._replace(nu=jnp.array([1e-2, 1e-8])), *state[1:])
    solution = pf.integrate(StepFlow.from_optax(tx, state=state, order=1), objective, objective.theta, 100)
    nu = jnp.exp(solution.states[-1].optimizer[0].nu)
    assert nu[1] == pytest.approx(1e-8 * 0.9**100, rel=1e-3)


class Named(NamedTuple):
    """Parameters with a name that optimisers have, too."""

    nu: jax.Array


def test_parameters_may_be_called_nu():
    objective = pf.Objective(lambda params: jnp.sum(params.nu**2), Named(jnp.array([-1.0, 2.0])))
    tx = optax.sgd(0.1, momentum=0.5)
    state = tx.init(objective.unravel(objective.theta))
    flow = StepFlow.from_optax(tx, state=state)
    start = flow.start(objective, objective.theta)
    moved = flow.after_step(objective, flow.after_step(objective, start))
    np.testing.assert_allclose(moved.theta, pf.descend(objective, objective.theta, 0.1, 2, momentum=0.5).thetas[-1])


@pytest.mark.parametrize("order", [3, 4, 5])
def test_where_damping_misses_the_growth_the_solution_says_so(order):
    # Two steps of heavy ball at h*lambda = 3.9 multiply the sharpest direction by 1.73.
    bowl = pf.functions.quadratic(jnp.diag(jnp.array([3.9, 0.1])))
    flow = StepFlow.from_optax(optax.sgd(1.0, momentum=0.9), order=order)
    start = flow.start(bowl, jnp.array([0.1, 1.0]))
    for _ in range(6):
        start = flow.after_step(bowl, start)
    assert (flow.evaluate(bowl, start).error == np.inf) == (order > 3)


def test_the_state_must_be_that_of_the_optimiser():
    objective = regression()
    tx, params = optax.adam(1e-3), objective.unravel(objective.theta)
    flow = StepFlow.from_optax(tx, state=optax.sgd(0.1).init(params))
    with pytest.raises(ValueError, match=r"^state must be one of tx"):
        flow.start(objective, objective.theta)
    flow = StepFlow.from_optax(tx, state=tx.init(jax.tree.map(lambda leaf: leaf[:1], params)))
    with pytest.raises(ValueError, match=r"shape"):
        flow.start(objective, objective.theta)


def test_adam_without_a_state_says_what_it_may_need():
    objective = regression()
    solution = pf.integrate(StepFlow.from_optax(optax.adam(1e-3)), objective, objective.theta, 10, max_steps=2)
    assert "averages of squares" in solution.message
    assert "give from_optax the state" in solution.message


@pytest.mark.parametrize("flow", [TwoStep, pf.flows.Pair])
def test_far_beyond_the_edge_the_message_says_so(flow):
    steep = pf.Objective(lambda w: 14 * jnp.sin(w[0]) ** 2, jnp.array([1.0]))
    solution = pf.integrate(flow(1.0), steep, [1.0], 10.0, max_steps=50)
    assert solution.status == "max_steps"
    assert "h*lambda may be far above 2" in solution.message


def test_rounding_is_not_taken_for_divergence():
    flow = TwoStep(0.1)
    assert "double precision" in flow.advice(1e-5)
    assert "pf.flows.Pair" in flow.advice(np.inf)


def test_random_optimisers_are_refused():
    objective = regression()
    with pytest.raises(ValueError, match="tx must have a state of numbers"):
        pf.integrate(StepFlow.from_optax(optax.add_noise(1.0, 0.5, jax.random.key(0))), objective, objective.theta, 1)


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: StepFlow(None), "step"),
        (lambda: StepFlow(descent_step(0.1), period=0), "period"),
        (lambda: StepFlow(descent_step(0.1), order=-1), "order"),
        (lambda: StepFlow(descent_step(0.1), h=0.0), "h"),
        (lambda: StepFlow(descent_step(0.1), modulus=1.0), "modulus"),
        (lambda: StepFlow(descent_step(0.1), order=7, modulus=0.9), "order"),
        (lambda: StepFlow.from_optax(optax.sgd), "tx"),
        (lambda: TwoStep(-1.0), "h"),
        (lambda: TwoStep(0.1, order=47), "order"),
    ],
)
def test_errors_name_the_argument(make, word):
    with pytest.raises(ValueError, match=f"^{word} must"):
        make()
