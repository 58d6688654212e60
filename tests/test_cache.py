"""Compiled programs are kept for the next process, unless that is turned off or JAX keeps them elsewhere."""

import os
import subprocess
import sys

import pytest

CODE = """
import jax, jax.numpy as jnp
jax.jit(lambda x: x + 1)(1.0)  # compiled before there is a cache
import principalflow as pf
loss = pf.Objective(lambda w: jnp.mean(jnp.tanh(jnp.outer(w, w) @ jnp.tanh(w)) ** 2), jnp.arange(1.0, 5.0))
pf.compare(loss, loss.theta, 0.01, 1, flows={"third": pf.flows.ThirdOrder(0.01)})
"""


def kept(cache, **variables):
    """The files in the user's cache after a process."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {"XDG_CACHE_HOME": str(cache), "HOME": str(cache), **variables}
    subprocess.run([sys.executable, "-c", CODE], env=environment, check=True)
    return [path for path in (cache / "principalflow" / "compiled").glob("*") if path.is_file()]


@pytest.mark.skipif(sys.platform != "linux", reason="the user's cache is elsewhere")
def test_programs_are_kept_for_the_next_process(tmp_path):
    assert kept(tmp_path)


def test_it_can_be_turned_off(tmp_path):
    assert not kept(tmp_path, PRINCIPALFLOW_CACHE="0")


def test_a_cache_of_the_users_own_stays(tmp_path):
    assert not kept(tmp_path, JAX_COMPILATION_CACHE_DIR=str(tmp_path / "own"))
