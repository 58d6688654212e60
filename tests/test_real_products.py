import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import regression
from jax import lax

from principalflow import _real_products
from principalflow._real_products import with_real_products

RANDOM = np.random.default_rng(0)
A, B, X = (jnp.asarray(RANDOM.standard_normal((3, 3))) for _ in range(3))
THETA = A + 1j * B


@jax.custom_jvp
def square(x):
    return x**2


square.defjvp(lambda at, along: (square(*at), 2 * at[0] * along[0] + 1))  # not its derivative, to be told by it


@jax.custom_vjp
def cube(x):
    return x**3


cube.defvjp(lambda x: (x**3, x), lambda x, slope: (3 * x**2 * slope + 1,))

FUNCTIONS = {
    "complex times complex": lambda z: jnp.sum(jnp.tanh(z @ z)),
    "real times complex": lambda z: jnp.sum((X @ z) ** 2),
    "complex times real": lambda z: jnp.sum((z @ X) ** 2),
    "einsum over a batch": lambda z: jnp.sum(jnp.einsum("bij,jk->bik", jnp.stack([z, 2 * z]), z) ** 2),
    "jit within": lambda z: jnp.sum(jax.jit(lambda a: a @ jax.jit(jnp.matmul)(a, X))(z)),
    "a loop": lambda z: jnp.sum(lax.scan(lambda total, row: (total @ z + row, None), z[0], z)[0]),
    "checkpoint": lambda z: jnp.sum(jax.checkpoint(lambda a: jnp.tanh(a @ a))(z)),
    "a derivative of its own, forward": lambda z: jnp.sum(square(z @ z)),
    "a derivative of its own, in reverse": lambda z: jnp.sum(cube(z @ z)),
    "constants and what isn't used": lambda z: jnp.sum(lax.top_k(jnp.arange(3.0), 2)[0]) * jnp.sum(z),
}


@pytest.fixture
def no_product_is_too_small(monkeypatch):
    monkeypatch.setattr(_real_products, "_FEW", 0)


@pytest.mark.usefixtures("no_product_is_too_small")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_derivatives_stay_the_same(name):
    plain, other = FUNCTIONS[name], with_real_products(FUNCTIONS[name])
    np.testing.assert_allclose(other(THETA), plain(THETA), rtol=1e-13)
    gradients = [jax.grad(function, holomorphic=True) for function in (plain, other)]
    np.testing.assert_allclose(gradients[1](THETA), gradients[0](THETA), rtol=1e-12)
    if "reverse" not in name:
        products = [jax.jit(lambda v, of=of: jax.jvp(of, (THETA,), (v,))[1])(THETA.T) for of in gradients]
        np.testing.assert_allclose(products[1], products[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("chunk", [None, 300])
def test_at_complex_theta_all_matrix_products_of_a_networks_derivatives_are_real(chunk):
    objective = regression(samples=600, sizes=(8, 16, 4), chunk=chunk)
    theta = objective.theta + 0.1j
    for derivative in (objective.gradient, objective.linearize(theta)[1]):
        program = str(jax.make_jaxpr(derivative)(theta))
        products = [line for line in program.splitlines() if "= dot_general" in line]
        assert products
        assert not any(":c" in line for line in products)


def test_at_real_numbers_in_a_complex_array_imaginary_parts_are_zero():
    objective = regression(samples=600, sizes=(8, 16, 4))
    gradient, product = objective.linearize(objective.theta + 0j)
    assert jnp.all(gradient.imag == 0)
    assert jnp.all(product(gradient).imag == 0)
    np.testing.assert_allclose(gradient.real, objective.gradient(objective.theta), rtol=1e-12)
