"""One test for each entry of docs/errata.md: the corrected statement holds, the printed one doesn't."""

from fractions import Fraction
from itertools import product
from math import factorial, prod

import jax
import jax.numpy as jnp
import numpy as np
from cases import slope

import principalflow as pf


def test_erratum_1_igr_jacobian_has_h_half_and_not_h_squared_half():
    h, banana, minimum = 0.001, pf.functions.banana(), jnp.array([1.0, 1.0])
    lambdas = jnp.linalg.eigvalsh(banana.hessian(minimum))[::-1]
    actual = jnp.linalg.eigvals(jax.jacfwd(lambda t: pf.flows.IGR(h).field(banana, t))(minimum)).real.sort()
    np.testing.assert_allclose(actual, -(lambdas + h / 2 * lambdas**2), rtol=1e-9)
    assert not np.allclose(actual, -(lambdas + h**2 / 2 * lambdas**2), rtol=1e-2)


def test_erratum_2_the_quadratics_solution_with_a_linear_term():
    lam, b, h, start = 1.5, -0.6, 0.4, 2.0
    a = np.log(1 - h * lam) / h
    descent = start - h * (lam * start + b)
    corrected = np.exp(a * h) * start + (np.exp(a * h) - 1) * b / lam
    printed = np.exp(a * h) * start + h * np.log(1 - h * lam) / (h * lam) * b
    np.testing.assert_allclose(corrected, descent, rtol=1e-14)
    np.testing.assert_allclose(
        pf.flows.solve_quadratic(pf.flows.Principal(h), [[lam]], [b], [start], [h]), [[descent]], rtol=1e-13
    )
    assert abs(printed - descent) > 0.1


def test_erratum_3_the_discrete_loss_change_per_direction():
    h, lambdas, theta = 0.3, jnp.array([0.5, 4.0, 9.0]), jnp.array([1.0, -0.2, 0.7])
    bowl = pf.functions.quadratic(jnp.diag(lambdas))
    g = bowl.gradient(theta)
    change = bowl.value(theta - h * g) - bowl.value(theta)
    np.testing.assert_allclose(jnp.sum(-h * (1 - h * lambdas / 2) * g**2), change, rtol=1e-12)
    assert abs(jnp.sum((1 - h / (2 * lambdas)) * g**2) - change) > 1


def test_erratum_4_the_norm_of_hg_adds_squares():
    lambdas, g = jnp.array([3.0, 1.0]), jnp.array([0.6, -0.8])
    product_norm = jnp.linalg.norm(pf.functions.quadratic(jnp.diag(lambdas)).hvp(jnp.ones(2), g))
    np.testing.assert_allclose(jnp.sqrt(jnp.sum(lambdas**2 * g**2)), product_norm, rtol=1e-14)
    assert abs(abs(jnp.sum(lambdas * g)) - product_norm) > 0.5


def test_erratum_5_the_papers_euler_takes_200_steps_for_time_0_01():
    bowl = pf.functions.quadratic([[1.0]])
    solution = pf.integrate(pf.flows.NegativeGradient(), bowl, [1.0], 1e-2, solver="euler", step=5e-5)
    assert solution.evaluations == 200


def test_erratum_6_the_third_derivatives_have_cross_terms():
    banana, theta = pf.functions.banana(), jnp.array([0.2, 0.5])
    g = banana.gradient(theta)
    _, vectors = jnp.linalg.eigh(banana.hessian(theta))
    part = {(i, j): (g @ vectors[:, i]) * (g @ vectors[:, j]) * banana.third(theta, vectors[:, i], vectors[:, j])
            for i, j in product(range(2), repeat=2)}  # fmt: skip
    whole = banana.third(theta, g, g)
    np.testing.assert_allclose(sum(part.values()), whole, rtol=1e-9)
    assert jnp.linalg.norm(part[0, 0] + part[1, 1] - whole) > 0.1 * jnp.linalg.norm(whole)


