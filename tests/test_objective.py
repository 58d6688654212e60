import warnings
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import OwnError, regression, square_loss, without_second_derivative

import principalflow as pf

RANDOM = np.random.default_rng(0)


def flat_loss(objective, data):
    return lambda theta: square_loss(objective.unravel(theta), data)


@pytest.fixture(scope="module")
def problem():
    objective = regression()
    return objective, flat_loss(objective, objective._data)


def test_derivatives_equal_the_dense_ones_of_jax(problem):
    objective, loss = problem
    theta = objective.theta
    u, v = RANDOM.standard_normal((2, theta.size))
    hessian = jax.jit(jax.hessian(loss))(theta)
    third = jnp.einsum("ijk,j,k->i", jax.jit(jax.jacfwd(jax.hessian(loss)))(theta), u, v)
    np.testing.assert_allclose(objective.value(theta), loss(theta), rtol=1e-14)
    np.testing.assert_allclose(objective.gradient(theta), jax.grad(loss)(theta), atol=1e-14)
    np.testing.assert_allclose(objective.hessian(theta), hessian, atol=1e-13)
    np.testing.assert_allclose(objective.hvp(theta, v), hessian @ v, atol=1e-13)
    np.testing.assert_allclose(objective.third(theta, u, v), third, atol=1e-12)


@pytest.mark.parametrize("chunk", [1, 3, 8])
def test_every_quantity_is_the_mean_over_samples_whatever_the_chunk(chunk):
    whole, chunked = regression(samples=7), regression(samples=7, chunk=chunk)
    theta = whole.theta
    v = jnp.sin(jnp.arange(1.0, theta.size + 1))
    for quantity in (
        lambda o: o.value(theta),
        lambda o: o.gradient(theta),
        lambda o: o.hvp(theta, v),
        lambda o: o.third(theta, v, v),
        lambda o: o.linearize(theta)[1](v),
    ):
        np.testing.assert_allclose(quantity(chunked), quantity(whole), atol=1e-13)


def test_chunked_dense_hessian_equals_the_whole_one():
    whole, chunked = regression(11), regression(11, chunk=4)
    np.testing.assert_allclose(chunked.hessian(whole.theta), whole.hessian(whole.theta), atol=1e-13)


def test_a_block_of_vectors_gives_a_block_of_products(problem):
    objective, _ = problem
    theta = objective.theta
    block = jnp.asarray(RANDOM.standard_normal((theta.size, 3)))
    columns = [objective.hvp(theta, block[:, i]) for i in range(3)]
    np.testing.assert_allclose(objective.hvp(theta, block), jnp.stack(columns, axis=1), atol=1e-13)
    columns = [objective.third(theta, block[:, i], block[:, i]) for i in range(3)]
    np.testing.assert_allclose(objective.third(theta, block, block), jnp.stack(columns, axis=1), atol=1e-12)


def test_complex_derivatives_are_the_holomorphic_ones(problem):
    # Differences of neighbours around a small circle: exact up to the circle's fourth power.
    objective, _ = problem
    theta = objective.theta + 0.05j * jnp.cos(jnp.arange(objective.theta.size))
    d = jnp.sin(jnp.arange(1.0, theta.size + 1)) + 0.3j
    r = 1e-3

    def directional(function):
        return sum(function(theta + r * w * d) / w for w in (1, 1j, -1, -1j)) / (4 * r)

    np.testing.assert_allclose(objective.gradient(theta) @ d, directional(objective.value), rtol=1e-9)
    np.testing.assert_allclose(objective.hvp(theta, d), directional(objective.gradient), atol=1e-8)
    along = directional(lambda t: objective.hvp(t, d))
    np.testing.assert_allclose(objective.third(theta, d, d), along, atol=1e-7)


def test_the_complex_hessian_is_symmetric_and_not_hermitian(problem):
    objective, _ = problem
    hessian = objective.hessian(objective.theta + 0.2j)
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-13)
    assert jnp.linalg.norm(hessian - hessian.conj().T) > 0.1


