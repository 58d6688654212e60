import jax
import jax.numpy as jnp
import numpy as np
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
    ],
)
def test_smooth_losses_pass(loss):
    check(loss)


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
    assert "Usual causes and replacements: relu" in str(error.value)


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
