from fractions import Fraction

import jax.numpy as jnp
import numpy as np
import pytest
from cases import regression, slope

import principalflow as pf

ORDERS = range(6)


def banana_problem():
    # Rates with h*lambda between 0.02 and 0.1: the next order is a small correction, and order 5 above rounding.
    return pf.functions.banana(), jnp.array([1.3, 1.5]), np.geomspace(1.5e-5, 6e-5, 4)


def network_problem():
    objective = regression()
    return objective, objective.theta, np.geomspace(0.003, 0.012, 4)


PROBLEMS = pytest.mark.parametrize("problem", [banana_problem, network_problem])


def one_step_errors(flow_at, objective, theta, rates):
    errors = []
    for h in rates:
        solution = pf.integrate(flow_at(h), objective, theta, h, rtol=1e-14, atol=1e-16)
        assert solution.status == "completed"
        errors.append(jnp.linalg.norm(solution.thetas[-1] - (theta - h * objective.gradient(theta))))
    return errors


@pytest.mark.slow
@PROBLEMS
@pytest.mark.parametrize("order", ORDERS)
def test_order_n_has_a_one_step_error_of_slope_n_plus_2(problem, order):
    objective, theta, rates = problem()
    errors = one_step_errors(lambda h: pf.flows.BackwardError(h, order=order), objective, theta, rates)
    assert abs(slope(rates, errors) - (order + 2)) < 0.4


@PROBLEMS
@pytest.mark.parametrize(
    ("flow", "expected"),
    [
        (lambda h: pf.flows.NegativeGradient(), 2),
        (pf.flows.IGR, 3),
        (pf.flows.ThirdOrder, 4),
        (pf.flows.Principal, 3),
        (pf.flows.PrincipalThirdOrder, 4),
    ],
)
def test_the_named_flows_have_the_slopes_of_their_orders(problem, flow, expected):
    objective, theta, rates = problem()
    assert abs(slope(rates, one_step_errors(flow, objective, theta, rates)) - expected) < 0.4


def test_order_zero_is_the_negative_gradient_flow():
    objective, theta, _ = banana_problem()
    field = pf.flows.BackwardError(h=0.1, order=0).field(objective, theta)
    np.testing.assert_allclose(field, -objective.gradient(theta), rtol=1e-15)


@PROBLEMS
@pytest.mark.parametrize(("order", "named"), [(1, pf.flows.IGR), (2, pf.flows.ThirdOrder)])
def test_orders_one_and_two_differ_from_their_named_flows_beyond_their_order_only(problem, order, named):
    objective, theta, rates = problem()
    differences = [
        jnp.linalg.norm(
            pf.flows.BackwardError(h, order=order).field(objective, theta) - named(h).field(objective, theta)
        )
        for h in rates
    ]
    assert abs(slope(rates, differences) - (order + 1)) < 0.4


@pytest.mark.parametrize("order", ORDERS)
def test_on_a_quadratic_the_field_is_alpha_in_every_eigendirection(order):
    bowl = pf.functions.quadratic(jnp.diag(jnp.array([-1.0, 0.0, 2.0])), b=[1.0, 1.0, 1.0])
    flow = pf.flows.BackwardError(h=0.4, order=order)
    expected = flow.alpha(0.4 * jnp.array([-1.0, 0.0, 2.0])) * bowl.gradient(bowl.theta)
    np.testing.assert_allclose(flow.field(bowl, bowl.theta), expected, rtol=1e-12)


def test_alphas_are_the_truncations_of_one_series():
    z = jnp.linspace(-1.0, 3.0, 9)
    for flow, order in ((pf.flows.IGR(0.1), 1), (pf.flows.ThirdOrder(0.1), 2)):
        np.testing.assert_allclose(flow.alpha(z), pf.flows.BackwardError(0.1, order=order).alpha(z), rtol=1e-14)


@pytest.mark.parametrize(("dtype", "most"), [(jnp.float32, 16), (jnp.float64, 46)])
def test_the_highest_order_is_known_to_three_digits_within_its_estimate(dtype, most):
    for z in (0.01, 0.5):
        flow = pf.flows.BackwardError(h=z, order=most)
        bowl = pf.functions.quadratic(jnp.ones((1, 1), dtype))
        exact = -sum(z**p / (p + 1) for p in range(most + 1))
        error = abs(float(flow.field(bowl, jnp.ones(1, dtype))[0]) - exact) / abs(exact)
        estimate = float(flow.evaluate(bowl, jnp.ones(1, dtype)).error)
        assert error <= estimate <= 1e-3