def test_complex_vectors_at_real_theta_are_multiplied_part_by_part(problem):
    objective, _ = problem
    theta = objective.theta
    u, v = (jnp.asarray(x) for x in RANDOM.standard_normal((2, theta.size)))
    expected = objective.hvp(theta, u) + 1j * objective.hvp(theta, v)
    np.testing.assert_allclose(objective.hvp(theta, u + 1j * v), expected, atol=1e-13)


def test_any_pytree_of_parameters_is_taken_and_given_back():
    class Model(eqx.Module):
        weight: jax.Array
        activation: callable
        calls: jax.Array

    model = Model(jnp.arange(3.0), jnp.tanh, jnp.array(7))
    objective = pf.Objective(lambda m: jnp.sum(m.activation(m.weight) ** 2) * m.calls, model)
    assert objective.theta.shape == (3,)
    assert objective.unravel(objective.theta).activation is jnp.tanh
    slope = 7 * 2 * jnp.tanh(model.weight) * (1 - jnp.tanh(model.weight) ** 2)
    np.testing.assert_allclose(objective.gradient(objective.theta), slope, rtol=1e-14)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64, jnp.complex64, jnp.complex128])
def test_results_keep_the_dtype_of_theta(dtype):
    objective = pf.Objective(lambda p: jnp.sum(p**3), jnp.ones(3, dtype), chunk=2)
    theta = objective.theta
    for result in (
        objective.value(theta),
        objective.gradient(theta),
        objective.hvp(theta, theta),
        objective.hessian(theta),
        objective.third(theta, theta, theta),
    ):
        assert result.dtype == dtype


def test_a_second_call_does_not_compile_again():
    traces = []

    def loss(params, batch):
        traces.append(1)
        return jnp.mean(params * batch)

    objective = pf.Objective(loss, jnp.ones(2), jnp.ones((5, 2)), chunk=2)
    for call in (objective.value, objective.gradient, lambda t: objective.hvp(t, t), objective.hessian):
        call(objective.theta)
        before = len(traces)
        call(objective.theta + 1)
        assert len(traces) == before


