import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import regression
from scipy.integrate import solve_ivp

import principalflow as pf


def banana():
    return pf.functions.banana(), jnp.array([1.3, 1.5])


@pytest.mark.parametrize("solver", ["tsit5", "dopri8"])
def test_a_complex_flow_agrees_with_scipys_solver(solver):
    objective, theta = banana()
    flow = pf.flows.Principal(h=0.0012)
    reference = solve_ivp(
        lambda _, y: np.asarray(flow.field(objective, jnp.asarray(y))),
        (0, 0.0024),
        np.asarray(theta) + 0j,
        method="DOP853",
        rtol=1e-10,
        atol=1e-12,
    )
    solution = pf.integrate(flow, objective, theta, 0.0024, rtol=1e-9, atol=1e-12, solver=solver)
    np.testing.assert_allclose(solution.thetas[-1], reference.y[:, -1], rtol=1e-7)


def test_a_complex_flow_agrees_with_its_real_and_imaginary_parts_solved_apart():
    class Split(pf.flows.Flow):
        flow: pf.flows.Principal

        def start(self, objective, theta):
            return jnp.stack([theta, jnp.zeros_like(theta)])

        def evaluate(self, objective, state):
            slope = self.flow.field(objective, jax.lax.complex(*state))
            return pf.flows.Field.exact(jnp.stack([slope.real, slope.imag]))

        def parameters(self, state):
            return jax.lax.complex(state[0], state[1])

    objective, theta = banana()
    flow = pf.flows.Principal(h=0.0012)
    split, whole = (pf.integrate(f, objective, theta, 0.0024, rtol=1e-10, atol=1e-12) for f in (Split(flow), flow))
    np.testing.assert_allclose(split.thetas[-1], whole.thetas[-1], rtol=1e-8)


def test_the_result_is_as_accurate_as_asked_at_every_saved_time():
    objective, theta = banana()
    flow = pf.flows.NegativeGradient()
    reference = pf.integrate(flow, objective, theta, 0.01, rtol=1e-13, atol=1e-15, saves=7)
    solution = pf.integrate(flow, objective, theta, 0.01, rtol=1e-6, saves=7)
    np.testing.assert_allclose(solution.thetas, reference.thetas, rtol=1e-5)


@pytest.mark.parametrize(("solver", "step"), [("euler", 1e-4), ("tsit5", None), ("dopri8", None)])
@pytest.mark.parametrize("saves", [None, 5])
def test_evaluations_are_counted_exactly(solver, step, saves):
    count = 0

    def bump(_):
        nonlocal count
        count += 1
        return np.zeros(())

    class Counted(pf.flows.NegativeGradient):
        def evaluate(self, objective, state):
            zero = jax.pure_callback(bump, jax.ShapeDtypeStruct((), jnp.float64), state[0])
            field = super().evaluate(objective, state)
            return field._replace(vector=field.vector + zero)

    objective, theta = banana()
    solution = pf.integrate(Counted(), objective, theta, 0.05, solver=solver, step=step, saves=saves)
    jax.block_until_ready(solution.thetas)
    assert count == solution.evaluations == solution.cost
    assert solution.steps > 1


def test_euler_takes_the_papers_steps():
    objective, theta = banana()
    h, step = 1e-3, 5e-5
    solution = pf.integrate(pf.flows.NegativeGradient(), objective, theta, h, solver="euler", step=step)
    path = pf.descend(objective, theta, step, 20)
    assert solution.evaluations == 20
    np.testing.assert_allclose(solution.thetas[-1], path.thetas[-1], rtol=1e-12)


def test_the_ngf_costs_a_twentieth_of_eulers_gradients_and_is_closer():
    objective = regression(samples=20, sizes=(4, 16, 3))
    flow, theta, h = pf.flows.NegativeGradient(), objective.theta, 0.05
    reference = pf.integrate(flow, objective, theta, h, rtol=1e-12, atol=1e-15).thetas[-1]
    adaptive = pf.integrate(flow, objective, theta, h, rtol=1e-9)
    euler = pf.integrate(flow, objective, theta, h, solver="euler", step=5e-5)
    errors = [jnp.linalg.norm(s.thetas[-1] - reference) / jnp.linalg.norm(reference - theta) for s in (adaptive, euler)]
    assert 20 * adaptive.evaluations <= euler.evaluations
    assert errors[0] <= min(1e-6, errors[1])