def test_erratum_7_one_third_is_c_2_and_powers_of_h_belong_to_the_theorem():
    # The paper's recurrence (lemma A.2): c_n = -sum over k of 1/k! times sums of products of k earlier c.
    c = [Fraction(1)]
    for n in range(1, 5):
        total = Fraction(0)
        for k in range(2, n + 2):
            picks = product(range(n - k + 2), repeat=k)
            total += Fraction(1, factorial(k)) * sum(prod(c[i] for i in p) for p in picks if sum(p) == n - k + 1)
        c.append(-total)
    assert c == [Fraction((-1) ** n, n + 1) for n in range(5)]
    assert c[2] == Fraction(1, 3)
    # On E = lambda theta^2 / 2, f = -lambda theta and f' = -lambda: the field has h^n c_n (f')^n f.
    h, lam = 0.1, 2.0
    field = pf.flows.BackwardError(h, order=4).field(pf.functions.quadratic([[lam]]), [1.0])
    np.testing.assert_allclose(field[0], sum(h**n * float(c[n]) * (-lam) ** n * -lam for n in range(5)), rtol=1e-12)


def test_erratum_8_the_quadratic_figures_leave_out_the_half():
    # The figure's third panel diverges at h = 1.05, so its Hessian is 2A; with H = A descent would converge.
    A = jnp.diag(jnp.array([1.0, 0.01]))
    with_half = pf.descend(pf.functions.quadratic(A), jnp.ones(2), h=1.05, steps=50)
    without = pf.descend(pf.functions.quadratic(2 * A), jnp.ones(2), h=1.05, steps=50)
    assert abs(with_half.thetas[-1, 0]) < 1e-6
    assert abs(without.thetas[-1, 0]) > 100
    np.testing.assert_allclose(pf.functions.quadratic(2 * A).value(jnp.ones(2)), jnp.ones(2) @ A @ jnp.ones(2))


def test_erratum_9_the_right_piece_of_the_cosine_valley_is_the_flatter_one():
    valley = pf.functions.cosine_valley()
    right = [valley.hessian([x])[0, 0] for x in (0.5, 1.5, 2.9)]
    np.testing.assert_allclose(right, 4 / 9)  # below the cosine's largest curvature, 1
    assert 22 * 21 / 9 * (2.9 / 3) ** 20 > 20  # the curvature of (theta/3)^22 at 2.9


def test_erratum_10_the_momentum_update_prints_a_quarter_of_dals_rate():
    # Without momentum the update must be DAL's, whose ratio of signal to drift, 2/(h ||H g^||), is 1.
    bowl = pf.functions.quadratic(jnp.diag(jnp.array([5.0, 2.0])))
    g = bowl.gradient(bowl.theta)
    curvature = jnp.linalg.norm(bowl.hvp(bowl.theta, g / jnp.linalg.norm(g)))
    dal, printed = 2 / curvature, 1 / (2 * curvature)
    signal_to_drift = [
        h * jnp.linalg.norm(g) / (h**2 / 2 * jnp.linalg.norm(bowl.hvp(bowl.theta, g))) for h in (dal, printed)
    ]
    np.testing.assert_allclose(signal_to_drift, [1, 4], rtol=1e-12)


def test_erratum_11_the_printed_cosine_valley_has_no_minimum_to_escape():
    valley = pf.functions.cosine_valley()
    slopes = jax.vmap(valley.gradient)(jnp.linspace(-20, 5, 2001)[:, None])
    assert jnp.all(slopes >= 0)
    inflection = -1.5 * jnp.pi
    np.testing.assert_allclose(valley.gradient([inflection]), 0, atol=1e-15)
    for h in (0.5, 0.85):
        path = pf.descend(valley, [2.0], h, 1000)
        assert inflection < path.thetas[-1, 0] < inflection + 0.01


def test_erratum_12_no_single_point_of_the_path_gives_the_whole_drift():
    # On a quadratic the time h' of the mean value is different in each eigendirection.
    h, lambdas = 1.0, np.array([0.1, 3.0])
    drift = np.exp(-h * lambdas) - (1 - h * lambdas)
    times = -np.log(2 * drift / (h * lambdas) ** 2) / lambdas
    assert np.all((times > 0) & (times < h))
    assert abs(times[0] - times[1]) > 0.05
    # The integral form holds: drift = integral over s in [0, h] of (h - s) H g(theta(s)).
    s, weights = np.polynomial.legendre.leggauss(20)
    s, weights = h * (s + 1) / 2, h * weights / 2
    integral = [np.sum(weights * (h - s) * lam**2 * np.exp(-lam * s)) for lam in lambdas]
    np.testing.assert_allclose(integral, drift, rtol=1e-12)


