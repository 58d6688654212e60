"""Tests and doctests run in double precision and draw no windows; without PyTorch its doctests are left out."""

from importlib.util import find_spec

import jax
import matplotlib
from hypothesis import settings

jax.config.update("jax_enable_x64", True)
matplotlib.use("agg")
settings.register_profile("compiling", deadline=None)  # the first example of a test compiles
settings.load_profile("compiling")

collect_ignore = [] if find_spec("torch") else ["src/principalflow/torch"]
