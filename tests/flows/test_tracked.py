import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import random_quadratic, regression

import principalflow as pf
from principalflow.flows import TrackedState
from principalflow.reproduce import small_mlp

VALLEY = pf.Objective(lambda w: w[1] * w[0] ** 2 / 2 - w[1] / 10, jnp.array([0.1, 0.9]))  # the curvature y grows


def at(h, w, argument):
    """A flow, a loss and a state with 1 - h lambda = w for one eigenvalue, whose argument is known."""
    objective = pf.Objective(lambda theta: (1 - w) / h * theta[0] ** 2 / 2, jnp.ones(1) + 0j)
    state = TrackedState.of(jnp.ones(1) + 0j, jnp.array([1 - w]), jnp.array([argument]))
    return pf.flows.Principal(h, branch="tracked"), objective, state


@pytest.mark.parametrize("kind", [pf.flows.Principal, pf.flows.PrincipalThirdOrder])
@pytest.mark.parametrize("h", [0.0004, 0.0017])
def test_at_real_theta_with_one_eigenvalue_above_1_over_h_the_field_is_the_continuous_branchs(kind, h):
    banana = pf.functions.banana()
    continuous, tracked = (
        kind(h, branch=branch).evaluate(banana, banana.theta) for branch in ("continuous", "tracked")
    )
    np.testing.assert_allclose(tracked.vector, continuous.vector, rtol=1e-10)
    assert int(tracked.products) == int(continuous.products)
    assert tracked.contractions == continuous.contractions + 2  # one for each of the two eigenvalues


