"""What a kept result or training depends on besides its settings."""

import hashlib
import json
from typing import Any

import jax
import jaxlib.version

from principalflow._version import __version__


def stamp(schema: int) -> dict[str, Any]:
    """Returns the versions of what computes, and a number that is raised where other tables come of the same settings.

    It has no digest of the code: what took hours to make must outlast edits that change nothing in it.
    """
    return {"version": __version__, "jax": jax.__version__, "jaxlib": jaxlib.version.__version__, "schema": schema}


def digest(content: Any) -> str:
    """Returns a short name for what JSON can hold."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
