"""A PyTorch model as an objective: the numbers of its twin in JAX, in all of the library."""

import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import network, square_loss

import principalflow as pf

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0 runs these tests")

import torch
from pytorch.nets import (
    LARGE,
    SMALL,
    Restless,
    mean_square,
    numbers,
    order_in_torch,
    sentences,
    tanh_network,
    tensors,
    transformer,
)
from torch import nn

from principalflow.torch import objective

ORDER = order_in_torch(SMALL)
U, V = np.random.default_rng(1).standard_normal((2, 50))
BLOCK = np.random.default_rng(2).standard_normal((50, 3))


def twins(sizes=SMALL, **options):
    """An objective of PyTorch, that of JAX, and where the parameters of the one are in the other."""
    ours = objective(tanh_network(sizes), mean_square, tensors(sizes), **options)
    return ours, pf.Objective(square_loss, network(sizes), numbers(sizes)), order_in_torch(sizes)


OURS, JAXS, _ = twins()


def assert_close(found, expected, rtol=1e-12):
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * float(np.max(np.abs(expected))))


def test_it_is_an_objective_of_the_models_parameters():
    assert isinstance(OURS, pf.Objective)
    assert OURS.theta.dtype == jnp.float64
    np.testing.assert_array_equal(OURS.theta, JAXS.theta[ORDER])
    assert list(OURS.unravel(OURS.theta)) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert repr(OURS) == "<Objective: 50 parameters of float64>"
    assert OURS.how == "exactly, by two backward passes"


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
@pytest.mark.parametrize("imaginary", [0.0, 0.1])
def test_derivatives_are_those_of_jax(transform, imaginary):
    shift = 1 + 1j * imaginary if imaginary else 1
    ours, theirs = OURS.theta * shift, JAXS.theta * shift
    assert_close(transform(OURS.value)(ours), JAXS.value(theirs))
    assert_close(transform(OURS.gradient)(ours), JAXS.gradient(theirs)[ORDER])
    assert_close(transform(OURS.hvp)(ours, U[ORDER]), JAXS.hvp(theirs, U)[ORDER])
    assert_close(transform(OURS.hvp)(ours, BLOCK[ORDER]), JAXS.hvp(theirs, BLOCK)[ORDER])
    assert_close(transform(OURS.hvp)(ours, 1j * U[ORDER]), JAXS.hvp(theirs, 1j * U)[ORDER])
    assert_close(transform(OURS.third)(ours, U[ORDER], V[ORDER]), JAXS.third(theirs, U, V)[ORDER])
    assert_close(transform(OURS.third)(ours, BLOCK[ORDER], BLOCK[ORDER]), JAXS.third(theirs, BLOCK, BLOCK)[ORDER])
    assert_close(transform(OURS.hessian)(ours), JAXS.hessian(theirs)[ORDER][:, ORDER])
    product = transform(lambda theta, v: OURS.linearize(theta)[1](v))
    assert_close(product(ours, U[ORDER]), JAXS.hvp(theirs, U)[ORDER])


def test_jax_differentiates_it_in_both_modes_and_thrice():
    f, theta, u, v = OURS.function(), OURS.theta, U[ORDER], V[ORDER]
    slope = jax.grad(f)
    product = lambda theta: jax.jvp(slope, (theta,), (u,))[1]  # noqa: E731
    assert_close(jax.jit(slope)(theta), OURS.gradient(theta))
    assert_close(jax.jvp(f, (theta,), (u,))[1], OURS.gradient(theta) @ u)
    assert_close(jax.jit(product)(theta), OURS.hvp(theta, u))
    assert_close(jax.grad(lambda theta: slope(theta) @ u)(theta), OURS.hvp(theta, u))
    assert_close(jax.jit(jax.hessian(f))(theta), OURS.hessian(theta))
    assert_close(jax.jvp(product, (theta,), (v,))[1], OURS.third(theta, u, v))
    assert_close(jax.grad(lambda theta: product(theta) @ v)(theta), OURS.third(theta, u, v))
    assert_close(jax.vmap(OURS.value)(jnp.stack([theta, 2 * theta])), [OURS.value(theta), OURS.value(2 * theta)])


def test_a_fourth_derivative_is_refused():
    third = lambda theta: OURS.third(theta, U, U)  # noqa: E731
    with pytest.raises(NotImplementedError, match="no further derivatives of a PyTorch model here than the third"):
        jax.jvp(third, (OURS.theta,), (V,))