def test_erratum_13_under_the_negative_gradient_flow_the_gradient_changes_by_minus_hg():
    banana, theta, dt = pf.functions.banana(), jnp.array([1.3, 1.5]), 1e-7
    moved = pf.integrate(pf.flows.NegativeGradient(), banana, theta, dt, rtol=1e-12).thetas[-1]
    rate = (banana.gradient(moved) - banana.gradient(theta)) / dt
    np.testing.assert_allclose(rate, -banana.hvp(theta, banana.gradient(theta)), rtol=1e-3)


def test_erratum_14_the_general_theorem_is_of_order_p_plus_2():
    # Theorem A.2 sums to n = p and claims an error of O(h^(p+1)); p = 1 is the IGR flow, with O(h^3).
    banana, theta, rates = pf.functions.banana(), jnp.array([1.3, 1.5]), np.geomspace(1.5e-5, 6e-5, 3)
    errors = [
        jnp.linalg.norm(
            pf.integrate(pf.flows.IGR(h), banana, theta, h, rtol=1e-13, atol=1e-15).thetas[-1]
            - (theta - h * banana.gradient(theta))
        )
        for h in rates
    ]
    assert abs(slope(rates, errors) - 3) < 0.2


def test_erratum_15_the_one_dimensional_solution_depends_on_time():
    h, times = 1.5, jnp.array([0.0, 1.5, 3.0])
    solution = pf.flows.solve_quadratic(pf.flows.Principal(h), [[1.0]], [0.0], [1.0], times)[:, 0]
    np.testing.assert_allclose(solution, jnp.exp((jnp.log(0.5) + 1j * jnp.pi) / h * times), atol=1e-14)
    np.testing.assert_allclose(solution, [1, -0.5, 0.25], atol=1e-14)


def test_erratum_16_alpha_depends_on_the_curvature_alone():
    # Where g.u = 0 the flow's part along u vanishes, but its coefficient isn't -1.
    assert abs(pf.flows.Principal(h=1.0).alpha(1.5) - (-1)) > 1
    bowl = pf.functions.quadratic(jnp.diag(jnp.array([1.5, 0.5])))
    field = pf.flows.Principal(h=1.0).field(bowl, [0.0, 1.0])
    np.testing.assert_allclose(field[0], 0, atol=1e-15)


def test_erratum_17_the_higher_the_power_the_smaller_the_step_where_the_drift_is_large():
    # The gradient's direction is the same in both; only the curvature, and with it the drift, differs.
    low, high = (pf.functions.quadratic([[c]]).hvp([1.0], [1.0])[0] for c in (2.0, 20.0))
    kept = [high**-p / low**-p for p in (0.25, 0.5, 1.0)]  # of DAL-p's step, from low drift to high
    assert kept[0] > kept[1] > kept[2]


def test_erratum_18_relative_progress_is_minus_one_in_stable_training_and_zero_at_the_edge():
    # Printed: "0 in stable areas of training and 1 in the edge of stability areas".
    bowl = pf.functions.quadratic([[1.0]])
    np.testing.assert_allclose(pf.stability.relative_progress(bowl, [1.0], h=1e-3), -1, atol=1e-3)
    np.testing.assert_allclose(pf.stability.relative_progress(bowl, [1.0], h=2.0), 0, atol=1e-12)


def test_erratum_19_the_velocity_enters_the_drift_of_momentum_with_a_minus():
    h, m, g = 1e-3, 0.9, 1.0  # a constant gradient, so no curvature: the settled velocity follows the flow exactly
    line = pf.Objective(lambda theta: jnp.sum(theta), jnp.zeros(1))
    velocity = np.array([-h * g / (1 - m)])
    step = m * velocity - h * g
    flow = -h * g / (1 - m)
    np.testing.assert_allclose(pf.drift.momentum(line, [0.0], velocity, h, m).total, flow - step, atol=1e-15)
    printed = m * velocity - h * m / (1 - m) * g
    assert abs(printed[0] - (flow - step[0])) > 0.01
