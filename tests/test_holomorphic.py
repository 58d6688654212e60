import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import network, outputs

import principalflow as pf
from principalflow._holomorphic import require_holomorphic

INPUTS = np.random.default_rng(1).standard_normal((6, 3))
LABELS = np.eye(4)[[0, 1, 2, 3, 0, 1]]


def square(activation):
    return lambda params, batch: jnp.mean((outputs(params, batch[0], activation) - batch[1]) ** 2)


def cross_entropy(log_softmax):
    return lambda params, batch: -jnp.mean(jnp.sum(log_softmax(outputs(params, batch[0])) * batch[1], axis=1))


def with_rule(function, derivative):
    """The function with a derivative of its own."""
    custom = jax.custom_jvp(function)
    custom.defjvp(lambda at, along: (custom(*at), derivative(*at) * along[0]))
    return custom


def tanh_slope(x):
    return 1 - jnp.tanh(x) ** 2


def on_the_host(x):
    return jax.pure_callback(np.tanh, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def halved(x):
    return jax.lax.while_loop(lambda y: jnp.max(jnp.abs(y)) > 0.1, lambda y: y / 2, x)


def real_at_real_numbers(function):
    """A loss must be real at real parameters, also where a function turns real numbers complex."""
    return lambda x: function(x) if jnp.iscomplexobj(x) else function(x + 0j).real


def check(loss):
    objective = pf.Objective(loss, network((3, 5, 4)), (INPUTS, LABELS))
    require_holomorphic(objective, objective.theta)


@pytest.mark.parametrize(
    "loss",
    [
        square(jnp.tanh),
        square(jax.nn.softplus),
        square(jax.nn.sigmoid),
        square(jax.nn.silu),
        square(lambda x: jax.nn.gelu(x, approximate=True)),
        cross_entropy(jax.nn.log_softmax),
        cross_entropy(lambda x: x - jax.nn.logsumexp(x, axis=1, keepdims=True)),
        lambda params, batch: jax.checkpoint(square(jnp.tanh))(params, batch),
        square(lambda x: jax.lax.scan(lambda carry, row: (carry + row, jnp.tanh(carry)), x[0], x)[1]),
        square(lambda x: jax.lax.fori_loop(0, 3, lambda i, y: jnp.tanh(y), x)),
        square(with_rule(jnp.tanh, tanh_slope)),
        square(lambda x: jax.nn.softmax(x) * jnp.sinc(x)),
        square(lambda x: x @ jnp.linalg.inv(3 * jnp.eye(5) + x.T @ x)),
        square(lambda x: jnp.where(jnp.isfinite(x), x, 0) * jnp.sort(INPUTS[:, :1], axis=0)),
        square(real_at_real_numbers(lambda x: x * jax.nn.softplus(x - 9) * jnp.logaddexp(x, 20j))),
    ],
)
def test_smooth_losses_pass(loss):
    check(loss)


@pytest.mark.parametrize(
    ("activation", "cause"),
    [
        (with_rule(jax.nn.relu, lambda x: jnp.where(x.real > 0, 1.0, 0.0)), "pieces: max"),
        (with_rule(jax.nn.relu, jax.nn.sigmoid), "pieces: max"),
        (with_rule(lambda x: jnp.where(x.real > 0, x, 0), lambda x: jnp.where(x.real > 0, 1.0, 0.0)), "pieces: gt"),
        (with_rule(on_the_host, tanh_slope), "can't be judged: it has pure_callback"),
        (with_rule(halved, lambda x: 1.0), "can't be judged: it has a while loop whose end depends on the parameters"),
        (with_rule(jnp.tanh, jnp.cos), "a function whose derivative .* is not that of its values"),
        (lambda x: x * jax.lax.stop_gradient(jnp.abs(x)), "Cauchy-Riemann"),
        (lambda x: x * jax.lax.stop_gradient(jnp.tanh(x)), "a function whose derivative .* is not that of its values"),
        (lambda x: x * jnp.searchsorted(jnp.linspace(-1, 1, 9), x.real), "pieces: le_to in searchsorted"),
        (lambda x: x * (10 * x.real).astype(int), "pieces: convert_element_type"),
        (lambda x: x * jnp.round(x.real), "pieces: round"),
        (lambda x: x * jnp.signbit(x.real), "pieces: bitcast_convert_type in signbit"),
        (lambda x: x * jnp.argmax(x.real), "pieces: argmax"),
        (lambda x: x * jax.lax.top_k(x.real, 1)[1], "pieces: top_k"),
        (lambda x: x * jnp.argsort(x.real), "pieces: sort in argsort"),
        (real_at_real_numbers(lambda x: jax.lax.complex(jnp.abs(x.real + 9), x.imag)), "pieces: abs"),
        (lambda x: x * jnp.sign(x[:, :1].real) * jnp.sign(x[:, 1:2].real), "pieces: sign"),
        (lambda x: jnp.where((x[:, :1].real > 0) ^ (x[:, 1:2].real > 0), x, 2 * x), "pieces: gt"),
        (lambda x: jax.lax.switch(jnp.astype(99 * x[0, 0].real, int), [jnp.tanh, jnp.sin], x), "pieces: convert_el"),
        (lambda x: jax.lax.switch(jnp.astype(-99 * x[0, 0].real, int), [jnp.tanh, jnp.sin], x), "pieces: convert_el"),
        (lambda x: jax.lax.cond(x[0, 0].real > 0, jnp.tanh, jnp.sin, x), "pieces: gt"),
        (lambda x: x * jnp.zeros(5).at[0].max(x[0, 0].real), "can't be judged: it has scatter-max"),
    ],
)
def test_what_switches_behind_whole_numbers_branches_callbacks_or_derivatives_of_its_own_is_refused(activation, cause):
    with pytest.raises(ValueError, match=cause) as error:
        check(square(activation))
    assert "say so with Objective(..., holomorphic=True)" in str(error.value)


@jax.custom_jvp
def with_sign(x):
    return jnp.tanh(x), x.real > 0


with_sign.defjvp(lambda x, v: (with_sign(*x), (tanh_slope(*x) * v[0], np.zeros(x[0].shape, jax.dtypes.float0))))


def test_a_function_with_its_own_derivative_may_return_truth_values_too():
    check(square(lambda x: with_sign(x)[0]))
    with pytest.raises(ValueError, match="pieces: gt"):
        check(square(lambda x: jnp.where(with_sign(x)[1], x, 2 * x)))


@pytest.mark.parametrize("activation", [jnp.tanh, jax.nn.softplus, jax.nn.silu])
def test_smooth_losses_pass_in_single_precision(activation):
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), network((3, 5, 4)))
    objective = pf.Objective(square(activation), params, (INPUTS.astype(np.float32), LABELS.astype(np.float32)))
    require_holomorphic(objective, objective.theta)


