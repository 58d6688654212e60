"""Tests and doctests run in double precision, compile quickly and draw no windows.

Their random numbers don't depend on which tests ran before. Without PyTorch its doctests are left out.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

# One thread for each process of the tests: several that share two cores would wait for each other.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import matplotlib
import numpy as np
import pytest
from hypothesis import settings

# Most of the tests' time is XLA compiling programs that run once, on little data. XLA refuses flags that it doesn't
# know: if it says so after a new version of JAX, take them out.
QUICK_COMPILATION = (
    "--xla_backend_optimization_level=0",
    "--xla_llvm_disable_expensive_passes=true",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
)
# What was compiled once isn't compiled again: not for another test, not by a process that a test starts, nor the next
# time. Where one process reads a file that another is writing, JAX warns, and compiles.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent / ".pytest_cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ["XLA_FLAGS"] = " ".join((*QUICK_COMPILATION, os.environ.get("XLA_FLAGS", "")))
jax.config.update("jax_enable_x64", True)
matplotlib.use("agg")
# The first example of a test compiles. Where a change is judged, the same examples must be tried each time.
settings.register_profile("compiling", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("compiling")

# Where there is transformers, it takes seconds to import, and this module has no doctests.
collect_ignore = ["src/principalflow/torch/_huggingface.py" if find_spec("torch") else "src/principalflow/torch"]


@pytest.fixture(autouse=True)
def _no_open_figures():
    """Closes what a test drew: matplotlib warns of many open figures."""
    yield
    if pyplot := sys.modules.get("matplotlib.pyplot"):
        pyplot.close("all")


@pytest.fixture(autouse=True)
def _same_random_numbers():
    """Seeds the global generators; a test that is the first to import PyTorch gets that one's own fixed seed."""
    np.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