def test_descent_is_that_of_jax():
    ours, theirs = (pf.descend(o, o.theta, 0.05, 30, momentum=0.5) for o in (OURS, JAXS))
    assert_close(ours.thetas, theirs.thetas[:, ORDER])
    assert_close(ours.losses, theirs.losses)


FLOWS = [
    pf.flows.NegativeGradient(),
    pf.flows.IGR(0.05),
    pf.flows.ThirdOrder(0.05),
    pf.flows.BackwardError(0.05, order=3),
    pf.flows.Principal(0.05),
]


@pytest.mark.slow
def test_compare_is_that_of_jax():
    ours, theirs = (pf.compare(o, o.theta, 0.05, 2, FLOWS) for o in (OURS, JAXS))
    np.testing.assert_allclose(ours["error"], theirs["error"], rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(ours["loss"], theirs["loss"], rtol=1e-12)
    assert set(ours["status"]) == {"completed"}


def test_integration_is_that_of_jax():
    ours, theirs = (pf.integrate(pf.flows.IGR(0.05), o, o.theta, 0.3) for o in (OURS, JAXS))
    assert_close(ours.theta, theirs.theta[ORDER], rtol=1e-10)


def test_the_principal_flow_leaves_the_real_numbers():
    ours, theirs = (pf.integrate(pf.flows.Principal(0.4), o, o.theta, 0.02, rtol=1e-3) for o in (OURS, JAXS))
    assert np.max(np.abs(ours.theta.imag)) > 1e-3
    assert_close(ours.theta, theirs.theta[ORDER], rtol=1e-9)


def test_eigenpairs_are_those_of_jax():
    ours, theirs, order = twins(LARGE)
    found, expected = (pf.spectrum.top_eigenpairs(o, o.theta, 3, tol=1e-7) for o in (ours, theirs))
    assert found.method == "block"
    assert found.converged
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-6)
    overlaps = np.abs(np.sum(np.asarray(found.vectors) * np.asarray(expected.vectors)[order], axis=0))
    np.testing.assert_allclose(overlaps, 1, rtol=1e-6)


def test_spectra_stability_and_drift_are_those_of_jax():
    theta = OURS.theta, JAXS.theta
    ours, theirs = (pf.spectrum.density(o, o.theta) for o in (OURS, JAXS))
    assert_close(ours.values, theirs.values, rtol=1e-9)
    ours, theirs = (pf.spectrum.trace(o, o.theta).value for o in (OURS, JAXS))
    assert_close(ours, theirs)
    ours = pf.spectrum.apply(OURS, theta[0], jnp.exp, U[ORDER]).vector
    assert_close(ours, pf.spectrum.apply(JAXS, theta[1], jnp.exp, U).vector[ORDER], rtol=1e-9)
    ours, theirs = (pf.stability.analyse(o, o.theta, 0.05, k=2) for o in (OURS, JAXS))
    assert_close(ours.coefficients, theirs.coefficients)
    assert_close(ours.drift, theirs.drift)
    assert_close(*(pf.drift.per_iteration(o, o.theta, 0.05) for o in (OURS, JAXS)), rtol=1e-9)


def test_records_and_monitors_are_those_of_jax():
    ours, theirs = (pf.descend(o, o.theta, 0.05, 4, record=pf.Record(every=2, k=2)).records for o in (OURS, JAXS))
    np.testing.assert_allclose(ours["eigenvalue_0"], theirs["eigenvalue_0"], rtol=1e-10)
    rows = [pf.Monitor(o, k=2).observe(0, o.theta, 0.05) for o in (OURS, JAXS)]
    np.testing.assert_allclose(rows[0]["eigenvalue_1"], rows[1]["eigenvalue_1"], rtol=1e-10)


def test_landscapes_have_the_filters_of_pytorch():
    line = pf.landscape.random(OURS, dimensions=1)
    ours = OURS.unravel(line.directions[:, 0])["0.weight"]
    norms = jnp.linalg.norm(OURS.unravel(OURS.theta)["0.weight"], axis=1)
    assert_close(jnp.linalg.norm(ours, axis=1), norms)
    found = pf.landscape.evaluate(OURS, line, reach=1.0, points=3).losses
    assert_close(found[1], OURS.value(OURS.theta))


def test_several_batches_are_one():
    x, y = tensors(SMALL)
    parts = objective(tanh_network(SMALL), mean_square, [(x[:4], y[:4]), (x[4:], y[4:])])
    theta = OURS.theta
    assert_close(parts.value(theta), OURS.value(theta))
    assert_close(parts.gradient(theta), OURS.gradient(theta))
    assert_close(jax.jit(parts.hvp)(theta, BLOCK), OURS.hvp(theta, BLOCK))
    assert_close(OURS.over((x[:4], y[:4])).value(theta), mean_square(tanh_network(SMALL)(x[:4]), y[:4]).item())