def test_first_keeps_the_first_samples_only():
    objective = regression(9)
    inputs, targets = objective._data
    expected = square_loss(objective.unravel(objective.theta), (inputs[:4], targets[:4]))
    np.testing.assert_allclose(objective.first(4).value(objective.theta), expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(params={"n": 3}), "params must hold at least one floating-point number"),
        (dict(params=jnp.array([1.0, jnp.nan])), "params must be finite, but 1 of its 2"),
        (dict(loss="mse"), "loss must be a function"),
        (dict(loss=lambda p: p), "loss must return one number, such as jnp.mean of the samples' losses, got shape"),
        (dict(loss=lambda p: 1.0), "loss must return a scalar"),
        (
            dict(data=(jnp.ones((3, 1)), jnp.ones((4, 1)))),
            r"data must have one length along all first axes, got \[3, 4\]",
        ),
        (dict(data=jnp.ones((0, 1))), "data must be arrays with at least one sample"),
        (dict(data=()), "data must be arrays with at least one sample"),
        (dict(data=jnp.array(1.0)), "data must be arrays with at least one sample"),
        (dict(data="abc"), "data must be an array of numbers, got a str"),
        (dict(data=(jnp.ones(3), np.array(["a", "b", "c"]))), r"data\[1\] must be an array of numbers, got a ndarray"),
        (dict(data=np.array([1.0, None, 2.0])), "data must be an array of numbers, got a ndarray of dtype object"),
        (dict(data=np.array([2**64, 1], object)), "data must be an array of numbers"),
        (dict(params=jnp.ones(2, jnp.float8_e4m3fn)), "params must be of float16 or wider, got dtype float8_e4m3fn"),
        (dict(params=[1.0, np.array(["a"])]), "params must hold arrays of numbers, got one of dtype <U1"),
        (dict(params=[1.0, np.array([1.0, None])]), "params must hold arrays of numbers, got one of dtype object"),
        (dict(holomorphic="yes"), "holomorphic must be True or False, got 'yes'"),
        (dict(loss=lambda p: jnp.sum(p) > 0), "loss must return a real floating-point number .*, got bool"),
        (dict(loss=lambda p: jnp.sum(p).astype(int)), "loss must return a real floating-point number .*, got int64"),
        (dict(loss=lambda p: jnp.sum(p) + 0j), "loss must return a real floating-point number .*, got complex128"),
        (dict(loss=lambda p: (jnp.sum(p), p)), "loss must return a scalar array"),
        (dict(loss=lambda p: None), "loss must return a scalar array, got None"),
        (dict(loss=lambda: jnp.ones(())), r"loss must be a function of params, got one that takes \(\)"),
        (dict(loss=lambda p: p[0], data=jnp.ones(3)), "loss must be a function of params and batch"),
        (dict(loss=lambda p: p if p[0] > 0 else -p), "loss can't be evaluated at these params. JAX says"),
        (dict(loss=lambda p: jnp.ones(2) @ jnp.ones(3)), "loss can't be evaluated at these params. JAX says"),
        (dict(data=jnp.ones(3), chunk=0), "chunk must be a whole number of at least 1, got 0"),
        (dict(data=jnp.ones(3), chunk=1.5), "chunk must be a whole number of at least 1, got 1.5"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    arguments = {"loss": lambda p, batch=None: jnp.sum(p**2), "params": jnp.ones(2)} | arguments
    with pytest.raises(ValueError, match=message):
        pf.Objective(**arguments)


@pytest.mark.parametrize(
    ("theta", "message"),
    [
        (jnp.ones(3), r"theta must be flat with shape \(2,\), got shape \(3,\)"),
        (jnp.ones((2, 1)), r"got shape \(2, 1\)"),
        ("start", "theta must be an array of numbers"),
        (np.array([True, False]), "theta must hold real or complex numbers, got dtype bool"),
    ],
)
def test_a_bad_theta_is_named(theta, message):
    with pytest.raises(ValueError, match=message):
        pf.functions.banana().gradient(theta)


def test_a_bad_vector_is_named():
    banana = pf.functions.banana()
    with pytest.raises(ValueError, match=r"v must have shape \(2,\) or \(2, k\), got \(3,\)"):
        banana.hvp(banana.theta, jnp.ones(3))
    with pytest.raises(ValueError, match="u and v must be real where theta is real"):
        banana.third(banana.theta, jnp.ones(2) + 1j, jnp.ones(2) + 1j)
    with pytest.raises(ValueError, match="u and v must have the same shape"):
        banana.third(banana.theta, jnp.ones(2), jnp.ones((2, 2)))


def test_a_loss_that_is_real_at_complex_theta_is_refused_a_derivative():
    objective = pf.Objective(lambda p: jnp.sum(jnp.abs(p) ** 2), jnp.ones(2))
    with pytest.raises(ValueError, match="returns a real number at complex parameters"):
        objective.gradient(objective.theta + 1j)


def test_a_loss_of_the_whole_batch_is_traced_with_all_of_it():
    objective = pf.Objective(lambda p, batch: jnp.sum(batch.reshape(3, 2) @ p), jnp.ones(2), jnp.arange(6.0))
    np.testing.assert_allclose(objective.value(objective.theta), 15)


def test_an_error_of_the_loss_itself_comes_through():
    def loss(params):
        raise OwnError("of the user")

    with pytest.raises(OwnError, match="of the user"):
        pf.Objective(loss, jnp.ones(2))


@jax.custom_jvp
def with_faulty_forward_rule(params):
    return jnp.sum(params**2)


@with_faulty_forward_rule.defjvp
def _(primals, tangents):
    raise ValueError("my own jvp rule")


def faulty_backward(residual, cotangent):
    raise ValueError("my own vjp rule")


with_faulty_backward_rule = jax.custom_vjp(lambda params: jnp.sum(params**2))
with_faulty_backward_rule.defvjp(lambda p: (jnp.sum(p**2), p), faulty_backward)


@pytest.mark.parametrize("filtering", ["auto", "off", "remove_frames", "tracebackhide"])
@pytest.mark.parametrize("loss", [with_faulty_forward_rule, with_faulty_backward_rule])
@pytest.mark.parametrize(
    "derivative", [lambda o: o.gradient(o.theta), lambda o: o.hvp(o.theta, o.theta), lambda o: o.linearize(o.theta)]
)
def test_an_error_of_a_derivative_rule_comes_through(traceback_filtering, filtering, loss, derivative):
    traceback_filtering(filtering)
    with pytest.raises(ValueError, match=r"^my own (jvp|vjp) rule"):
        derivative(pf.Objective(loss, jnp.ones(2)))


@pytest.fixture
def traceback_filtering():
    """Sets which frames JAX takes out of tracebacks."""
    before = jax.config.jax_traceback_filtering  # pyright: ignore[reportAttributeAccessIssue]
    yield lambda mode: jax.config.update("jax_traceback_filtering", mode)
    jax.config.update("jax_traceback_filtering", before)


@pytest.mark.parametrize(
    "derivative",
    [
        lambda o: o.hvp(o.theta, o.theta),
        lambda o: o.hessian(o.theta),
        lambda o: o.linearize(o.theta)[1](o.theta),
        lambda o: o.third(o.theta, o.theta, o.theta),
        lambda o: pf.flows.ThirdOrder(0.1).field(o, o.theta),
        lambda o: pf.flows.FlippedDirection().field(o, o.theta),
        lambda o: pf.spectrum.top_eigenpairs(o, o.theta, 1),
        lambda o: pf.spectrum.apply(o, o.theta, jnp.exp, o.theta),
    ],
)
@pytest.mark.parametrize("size", [2, 100])  # dense, and by products
def test_a_loss_without_second_derivatives_is_named_where_they_are_needed(derivative, size):
    objective = pf.Objective(lambda p: without_second_derivative(p) ** 2, jnp.ones(size))
    np.testing.assert_allclose(objective.gradient(objective.theta), np.full(size, 4.0 * size))
    with pytest.raises(ValueError, match=r"loss must have (Hessian products|third derivatives), .* has none. JAX says"):
        derivative(objective)


@pytest.mark.parametrize("filtering", ["auto", "off", "remove_frames", "tracebackhide"])
def test_a_loss_without_a_gradient_is_named(traceback_filtering, filtering):
    traceback_filtering(filtering)

    def loss(params):
        return jax.lax.while_loop(lambda x: x < 3, lambda x: 2 * x, 1 + jnp.sum(params**2))

    objective = pf.Objective(loss, jnp.ones(2))
    with pytest.raises(ValueError, match=r"loss must have a gradient, and this one has none. JAX says: Reverse-mode"):
        objective.gradient(objective.theta)


def test_numpy_arrays_of_bfloat16_are_parameters_too():
    params = {"a": np.ones(2, jnp.bfloat16), "b": jnp.ones(1, jnp.bfloat16)}
    assert pf.Objective(lambda p: jnp.sum(p["a"]) + p["b"][0], params).theta.shape == (3,)


@pytest.fixture
def samples():
    return pf.Objective(square_loss, *_regression_parts(), chunk=2)


def _regression_parts():
    objective = regression(5)
    return objective.unravel(objective.theta), objective._data


INPUTS, TARGETS = _regression_parts()[1]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((INPUTS, TARGETS[:4]), r"data must have one length along all first axes, got \[5, 4\]"),
        ((INPUTS[:1], TARGETS), r"data must have one length along all first axes, got \[1, 5\]"),
        ((INPUTS[:0], TARGETS[:0]), "data must be arrays with at least one sample"),
        ((INPUTS, TARGETS, TARGETS), "data must have the structure of the objective's"),
        ([INPUTS, TARGETS], "data must have the structure of the objective's"),
        ((INPUTS, TARGETS.astype(int)), "data must hold numbers of the objective's kind, float64, got int64"),
        ((INPUTS, np.asarray(TARGETS).astype(str)), r"data\[1\] must be an array of numbers"),
        (None, "data must be given, as the loss takes some"),
    ],
)
def test_other_samples_are_checked_as_the_first_ones_are(samples, data, message):
    with pytest.raises(ValueError, match=message):
        samples.over(data)


