"""Tests and doctests run in double precision and draw no windows; without PyTorch its doctests are left out."""

from importlib.util import find_spec

import jax
import matplotlib
from hypothesis import settings

jax.config.update("jax_enable_x64", True)
matplotlib.use("agg")
settings.register_profile("compiling", deadline=None)  # the first example of a test compiles
settings.load_profile("compiling")

# tests/torch makes a namespace package of that name, so a module inside of PyTorch is asked for.
try:
    has_torch = find_spec("torch.optim") is not None
except ModuleNotFoundError:
    has_torch = False
collect_ignore = [] if has_torch else ["src/principalflow/torch"]