@pytest.mark.slow
def test_a_model_of_hugging_faces_kind():
    ours = objective(transformer(), data=sentences())
    path = pf.descend(ours, ours.theta, 0.1, 3)
    assert path.losses[-1] < path.losses[0]
    eig = pf.spectrum.top_eigenpairs(ours, ours.theta, 1, select=lambda name: name.startswith("attention"))
    hessian = objective(transformer(), data=sentences(), select=lambda name: name.startswith("attention"))
    np.testing.assert_allclose(eig.values, np.linalg.eigvalsh(hessian.hessian(hessian.theta))[-1:], rtol=1e-8)


def test_products_by_differences_are_said():
    ours, theirs, _ = twins(products="differences")
    assert ours.how.startswith("by differences of the gradient, with an error of about")
    assert_close(ours.hvp(ours.theta, U[ORDER]), theirs.hvp(theirs.theta, U)[ORDER], rtol=1e-7)
    assert_close(ours.third(ours.theta, U[ORDER], V[ORDER]), theirs.third(theirs.theta, U, V)[ORDER], rtol=1e-4)


def test_dropout_is_the_same_everywhere_and_later():
    model = Restless()
    ours = objective(model, mean_square, tensors(SMALL))
    values = [ours.value(ours.theta), ours.value(ours.theta * 2)]
    torch.rand(3)
    assert [ours.value(ours.theta), jax.jit(ours.value)(ours.theta * 2)] == values
    assert model.passes == 0


def test_theta_may_be_the_model_or_its_tensors():
    model = tanh_network(SMALL)
    ours = objective(model, mean_square, tensors(SMALL))
    before = ours.value(ours.theta)
    model[0].weight.data *= 2
    now = ours.flat("theta", model)
    assert not np.array_equal(now, ours.theta)
    for theta in (model, model.state_dict(), dict(model.named_parameters()), torch.tensor(np.asarray(now))):
        np.testing.assert_array_equal(ours.flat("theta", theta), now)
    assert ours.value(ours.theta) == before
    assert ours.value(model) == ours.value(now) != before
    np.testing.assert_array_equal(ours.flat("theta", ours.theta.astype(jnp.float32)).dtype, jnp.float64)


def test_theta_can_be_written_into_the_model():
    model = tanh_network(SMALL).bfloat16()
    with pytest.warns(pf.PrecisionWarning, match="model is float32"):
        ours = objective(model, mean_square, tensors(SMALL, torch.bfloat16))
    ours.write(2 * ours.theta)
    np.testing.assert_array_equal(ours.flat("theta", model), 2 * ours.theta)
    assert model[0].weight.dtype == torch.bfloat16
    with pytest.raises(ValueError, match="theta must be real"):
        ours.write(1j * ours.theta)


def test_parameters_can_be_selected():
    ours = objective(tanh_network(SMALL), mean_square, tensors(SMALL), select=lambda name: "bias" in name)
    places = OURS.entries(lambda name: "bias" in name)
    assert list(ours.unravel(ours.theta)) == ["0.bias", "2.bias"]
    np.testing.assert_array_equal(ours.theta, OURS.theta[places])
    assert_close(ours.hessian(ours.theta), OURS.hessian(OURS.theta)[places][:, places])


@pytest.mark.parametrize("chosen", ["0.weight", "2.bias"])
def test_eigenvalues_of_a_layer(chosen):
    places = OURS.entries(lambda name: name == chosen)
    block = OURS.hessian(OURS.theta)[places][:, places]
    eig = pf.spectrum.top_eigenpairs(OURS, OURS.theta, 1, select=lambda name: name == chosen)
    np.testing.assert_allclose(eig.values, np.linalg.eigvalsh(block)[-1:], rtol=1e-10)


def test_single_precision_is_kept_with_a_warning():
    with pytest.warns(pf.PrecisionWarning, match="model is float32 though JAX's 64-bit switch is on"):
        ours = objective(tanh_network(SMALL, torch.float32), mean_square, tensors(SMALL, torch.float32))
    assert ours.gradient(ours.theta).dtype == jnp.float32
    np.testing.assert_allclose(ours.gradient(OURS.theta), OURS.gradient(OURS.theta), rtol=1e-4, atol=1e-5)


