"""The paper's experiments, each with its figure and its claims checked."""

try:
    import matplotlib  # noqa: F401
    import pyarrow  # noqa: F401
except ImportError as error:
    raise ImportError(f"principalflow.reproduce needs {error.name}: pip install 'principalflow[reproduce]'.") from error

from principalflow._lab import CLAIMS, DPI, PROFILES, Claim, Experiment, Profile, Result
from principalflow.reproduce._catalogue import EXPERIMENTS
from principalflow.reproduce._run import clean, collect, run, run_all

__all__ = [
    "CLAIMS",
    "DPI",
    "EXPERIMENTS",
    "PROFILES",
    "Claim",
    "Experiment",
    "Profile",
    "Result",
    "clean",
    "collect",
    "run",
    "run_all",
]