def test_saves_choose_the_times():
    objective, theta = banana()
    flow = pf.flows.NegativeGradient()
    np.testing.assert_allclose(pf.integrate(flow, objective, theta, 0.1).times, [0, 0.1])
    np.testing.assert_allclose(pf.integrate(flow, objective, theta, 0.1, saves=2).times, [0, 0.05, 0.1])
    np.testing.assert_allclose(pf.integrate(flow, objective, theta, 0.1, saves=[0.02, 0.1]).times, [0.02, 0.1])


def test_no_time_leaves_the_start():
    objective, theta = banana()
    solution = pf.integrate(pf.flows.NegativeGradient(), objective, theta, 0.0)
    assert solution.status == "completed"
    np.testing.assert_array_equal(solution.thetas, [theta, theta])


def test_a_solution_that_runs_to_infinity_is_cut_and_called_diverged():
    objective, theta = banana()
    solution = pf.integrate(pf.flows.PositiveGradient(), objective, theta, 1.0, saves=10)
    assert solution.status == "diverged"
    assert "ran to infinity" in solution.message
    assert len(solution.times) == len(solution.thetas) < 11
    assert jnp.all(jnp.isfinite(solution.thetas))


def test_euler_that_overflows_is_cut_and_called_diverged():
    objective, theta = banana()
    solution = pf.integrate(
        pf.flows.NegativeGradient(), objective, theta, 1.0, solver="euler", step=0.05, saves=[0.0, 0.1, 1.0]
    )
    assert solution.status == "diverged"
    assert jnp.all(jnp.isfinite(solution.thetas))


def test_exponential_growth_is_followed_to_its_end():
    bowl = pf.functions.quadratic([[-1.0]])
    solution = pf.integrate(pf.flows.NegativeGradient(), bowl, [1.0], 30.0)
    assert solution.status == "completed"
    np.testing.assert_allclose(solution.thetas[-1], np.exp(30), rtol=1e-4)


def test_growth_beyond_the_range_of_numbers_is_called_diverged():
    bowl = pf.functions.quadratic([[-1.0]])
    solution = pf.integrate(pf.flows.NegativeGradient(), bowl, [1.0], 1000.0, max_steps=100_000)
    assert solution.status == "diverged"


def test_running_out_of_steps_is_a_status():
    objective, theta = banana()
    solution = pf.integrate(pf.flows.NegativeGradient(), objective, theta, 1.0, max_steps=3)
    assert solution.status == "max_steps"
    assert "max_steps=3" in solution.message
    np.testing.assert_array_equal(solution.thetas, [theta])


def test_a_field_that_jumps_is_called_stuck():
    objective = pf.Objective(lambda p: jnp.sum(jnp.abs(p)), jnp.array([0.5]))
    solution = pf.integrate(pf.flows.NegativeGradient(), objective, [0.5], 1.0, rtol=1e-9)
    assert solution.status in ("stuck", "max_steps")
    assert "the field may jump" in solution.message
    assert "branch" not in solution.message


def test_where_a_field_jumps_eulers_steps_begin_again_if_they_are_given():
    objective = pf.Objective(lambda p: jnp.sum(jnp.abs(p)), jnp.array([0.5]))
    solution = pf.integrate(pf.flows.NegativeGradient(), objective, [0.5], 1.0, rtol=1e-9, step=0.03)
    assert (solution.status, solution.solver) == ("completed", "euler")
    np.testing.assert_allclose(solution.thetas[-1], 0, atol=0.03)


def test_a_smooth_field_needs_no_steps_of_eulers():
    bowl = pf.functions.quadratic([[1.0]])
    assert pf.integrate(pf.flows.NegativeGradient(), bowl, [1.0], 1.0, step=0.03).solver == "tsit5"


