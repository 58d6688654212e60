"""Run directories: config, append-only metrics, iterates, checkpoints, status; resumed, loaded and exported."""

from principalflow.runs._directory import Run, Status, create, reopen
from principalflow.runs._errors import RunError, RunWarning
from principalflow.runs._export import export
from principalflow.runs._iterates import Kept, iterates
from principalflow.runs._load import find, load

__all__ = ["Kept", "Run", "RunError", "RunWarning", "Status", "create", "export", "find", "iterates", "load", "reopen"]
