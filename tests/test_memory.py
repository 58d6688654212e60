"""Memory that is kept is not asked for again."""

import platform
import subprocess
import sys

import pytest

# Temporary arrays of 250 MB, which are freed at the end of each call; the median is of pages that are new to a call.
CODE = """
import resource
import statistics
import principalflow as pf
{}
import jax
import jax.numpy as jnp
call = jax.jit(lambda x: jnp.concatenate([x + i for i in range(32)]).reshape(32, -1) @ x)
x, pages = jnp.ones(2**20, jnp.float32), []
for _ in range(21):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    call(x).block_until_ready()
    pages.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(int(statistics.median(pages)))
"""


def fresh_pages(first: str) -> int:
    run = subprocess.run([sys.executable, "-c", CODE.format(first)], capture_output=True, text=True, check=True)
    return int(run.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be asked to keep memory")
def test_most_calls_ask_for_no_memory_that_the_ones_before_had():
    without = fresh_pages("")
    if without < 1000:
        pytest.skip("this system has large pages, or keeps them itself")
    assert fresh_pages("pf.keep_memory()") < without / 10
