"""Tests and doctests run in double precision and draw no windows."""

import jax
import matplotlib
from hypothesis import settings

jax.config.update("jax_enable_x64", True)
matplotlib.use("agg")
settings.register_profile("compiling", deadline=None)  # the first example of a test compiles
settings.load_profile("compiling")
