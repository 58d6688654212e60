"""Training runs as one HTML page, to read and to compare."""

from principalflow.report._page import write

__all__ = ["write"]
