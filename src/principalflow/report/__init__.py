"""HTML pages to read and to compare: of training runs, and of the paper's experiments."""

from principalflow.report._experiments import write_experiments
from principalflow.report._runs import write

__all__ = ["write", "write_experiments"]