def test_at_real_theta_with_several_above_it_each_direction_is_the_continuous_branchs_or_its_conjugate():
    objective, h = regression(sizes=(2, 5, 1)), 4.0
    values, vectors = jnp.linalg.eigh(objective.hessian(objective.theta))
    assert jnp.sum(h * values > 1) > 1
    continuous, tracked = (
        vectors.T @ pf.flows.Principal(h, branch=branch).field(objective, objective.theta)
        for branch in ("continuous", "tracked")
    )
    np.testing.assert_allclose(tracked.real, continuous.real, rtol=1e-8)
    np.testing.assert_allclose(abs(tracked.imag), abs(continuous.imag), rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(tracked[-1], continuous[-1], rtol=1e-8)  # the largest has + i pi


@pytest.mark.parametrize("size", [1, 6, 12])
def test_on_quadratics_it_equals_descent_in_all_regimes(size):
    h = 0.3
    A, b, theta = random_quadratic(size, h, seed=size)
    bowl = pf.functions.quadratic(A, b)
    flow = pf.flows.Principal(h, branch="tracked", k=10)
    solution = pf.integrate(flow, bowl, theta, 4 * h, rtol=1e-10, atol=1e-12, saves=4)
    assert solution.status == "completed"
    np.testing.assert_allclose(solution.thetas, pf.descend(bowl, theta, h, 4).thetas, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("objective", "theta", "h", "time"),
    [(pf.functions.banana(), [1.3, 1.5], 0.0017, 0.0017), (VALLEY, [0.1, 0.9], 1.0, 3.0)],
    ids=["above 1/h", "rising through it"],
)
def test_where_no_cut_is_met_the_path_is_the_continuous_branchs(objective, theta, h, time):
    continuous, tracked = (
        pf.integrate(pf.flows.Principal(h, branch=branch), objective, theta, time, rtol=1e-8, atol=1e-10)
        for branch in ("continuous", "tracked")
    )
    assert tracked.status == continuous.status == "completed"
    assert jnp.any(abs(continuous.thetas[-1].imag) > 1e-6)
    np.testing.assert_allclose(tracked.thetas[-1], continuous.thetas[-1], rtol=1e-5, atol=1e-6)
    assert tracked.evaluations <= 2 * continuous.evaluations


def test_past_the_continuous_branchs_cut_the_logarithm_goes_on():
    fields = {}
    for argument in (1.49 * np.pi, 1.51 * np.pi):
        w = 0.5 * np.exp(1j * argument)
        flow, objective, state = at(0.7, w, argument)
        fields[argument] = flow.field(objective, state).theta[0] / ((1 - w) / 0.7)
        np.testing.assert_allclose(fields[argument], (np.log(0.5) + 1j * argument) / (1 - w), rtol=1e-12)
    below, above = (
        pf.flows.Principal(0.7).alpha(1 - 0.5 * np.exp(1j * argument)) for argument in (1.49 * np.pi, 1.51 * np.pi)
    )
    assert abs(np.subtract(*fields.values())) < 0.2
    assert abs(above - below) > 5  # 2 pi over |h lambda|


def test_an_argument_past_three_quarters_of_a_turn_is_taken_back_by_one():
    for argument, goal in ((1.2, 1.2), (-1.2, -1.2), (1.55, -0.45), (-1.55, 0.45)):
        flow, objective, state = at(0.7, 0.5 * np.exp(1j * np.pi * argument), np.pi * argument)
        field = flow.field(objective, state)
        still = TrackedState.of(jnp.ones(1) + 0j, state.values, jnp.array([np.pi * goal]))
        np.testing.assert_allclose(0.7 * field.arguments, 8 * np.pi * (goal - argument), atol=1e-6)  # at the rate 8/h
        np.testing.assert_allclose(flow.field(objective, still).arguments, 0, atol=1e-9)


def test_eigenvalues_that_change_their_order_keep_their_logarithms():
    # The larger one has the argument pi, the other one -pi; what is remembered has them in either order.
    z = jnp.array([1.5, 1.4])
    objective = pf.Objective(lambda theta: jnp.sum(z * theta**2) / 2, jnp.ones(2))
    flow, theta = pf.flows.Principal(1.0, branch="tracked"), jnp.ones(2) + 0j
    for order in ([0, 1], [1, 0]):
        order = jnp.array(order)
        state = TrackedState.of(theta, (z + 0.01j)[order], jnp.pi * jnp.array([1.0, -1.0])[order])
        np.testing.assert_allclose(flow.field(objective, state).theta.imag, [np.pi, -np.pi], rtol=1e-12)


def test_eigenvalues_are_foretold_by_third_derivatives():
    objective, h = regression(sizes=(2, 3, 1)), 1.0
    flow = pf.flows.Principal(h, branch="tracked", k=2)
    state = flow.start(objective, objective.theta + 0.01j * jnp.arange(objective.theta.size))
    change = flow.field(objective, state)
    step = 1e-6

    def largest(theta):
        values = h * jnp.linalg.eigvals(objective.hessian(theta))
        return values[jnp.argsort(-values.real)[:2]]

    difference = (largest(state.theta + step * change.theta) - largest(state.theta - step * change.theta)) / (2 * step)
    np.testing.assert_allclose(change.values, difference, rtol=1e-6)


def test_krylov_equals_dense_on_sheets_of_the_logarithm_that_are_not_the_continuous_branchs():
    objective, h = regression(samples=20, sizes=(4, 16, 3)), 0.25
    dense, krylov = (pf.flows.Principal(h, branch="tracked", method=method) for method in ("dense", "krylov"))
    state = krylov.start(objective, objective.theta)
    assert jnp.sum(state.values.real > 1) > 1
    arguments = jnp.pi * jnp.where(state.values.real > 1, -1, 0).at[0].set(1)
    state = TrackedState.of(objective.theta + 0.01j, state.values, arguments)
    expected, found = dense.evaluate(objective, state), krylov.evaluate(objective, state)
    assert found.converged
    assert int(found.products) < objective.theta.size
    size = jnp.linalg.norm(expected.vector.theta)
    assert jnp.linalg.norm(found.vector.theta - expected.vector.theta) <= 1e-7 * size
    other = pf.flows.Principal(h).field(objective, state.theta)
    assert jnp.linalg.norm(found.vector.theta - other) > 1e-2 * size


@pytest.mark.slow
def test_it_follows_descent_where_a_second_eigenvalue_passes_1_over_h_and_both_branches_lose_it():
    with jax.enable_x64(True):
        config, h = small_mlp.Config(starts=4), 0.25
        *_, (objective, sharpness) = (start for _, start in zip(range(4), small_mlp._starts(config), strict=False))
        assert h * sharpness > 2
        flows = {branch: pf.flows.Principal(h, branch=branch) for branch in ("continuous", "principal", "tracked")}
        table = pf.compare(
            objective, objective.theta, h, 3, flows, rtol=2e-6, step=h / 100, max_steps=60, kinds="global"
        )
    last = table[table["step"] == 3].set_index("flow")
    assert last.loc["tracked", "solver"] == "tsit5"  # no jumps
    others = last.loc[["continuous", "principal"], "error"].fillna(np.inf)
    assert last.loc["tracked", "error"] < 0.7 * others.min()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(k=0), "k must be a whole number of at least 1"),
        (dict(k=11), "k must be a whole number of at most 10"),
        (dict(k=4, max_products=3), "max_products must be a whole number of at least 4"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        pf.flows.Principal(0.1, branch="tracked", **arguments)