def test_programs_may_call_from_several_threads_and_at_once():
    gradient, points = jax.jit(OURS.gradient), [OURS.theta * (1 + i / 10) for i in range(12)]
    expected, found = [OURS.gradient(theta) for theta in points], {}

    def work(i):
        found[i] = np.asarray(gradient(points[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(points))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, slope in enumerate(expected):
        np.testing.assert_array_equal(found[i], slope)
    both = jax.jit(lambda theta: (OURS.hvp(theta, U), OURS.hvp(2 * theta, U), OURS.value(3 * theta)))(OURS.theta)
    np.testing.assert_array_equal(both[1], OURS.hvp(2 * OURS.theta, U))


def test_what_is_not_finite_is_a_result():
    path = pf.descend(OURS, OURS.theta, 1e30, 5)
    assert path.status == "diverged"
    assert np.isnan(OURS.value(OURS.theta * np.nan))


@pytest.mark.parametrize(
    ("model", "loss", "why"),
    [
        (nn.Sequential(nn.Linear(3, 2), nn.ReLU()), mean_square, "PyTorch says: "),
        (nn.Linear(3, 2), nn.functional.mse_loss, "PyTorch says: .*not implemented for 'Complex"),
        (nn.Linear(3, 2), lambda a, b: ((a - b).abs() ** 2).mean(), "loss must return a complex number at complex"),
        (nn.Linear(3, 2), lambda a, b: ((a - b) * (a - b).conj()).mean(), "violates the Cauchy-Riemann equations"),
    ],
)
def test_complex_flows_are_refused_where_the_model_isnt_holomorphic(model, loss, why):
    ours = objective(model.double(), loss, tensors(SMALL))
    with pytest.raises(
        ValueError, match=f"{why}.*|A complex flow, such as Principal, needs a loss that is holomorphic"
    ):
        pf.integrate(pf.flows.Principal(0.1), ours, ours.theta, 0.1)
    with pytest.raises(ValueError, match=why):
        pf.integrate(pf.flows.Principal(0.1), ours, ours.theta, 0.1)
    assert pf.integrate(pf.flows.IGR(0.1), ours, ours.theta, 0.1).status == "completed"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: objective(3, mean_square, tensors(SMALL)), "model must be an nn.Module"),
        (lambda: objective(tanh_network(SMALL), mean_square, tensors((3, 8, 4))), "size of tensor"),
        (lambda: objective(tanh_network(SMALL), lambda a, b: a, tensors(SMALL)), "loss must return a tensor of one"),
        (lambda: OURS.value(np.zeros(3)), r"theta must be flat with shape \(50,\)"),
        (
            lambda: OURS.value(nn.Linear(3, 2)),
            "theta must have the parameters of the objective's model, got no 0.weight",
        ),
        (lambda: OURS.entries(lambda name: False), "select must be true for at least one name, .* 0.weight, 0.bias"),
        (lambda: OURS.batch(np.array([0])), "index needs data that JAX knows"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        call()


def test_parameters_that_are_not_finite_are_refused():
    model = tanh_network(SMALL)
    model[0].bias.data[0] = torch.nan
    with pytest.raises(ValueError, match="model must be finite, but 1 of its 50 entries are not"):
        objective(model, mean_square, tensors(SMALL))


PROGRAM = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import jax, torch, principalflow as pf
from principalflow.torch import objective
model = torch.nn.Sequential(torch.nn.Linear(40, 2000), torch.nn.Tanh(), torch.nn.Linear(2000, 2))
data = torch.ones(8, 40), torch.zeros(8, 2)
ours = objective(model, torch.nn.functional.mse_loss, data)
path = pf.descend(ours, ours.theta, 1e-3, 40, keep="last")
gradient = jax.jit(ours.gradient)
in_flight = jax.block_until_ready([gradient(ours.theta * (1 + i / 10)) for i in range(20)])
pf.spectrum.trace(ours, ours.theta, products=4)
print(path.status, ours.theta.dtype)
try:
    objective(model.double(), torch.nn.functional.mse_loss, tuple(part.double() for part in data))
except ValueError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores can't be chosen here")
def test_one_core_is_enough_and_double_precision_needs_the_switch():
    single = {**os.environ, "JAX_ENABLE_X64": "0"}
    command, options = [sys.executable, "-c", PROGRAM], dict(capture_output=True, text=True, check=True, timeout=300)
    run = subprocess.run(command, env=single, **options)
    first, second = run.stdout.splitlines()
    assert first == "completed float32"
    assert second.startswith("model is float64, which JAX can only hold after jax.config.update")