def test_products_are_counted():
    bowl = pf.functions.quadratic([[1.0]])
    solution = pf.integrate(pf.flows.ThirdOrder(0.1), bowl, [1.0], 0.1)
    assert solution.products == 2 * solution.evaluations
    assert solution.cost == (1 + 2 * 2 + 4) * solution.evaluations


def test_an_interruption_keeps_what_was_reached():
    bowl = pf.functions.quadratic([[1.0]])
    shown = iter(range(3))

    def interrupt(*_):
        if next(shown, None) is None:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("principalflow.flows._integrate.progress_bar", lambda *_: contextlib.nullcontext(interrupt))
        solution = pf.integrate(pf.flows.NegativeGradient(), bowl, [1.0], 10.0, saves=100)
    assert solution.status == "interrupted"
    assert 1 < len(solution.thetas) < 10


def test_a_solve_that_stops_early_can_go_on_from_where_it_was():
    objective, theta = banana()
    flow = pf.flows.NegativeGradient()
    first = pf.integrate(flow, objective, theta, 0.01, max_steps=3)
    assert first.status == "max_steps"
    second = pf.integrate(flow, objective, first.theta, 0.01 - first.time)
    whole = pf.integrate(flow, objective, theta, 0.01)
    assert whole.time == 0.01
    assert jnp.array_equal(whole.theta, whole.thetas[-1])
    np.testing.assert_allclose(second.theta, whole.theta, rtol=1e-5)


def test_a_solution_shows_how_it_ended_and_no_arrays():
    objective, theta = banana()
    shown = repr(pf.integrate(pf.flows.NegativeGradient(), objective, theta, 0.01))
    assert "completed" in shown
    assert "rray" not in shown


@pytest.mark.parametrize("solver", ["tsit5", "dopri8"])
def test_a_state_may_be_any_tree_of_arrays(solver):
    class Oscillation(pf.flows.Flow):
        def start(self, objective, theta):
            return {"theta": theta, "velocity": jnp.zeros_like(theta)}

        def evaluate(self, objective, state):
            slope = {"theta": state["velocity"], "velocity": -objective.gradient(state["theta"])}
            return pf.flows.Field.exact(slope)

        def parameters(self, state):
            return state["theta"]

    bowl = pf.functions.quadratic([[1.0]])
    solution = pf.integrate(Oscillation(), bowl, [1.0], np.pi, rtol=1e-9, solver=solver)
    np.testing.assert_allclose(solution.thetas[-1], [-1.0], rtol=1e-7)


def test_a_jump_after_growth_is_stuck_and_not_diverged():
    # E = -x^2/2 up to 50 and rises beyond: the flow from 1 grows, and then sits on the kink.
    objective = pf.Objective(lambda p: jnp.sum(jnp.where(p < 50, -(p**2) / 2, 100 * p)), jnp.ones(1))
    solution = pf.integrate(pf.flows.NegativeGradient(), objective, [1.0], 10.0, rtol=1e-9)
    assert solution.status in ("stuck", "max_steps")


def test_a_jump_at_zero_is_stuck_and_not_diverged():
    # The slope jumps from 1/3 to 1 at zero, where the state is small beside its field.
    valley = pf.functions.cosine_valley()
    solution = pf.integrate(pf.flows.NegativeGradient(), valley, [2.0], 6.0, rtol=1e-8, atol=1e-12, saves=48)
    assert solution.status == "stuck"


def test_it_goes_to_the_end_even_where_the_last_save_is_earlier():
    objective, theta = banana()
    solution = pf.integrate(pf.flows.PositiveGradient(), objective, theta, 1.0, saves=[1e-5])
    assert solution.status == "diverged"
    np.testing.assert_allclose(solution.times, [1e-5])


def test_a_krylov_field_that_misses_the_tolerance_is_called_inexact():
    objective = regression(samples=20, sizes=(4, 16, 3))
    flow = pf.flows.Principal(h=0.5, method="krylov", max_products=5)
    solution = pf.integrate(flow, objective, objective.theta, 0.01, rtol=1e-6)
    assert solution.status == "inexact"
    assert "max_products" in solution.message


