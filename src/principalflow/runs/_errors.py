"""What is said where a run directory can't be used, or only in part."""

import warnings


class RunError(RuntimeError):
    """A run directory can't be used as asked."""


class RunWarning(UserWarning):
    """A run directory was damaged, and something of it was left out."""


def warn(text: str, stacklevel: int) -> None:
    """Warns that a run directory is damaged."""
    warnings.warn(text, RunWarning, stacklevel=stacklevel)