def test_an_objective_without_data_takes_no_samples():
    banana = pf.functions.banana()
    assert banana.over(None).value([1.0, 1.0]) == 0
    with pytest.raises(ValueError, match="data must be None, as the loss takes none"):
        banana.over(jnp.ones(3))
    with pytest.raises(ValueError, match="index needs an objective with data"):
        banana.batch([0])


@pytest.mark.parametrize(
    "index",
    [[5], [-1], [], 3, 1.5, [0.5], [True] * 5, [[0, 1]], None, "1", [10**30], [None], slice(2), np.ones(0, int)],
)
def test_an_index_that_is_no_sample_is_refused(samples, index):
    with pytest.raises(ValueError, match="index must"):
        samples.batch(index)


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (lambda o: o.batch(np.array([2**32 + 1])), "index"),
        (lambda o: o.over(np.array([2**32 + 1])), "data"),
        (lambda o: pf.models.cross_entropy(np.ones((1, 3), np.float32), np.array([2**32 + 1])), "labels"),
    ],
)
def test_an_index_data_and_labels_do_not_wrap_around_in_single_precision(use, name):
    with jax.enable_x64(False):
        objective = pf.Objective(lambda p, batch: jnp.mean(p[0] * batch), jnp.ones(1, jnp.float32), np.arange(3))
        with pytest.raises(ValueError, match=f"{name} must hold numbers within the range of int32, got array"):
            use(objective)


