"""Python functions in compiled programs."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import compilations

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0 runs these tests")

from principalflow.torch._host_call import host_call

A = np.array([[2.0, 1.0], [1.0, 3.0]])


def times(x):
    """A x, by NumPy."""
    assert isinstance(x, np.ndarray)
    return [A @ x]


def product(x):
    return host_call(times, [x], x, symmetric=True)[0]


X = jnp.array([1.0, 2.0])


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_a_call_gives_what_the_function_does(transform):
    np.testing.assert_array_equal(transform(product)(X), A @ X)


def test_a_call_outside_of_programs_compiles_nothing():
    with compilations() as seen:
        np.testing.assert_array_equal(product(X), A @ X)
    assert not seen


@pytest.mark.parametrize("axis", [0, 1])
def test_columns_are_taken_one_after_another(axis):
    block = jnp.arange(6.0).reshape(2, 3)
    found = jax.jit(jax.vmap(product, axis, axis))(block if axis else block.T)
    np.testing.assert_array_equal(found if axis else found.T, A @ block)


def test_arguments_that_are_shared_need_no_axis():
    add = lambda x, y: host_call(lambda x, y: [x + y], [x], x, y)[0]  # noqa: E731
    np.testing.assert_array_equal(jax.vmap(add, (None, 0))(X, jnp.eye(2)), X + np.eye(2))


def test_a_symmetric_product_is_its_own_transpose():
    transpose = jax.jit(jax.linear_transpose(product, X))
    np.testing.assert_array_equal(transpose(X)[0], A @ X)


def test_others_have_no_transpose():
    call = lambda x: host_call(times, [x], x)[0]  # noqa: E731
    with pytest.raises(NotImplementedError, match="can't be transposed"):
        jax.linear_transpose(call, X)(X)


def test_calls_in_loops_and_several_results():
    both = lambda x: tuple(host_call(lambda x: [x.sum(), 2 * x], [x[0], x], x))  # noqa: E731
    end = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, x: both(x)[1], x))(X)
    np.testing.assert_array_equal(end, 8 * X)
    assert jax.jit(both)(X)[0] == 3


PROGRAM = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import jax, jax.numpy as jnp, numpy as np
from principalflow.torch._host_call import host_call
half = lambda x: host_call(lambda x: [x / 2], [x], x)[0]
program = jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda _, x: half(x) + jnp.mean(x) / 2, x))
found = [program(jnp.full(2**18, float(i))) for i in range(20)]  # all in flight
print(max(float(jnp.max(jnp.abs(x - i))) for i, x in enumerate(found)))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores can't be chosen here")
def test_one_core_is_enough():
    command, options = [sys.executable, "-c", PROGRAM], dict(capture_output=True, text=True, check=True, timeout=300)
    run = subprocess.run(command, **options)
    assert float(run.stdout) == 0
