"""Following fields from Python, against closed forms."""

import numpy as np
import pytest
from scipy.integrate import DOP853, RK45

import principalflow as pf
from principalflow.reproduce._solve import ADAPTIVE, EULER, adaptive_or_euler, euler, field_of, solve

TIMES = np.linspace(0, 2, 9)
TURN = np.array([1.0 + 0j])


def turning(_, theta):
    return 1j * theta


def jumping(_, theta):
    """Pushes back to 0 from both sides, where a solver with error control gets stuck."""
    return -np.sign(theta)


@pytest.mark.parametrize("solver", [RK45, DOP853])
def test_states_are_those_at_the_times(solver):
    states = solve(turning, TURN, TIMES, 1e-9, 1000, solver)
    np.testing.assert_allclose(states[:, 0], np.exp(1j * TIMES), atol=1e-7)


def test_times_between_the_solvers_steps_are_interpolated_as_well():
    times = np.linspace(0, 2, 201)
    states = solve(turning, TURN, times, 1e-9, 200, DOP853)  # so few evaluations that no step ends at most of them
    np.testing.assert_allclose(states[:, 0], np.exp(1j * times), atol=1e-7)


def test_a_solver_without_evaluations_left_returns_what_it_reached():
    assert len(solve(turning, TURN, TIMES, 1e-9, most=0)) == 1
    assert 1 < len(solve(turning, TURN, TIMES, 1e-9, most=40)) < len(TIMES)


def test_a_field_that_is_not_finite_ends_the_path():
    assert len(solve(lambda t, theta: theta * np.nan, TURN, TIMES, 1e-9, most=500)) == 1
    assert len(euler(lambda t, theta: theta * np.nan, TURN, TIMES, 3)) == 1


def test_eulers_error_falls_with_the_number_of_its_steps():
    errors = [abs(euler(turning, TURN, TIMES, steps)[-1, 0] - np.exp(2j)) for steps in (20, 40)]
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.05)


def test_a_smooth_field_is_followed_adaptively():
    assert adaptive_or_euler(turning, TURN, TIMES, 1e-9, 1000, 10)[1] == ADAPTIVE


def test_a_field_that_jumps_is_followed_by_euler_from_the_start():
    states, solver = adaptive_or_euler(jumping, np.array([0.5]), TIMES, 1e-9, 1000, 10)
    assert solver == EULER
    np.testing.assert_allclose(states[:, 0], np.maximum(0.5 - TIMES, 0), atol=0.03)  # one of its steps, 0.025


def test_a_flows_field_tells_its_hessian_products():
    told = []
    flow = pf.flows.Principal(h=0.1, method="krylov")
    field = field_of(flow, pf.functions.banana(), lambda *what: told.append(what))
    np.testing.assert_allclose(field(0.0, [1.3, 1.5]), flow.field(pf.functions.banana(), [1.3, 1.5]))
    assert told == [(2, True)]