@pytest.mark.parametrize("index", [[4, 0, 4], np.array([1, 3]), jnp.array([2]), range(3), np.array([2], np.uint8)])
def test_a_batch_is_the_samples_at_its_index(samples, index):
    inputs, targets = samples._data
    chosen = np.asarray(index)
    expected = square_loss(samples.unravel(samples.theta), (inputs[chosen], targets[chosen]))
    np.testing.assert_allclose(samples.batch(index).value(samples.theta), expected, rtol=1e-14)


def test_a_traced_index_is_taken_as_it_is(samples):
    of_batch = jax.jit(lambda index: samples.batch(index).value(samples.theta))
    np.testing.assert_allclose(of_batch(np.array([4, 1])), samples.batch([4, 1]).value(samples.theta), rtol=1e-14)


@pytest.mark.parametrize("count", [0, -1, True, 1.5, "2", [2]])
def test_a_number_of_samples_that_is_none_is_refused(samples, count):
    with pytest.raises(ValueError, match="samples must be a whole number of at least 1"):
        samples.first(count)


def test_where_there_are_fewer_samples_the_first_are_all(samples):
    for count in (5, 6, 10**30, None):
        assert samples.first(count).samples == 5


@pytest.mark.parametrize(
    ("v", "message"),
    [
        (jnp.ones(3), r"v must (be flat with|have) shape \(2,\), got (shape )?\(3,\)"),
        (jnp.ones((2, 1)), r"v must (be flat with|have) shape \(2,\)"),
        ("abc", "v must be an array of numbers, got a str"),
        (np.array([1.0, None]), "v must be an array of numbers, got a ndarray of dtype object"),
        ([10**400, 0], "v must hold numbers within the range of JAX's"),
    ],
)
@pytest.mark.parametrize("chunk", [None, 2])
def test_a_bad_vector_of_the_linearised_gradient_is_named(v, message, chunk):
    objective = pf.Objective(lambda p, batch: jnp.mean(batch @ p) ** 2, jnp.ones(2), jnp.ones((3, 2)), chunk=chunk)
    _, product = objective.linearize(objective.theta)
    with pytest.raises(ValueError, match=message):
        product(v)


@pytest.mark.parametrize("v", [np.array([1, 2]), np.array([1.0, 2.0], np.float32), np.array([1.0 + 2.0j, 0.5])])
def test_the_linearised_gradient_takes_vectors_of_other_dtypes(v):
    banana = pf.functions.banana()
    product = banana.linearize(banana.theta)[1]
    np.testing.assert_allclose(product(v), banana.hessian(banana.theta) @ v, rtol=1e-6)


@pytest.mark.parametrize(
    ("theta", "message"),
    [
        (jnp.ones(3), r"theta must be flat with shape \(2,\), got shape \(3,\)"),
        ([10**400, 0], "theta must hold numbers within the range of JAX's, got .*characters"),
        (np.array(["a", "b"]), "theta must be an array of numbers, got a ndarray of dtype <U1"),
        (np.ones(2, jnp.float8_e4m3fn), "theta must be of float16 or wider"),
        (None, "theta must be an array of numbers, got a NoneType"),
    ],
)
def test_what_can_not_be_unravelled_is_named(theta, message):
    with pytest.raises(ValueError, match=message):
        pf.functions.banana().unravel(theta)


