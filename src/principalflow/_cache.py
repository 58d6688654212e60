"""Where compiled programs are kept from one process to the next."""

import os
from functools import cache

import jax
import platformdirs
from jax.experimental.compilation_cache import compilation_cache

# Programs that took less to compile aren't worth a file.
_LEAST_SECONDS = 0.02
# What has been of no use for longest goes beyond this.
_MOST_BYTES = 2**30


@cache
def keep_programs() -> None:
    """Has JAX keep compiled programs in the user's cache, unless it keeps them elsewhere or PRINCIPALFLOW_CACHE=0."""
    elsewhere = jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    if os.environ.get("PRINCIPALFLOW_CACHE") == "0" or elsewhere is not None:
        return
    jax.config.update("jax_compilation_cache_dir", str(platformdirs.user_cache_path("principalflow") / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", _LEAST_SECONDS)
    jax.config.update("jax_compilation_cache_max_size", _MOST_BYTES)
    compilation_cache.reset_cache()  # what has been compiled before was compiled without one