@pytest.mark.parametrize(
    ("loss", "cause"),
    [
        (square(jax.nn.relu), "max in relu"),
        (square(jax.nn.relu6), "relu6"),
        (square(jax.nn.leaky_relu), "in leaky_relu"),
        (square(jax.nn.elu), "gt in elu"),
        (square(lambda x: jnp.maximum(x, 0)), "pieces: max"),
        (square(lambda x: jnp.where(x.real > 0, x, 0)), "pieces: gt"),
        (square(lambda x: jnp.sort(x, axis=0)), "pieces: .*sort"),
        (square(lambda x: jax.lax.cummax(x)), "pieces: .*cummax"),
        (square(lambda x: jnp.clip(x, -0.1, 0.1)), "can't be differentiated"),
        (square(lambda x: jax.lax.scan(lambda c, row: (c, jax.nn.relu(row)), 0.0, x)[1]), "max in relu"),
        (square(lambda x: jax.lax.fori_loop(0, 2, lambda i, y: jax.nn.relu(y), x)), "max in relu"),
        (square(lambda x: jax.lax.cond(x.shape[0] > 1, jax.nn.relu, jnp.tanh, x)), "max in relu"),
        (lambda params, batch: 1e-9 * square(jax.nn.relu)(params, batch), "max in relu"),
        (square(jnp.abs), "Cauchy-Riemann"),
        (square(jnp.conj), "Cauchy-Riemann"),
        (square(lambda x: x.real + 0 * x), "Cauchy-Riemann"),
        (lambda params, batch: jnp.sum(jnp.abs(outputs(params, batch[0])) ** 2), "returns a real number"),
        (lambda params, batch: jnp.linalg.norm(outputs(params, batch[0])), "returns a real number"),
        (square(lambda x: jax.nn.gelu(x, approximate=False)), "can't be differentiated at complex parameters"),
    ],
)
def test_losses_that_are_not_holomorphic_are_refused_with_cause_and_replacements(loss, cause):
    with pytest.raises(ValueError, match=cause) as error:
        check(loss)
    assert "Usual causes and replacements:" in str(error.value)


def test_chunks_do_not_hide_the_cause():
    objective = pf.Objective(square(jax.nn.relu), network((3, 5, 4)), (INPUTS, LABELS), chunk=2)
    with pytest.raises(ValueError, match="max in relu"):
        require_holomorphic(objective, objective.theta)


def test_a_complex_flow_is_refused_before_it_is_integrated():
    objective = pf.Objective(lambda p: jnp.sum(jax.nn.relu(p) ** 2), jnp.array([1.0, -2.0]))
    with pytest.raises(ValueError, match="max in relu"):
        pf.integrate(pf.flows.Principal(h=0.1), objective, objective.theta, time=0.1)


def test_a_real_flow_is_not_refused():
    objective = pf.Objective(lambda p: jnp.sum(jax.nn.relu(p) ** 2), jnp.array([1.0, -2.0]))
    solution = pf.integrate(pf.flows.NegativeGradient(), objective, objective.theta, time=0.1)
    np.testing.assert_allclose(solution.thetas[-1], [np.exp(-0.2), -2.0], rtol=1e-5)


def test_a_loss_that_is_vouched_for_is_not_checked():
    objective = pf.Objective(lambda p: jnp.sum(jnp.abs(p) ** 2), jnp.ones(1), holomorphic=True)
    require_holomorphic(objective, objective.theta)


def test_the_cross_entropies_of_optax_are_refused_with_ours_in_their_place():
    def loss(params, batch):
        return optax.softmax_cross_entropy(outputs(params, batch[0]), batch[1]).mean()

    with pytest.raises(ValueError, match=r"cross-entropies of optax.* -> principalflow\.models\.cross_entropy"):
        check(loss)


def test_a_convolution_of_real_images_with_complex_weights_passes():
    def loss(params, batch):
        dimensions = ("NHWC", "HWIO", "NHWC")
        convolved = jax.lax.conv_general_dilated(batch, params, (1, 1), "SAME", dimension_numbers=dimensions)
        return jnp.mean(jnp.tanh(convolved) ** 2)

    kernel = 0.1 * np.random.default_rng(0).standard_normal((3, 3, 1, 2))
    objective = pf.Objective(loss, jnp.asarray(kernel), np.ones((2, 4, 4, 1)))
    require_holomorphic(objective, objective.theta)