def test_another_rate_and_time_do_not_compile_again():
    traces = []

    def loss(params):
        traces.append(1)
        return jnp.sum(params**4)

    objective = pf.Objective(loss, jnp.ones(2))
    pf.integrate(pf.flows.IGR(0.1), objective, objective.theta, 0.1)
    before = len(traces)
    pf.integrate(pf.flows.IGR(0.2), objective, objective.theta + 1, 0.3, rtol=1e-5)
    assert len(traces) == before


def test_single_precision_is_warned_of():
    objective = pf.Objective(lambda p: jnp.sum(p**2), jnp.ones(1, jnp.float32))
    with pytest.warns(pf.PrecisionWarning, match="jax_enable_x64"):
        solution = pf.integrate(pf.flows.NegativeGradient(), objective, objective.theta, 0.1, rtol=1e-7)
    assert solution.thetas.dtype == jnp.float32
    np.testing.assert_allclose(solution.thetas[-1], np.exp(-0.2), rtol=1e-5)


@pytest.mark.filterwarnings("ignore::principalflow.PrecisionWarning")
def test_single_precision_solves_in_few_steps_what_it_can_resolve():
    banana = pf.Objective(lambda p: (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2, jnp.array([1.3, 1.5], jnp.float32))
    solution = pf.integrate(pf.flows.Principal(np.float64(0.0012)), banana, banana.theta, 0.0012, rtol=1e-9)
    assert solution.status == "completed"
    assert solution.steps < 50


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(flow="ngf"), "flow must be a flow"),
        (dict(time=-0.1), "time must be a finite number of at least 0, got -0.1"),
        (dict(time=np.inf), "time must be a finite number"),
        (dict(theta=[1.0, np.nan]), "theta must be finite"),
        (dict(theta=[1.0]), r"theta must be flat with shape \(2,\)"),
        (dict(rtol=0), "rtol must be a number above 0 and below 1"),
        (dict(rtol=1), "rtol must be a number above 0 and below 1, got 1"),
        (dict(atol=-1), "atol must be a finite number of at least 0"),
        (dict(solver="rk4"), "solver must be one of 'auto'"),
        (dict(solver="euler"), "step must be given with solver='euler'"),
        (dict(step=0.0), "step must be a finite number above 0"),
        (dict(solver="euler", step=0.0), "step must be a finite number above 0"),
        (dict(saves=0), "saves must be a whole number of at least 1"),
        (dict(saves=[0.0, 2.0]), "saves must be increasing times from 0 to time=1.0"),
        (dict(saves=[0.5, 0.1]), "saves must be increasing times"),
        (dict(saves=[np.nan]), "saves must be increasing times"),
        (dict(saves=["a"]), "saves must be times"),
        (dict(max_steps=0), "max_steps must be a whole number of at least 1"),
        (dict(max_steps=10**30), "max_steps must be a whole number of at most"),
        (dict(saves=10**30), "saves must be a whole number of at most"),
        (dict(saves=[10**400]), "saves must be times"),
        (dict(saves=1.5), "saves must be increasing times"),
        (dict(time=10**400), "time must be within the range of floating-point numbers"),
        (dict(solver="euler", step=5e-324), "step must be at least time / 1000000000, got 4.94066e-324 for time=1"),
        (dict(theta=np.ones(2, np.float16)), "theta must be in single or double precision, .*, got float16"),
        (dict(theta=jnp.ones(2, jnp.bfloat16)), "theta must be in single or double precision, .*, got bfloat16"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    defaults = {"flow": pf.flows.NegativeGradient(), "theta": [1.0, 1.0], "time": 1.0}
    with pytest.raises(ValueError, match=message):
        pf.integrate(objective=pf.functions.banana(), **(defaults | arguments))


@pytest.mark.parametrize("saves", [10**7, np.broadcast_to(1.0, 10**7 + 1)], ids=["how many", "times"])
def test_saves_beyond_memory_are_refused_beforehand(monkeypatch, saves):
    monkeypatch.setattr("principalflow._checks._available_memory", lambda: 2**28)
    with pytest.raises(ValueError, match=r"saves asks for 10000001 states of 2 parameters, which take 0.298 GiB"):
        pf.integrate(pf.flows.NegativeGradient(), pf.functions.banana(), [1.0, 1.0], 1.0, saves=saves)


def test_a_start_without_a_finite_field_is_refused():
    objective = pf.Objective(lambda p: jnp.sum(jnp.sqrt(p)), jnp.ones(1))
    with pytest.raises(ValueError, match="finite vector field"):
        pf.integrate(pf.flows.NegativeGradient(), objective, [0.0], 1.0)


class OfUnknownError(pf.flows.NegativeGradient):
    def evaluate(self, objective, state):
        return super().evaluate(objective, state)._replace(error=jnp.array(jnp.nan))


def test_a_field_whose_error_is_nan_is_called_inexact():
    bowl = pf.functions.quadratic([[1.0]])
    assert pf.integrate(OfUnknownError(), bowl, [1.0], 0.1).status == "inexact"


@pytest.mark.parametrize(
    "flow",
    [pf.flows.NegativeGradient(), pf.flows.BackwardError(0.1, 1), pf.flows.Principal(0.1), pf.flows.FlippedDirection()],
)
def test_a_field_where_theta_is_not_finite_is_refused(flow):
    with pytest.raises(ValueError, match="theta must be finite, but 1 of its 2 entries are not"):
        flow.field(pf.functions.banana(), [jnp.nan, 1.0])


def test_a_trial_beyond_the_range_of_numbers_does_not_make_the_solution_inexact():
    objective = pf.Objective(lambda t: jnp.sum(-5 * t**2 + 0.01 * jnp.exp(t**2)), jnp.array([0.1]))
    solution = pf.integrate(pf.flows.NegativeGradient(), objective, objective.theta, time=20.0)
    assert solution.status is pf.Status.COMPLETED


def test_a_parameter_that_stays_zero_needs_no_absolute_tolerance():
    objective = pf.Objective(lambda t: t[0] ** 2, jnp.array([1.0, 0.0]))
    solution = pf.integrate(pf.flows.NegativeGradient(), objective, objective.theta, time=1.0, atol=0.0)
    np.testing.assert_allclose(solution.thetas[-1], [np.exp(-2.0), 0.0], rtol=1e-5)


def test_the_start_costs_no_evaluation():
    bowl, flow = pf.functions.quadratic([[1.0]]), pf.flows.NegativeGradient()
    with_start, without = (
        pf.integrate(flow, bowl, [1.0], time=1.0, solver="dopri8", saves=saves) for saves in (None, [1.0])
    )
    assert with_start.evaluations == without.evaluations


def test_states_between_the_steps_of_dopri8_are_as_exact_as_its_steps():
    bowl = pf.functions.quadratic([[2.0, 0.5], [0.5, 1.0]])
    solution = pf.integrate(pf.flows.NegativeGradient(), bowl, [1.0, -1.0], time=3.0, rtol=1e-11, atol=1e-13, saves=200)
    exact = pf.flows.solve_quadratic(
        pf.flows.NegativeGradient(), [[2.0, 0.5], [0.5, 1.0]], [0, 0], [1.0, -1.0], solution.times
    )
    assert solution.steps < 100
    np.testing.assert_allclose(solution.thetas, exact, atol=1e-10)


def test_a_field_that_is_finite_but_too_large_diverges():
    objective = pf.Objective(lambda t: jnp.sum(1e100 * t), jnp.array([1.0]))
    solution = pf.integrate(pf.flows.NegativeGradient(), objective, objective.theta, time=1.0)
    assert solution.status is pf.Status.DIVERGED
    assert "too large" in solution.message


@pytest.mark.parametrize("solver", ["tsit5", "dopri8"])
def test_a_steep_start_is_not_taken_for_a_run_to_infinity(solver):
    quartic = pf.Objective(lambda theta: jnp.sum(theta**4), jnp.array([1e6]))  # falls by half within 1e-12
    solution = pf.integrate(pf.flows.NegativeGradient(), quartic, quartic.theta, time=1.0, solver=solver)
    assert solution.status is pf.Status.COMPLETED
    np.testing.assert_allclose(solution.thetas[-1], 1 / np.sqrt(8 + 1e-12), rtol=1e-5)
