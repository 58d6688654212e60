"""principalflow: the dynamics of gradient descent, in continuous time."""

from principalflow import flows, functions, plot, spectrum
from principalflow._checks import PrecisionWarning
from principalflow.descent import Path, descend
from principalflow.flows._compare import compare
from principalflow.flows._integrate import Solution, integrate
from principalflow.objective import Objective

__version__ = "0.1.0"

__all__ = [
    "Objective",
    "Path",
    "PrecisionWarning",
    "Solution",
    "compare",
    "descend",
    "flows",
    "functions",
    "integrate",
    "plot",
    "spectrum",
]
