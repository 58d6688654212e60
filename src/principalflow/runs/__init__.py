"""Run directories: config, append-only metrics, iterates, checkpoints, status; resumed, loaded and exported."""

from principalflow.runs._directory import (
    CONFIG,
    Run,
    check_free,
    create,
    last_checkpoint,
    read_config,
    read_status,
    reopen,
)
from principalflow.runs._errors import RunError, RunWarning
from principalflow.runs._export import add_row, export, scalars
from principalflow.runs._iterates import Kept, iterates
from principalflow.runs._load import find, load

__all__ = [
    "CONFIG",
    "Kept",
    "Run",
    "RunError",
    "RunWarning",
    "add_row",
    "check_free",
    "create",
    "export",
    "find",
    "iterates",
    "last_checkpoint",
    "load",
    "read_config",
    "read_status",
    "reopen",
    "scalars",
]