@pytest.mark.parametrize("order", [*ORDERS, 10, 16])
def test_the_estimate_is_above_the_error_in_single_precision(order):
    double, single = banana_problem()[0], pf.functions.banana()
    for theta, h in (([1.3, 1.5], 3e-4), ([1.3, 1.5], 6e-6), ([-0.7, 0.4], 1e-4)):
        flow = pf.flows.BackwardError(h, order=order)
        theta = jnp.array(theta, jnp.float32)
        expected = flow.field(double, theta.astype(float))
        error = jnp.max(jnp.abs(flow.field(single, theta) - expected)) / jnp.max(jnp.abs(expected))
        # The banana's gradient, a difference of large terms, is itself known to some four rounding units only.
        assert error <= 5 * flow.evaluate(single, theta).error


def test_orders_up_to_five_are_known_to_rounding_and_a_hundred():
    objective, theta, rates = banana_problem()
    assert pf.flows.BackwardError(rates[0], order=5).evaluate(objective, theta).error < 100 * np.finfo(float).eps


def test_a_field_that_rounding_leaves_less_exact_than_rtol_makes_the_solution_inexact():
    bowl = pf.functions.quadratic([[1.0]])
    found = [pf.integrate(pf.flows.BackwardError(h=0.1, order=order), bowl, [1.0], 0.1) for order in (10, 46)]
    assert [solution.status for solution in found] == ["completed", "inexact"]
    assert found[1].message.endswith("take a lower order, or double precision")


def test_at_a_critical_point_the_field_is_zero_and_known():
    bowl = pf.functions.quadratic([[1.0]])
    flow = pf.flows.BackwardError(h=0.1, order=3)
    assert flow.field(bowl, [0.0]) == flow.evaluate(bowl, [0.0]).error == 0


def test_an_order_beyond_the_precision_of_the_parameters_is_refused_with_what_would_do():
    flow = pf.flows.BackwardError(h=0.5, order=17)
    bowl = pf.functions.quadratic(jnp.ones((1, 1), jnp.float32))
    with pytest.raises(ValueError, match=r"order must be at most 16 in float32, got 17: .* Give float64"):
        flow.field(bowl, bowl.theta)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("z", [-2.0, -0.5, 0.5, 0.9, 3.0])
def test_alpha_of_the_highest_order_is_known_to_rounding(z, dtype):
    exact = -sum(Fraction(z) ** p / (p + 1) for p in range(47))
    found = pf.flows.BackwardError(h=0.1, order=46).alpha(jnp.asarray(z, dtype))
    np.testing.assert_allclose(float(found), float(exact), rtol=50 * float(jnp.finfo(dtype).eps))


@pytest.mark.parametrize(
    "flow",
    [pf.flows.NegativeGradient(), pf.flows.IGR(0.1), pf.flows.BackwardError(0.1, order=3), pf.flows.Principal(0.1)],
)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_coefficients_of_what_is_not_finite_are_refused(flow, bad):
    with pytest.raises(ValueError, match="z must be finite"):
        flow.alpha([1.0, bad])
    with pytest.raises(ValueError, match=r"lambdas must be finite"):
        flow.jacobian_eigenvalues([1.0, bad])


@pytest.mark.parametrize("h", [0, -0.1, np.nan, np.inf, "0.1"])
@pytest.mark.parametrize("flow", [pf.flows.IGR, pf.flows.ThirdOrder, pf.flows.Principal, pf.flows.PrincipalThirdOrder])
def test_a_bad_learning_rate_is_named(flow, h):
    with pytest.raises(ValueError, match="h must be a"):
        flow(h)


@pytest.mark.parametrize("order", [-1, 1.5, True, 47, 10**30])
def test_a_bad_order_is_named(order):
    with pytest.raises(ValueError, match=r"order must be a whole number of at (least 0|most 46)"):
        pf.flows.BackwardError(h=0.1, order=order)