def test_a_hessian_beyond_memory_is_refused_beforehand(monkeypatch):
    monkeypatch.setattr("principalflow._checks._available_memory", lambda: 2**28)
    objective = pf.Objective(lambda p: jnp.sum(p**2), jnp.ones(5000))
    with pytest.raises(ValueError, match=r"theta asks for .* 5000 x 5000 numbers, which take 0.373 GiB .* 0.25 GiB"):
        objective.hessian(objective.theta)


@pytest.mark.parametrize("method", ["value", "gradient", "value_and_gradient", "hessian"])
def test_methods_can_be_compiled_by_jax(method):
    objective = regression(sizes=(2, 3, 1))
    function = getattr(objective, method)
    compiled, plain = (jax.tree.leaves(f(objective.theta)) for f in (jax.jit(function), function))
    for one, other in zip(compiled, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14)


def test_methods_that_jax_compiles_can_be_compiled_within():
    objective = regression(sizes=(2, 3, 1))
    twice = jax.jit(lambda theta: jax.jit(objective.gradient)(theta) + jax.jit(objective.gradient)(theta))
    np.testing.assert_allclose(twice(objective.theta), 2 * objective.gradient(objective.theta))


def test_single_precision_under_the_64_bit_switch_is_told_at_once_where_it_is_made():
    with pytest.warns(pf.PrecisionWarning, match="params are float32 though JAX's 64-bit switch is on") as told:
        pf.Objective(lambda p: jnp.sum(p**2), jnp.ones(2, jnp.float32))
    assert told[0].filename == __file__


def test_single_precision_without_the_64_bit_switch_is_nothing_to_tell():
    with warnings.catch_warnings(), jax.enable_x64(False):
        warnings.simplefilter("error")
        pf.Objective(lambda p: jnp.sum(p**2), jnp.ones(2))


def test_parameters_that_need_the_whole_batch_say_why_they_cannot_be_taken_in_chunks():
    class Centred(eqx.Module):
        weight: jax.Array
        why_whole_batch: ClassVar[str] = "its mean is that of all samples."

    loss, data = lambda p, batch: jnp.mean(p.weight * (batch - jnp.mean(batch)) ** 2), jnp.arange(4.0)
    with pytest.raises(ValueError, match=r"chunk must be None for these params: its mean is that of all samples\."):
        pf.Objective(loss, Centred(jnp.ones(1)), data, chunk=2)


def test_images_in_single_precision_are_convolved_with_weights_in_double():
    def loss(params, batch):
        return jnp.mean(jax.lax.conv(batch, params, (1, 1), "SAME") ** 2)

    kernel, images = np.ones((1, 1, 3, 3)), np.random.default_rng(0).standard_normal((2, 1, 4, 4))
    single, double = (pf.Objective(loss, jnp.asarray(kernel), images.astype(kind)) for kind in ("float32", "float64"))
    np.testing.assert_allclose(single.value(single.theta), double.value(double.theta), rtol=1e-6)


def test_where_no_cast_helps_the_first_error_is_told():
    with pytest.raises(ValueError, match=r"incompatible shapes|dot_general"):
        pf.Objective(lambda params, batch: jnp.sum(batch @ params), jnp.ones(2), jnp.ones((3, 4)))


def test_parameters_may_have_their_structure_or_be_flat(problem):
    objective, _ = problem
    params = objective.unravel(objective.theta)
    assert objective.value(params) == objective.value(objective.theta)
    assert jnp.array_equal(objective.gradient(params), objective.gradient(objective.theta))
    assert jnp.array_equal(objective.hvp(params, objective.theta), objective.hvp(objective.theta, objective.theta))


def test_an_objective_shows_its_size_and_no_arrays(problem):
    objective, _ = problem
    assert repr(objective) == f"<Objective: {objective.theta.size} parameters of float64, {objective.samples} samples>"
