"""principalflow: the dynamics of gradient descent, in continuous time."""

from principalflow import data, drift, flows, functions, models, plot, report, runs, spectrum, stability, training
from principalflow._checks import NonFiniteError, PrecisionWarning
from principalflow._dal import DALState, ScaleByDALState, dal, scale_by_dal
from principalflow.descent import Path, descend
from principalflow.flows._compare import compare
from principalflow.flows._integrate import Solution, integrate
from principalflow.monitor import Monitor
from principalflow.objective import Objective
from principalflow.record import Record

__version__ = "0.1.0"

__all__ = [
    "DALState",
    "Monitor",
    "NonFiniteError",
    "Objective",
    "Path",
    "PrecisionWarning",
    "Record",
    "ScaleByDALState",
    "Solution",
    "compare",
    "dal",
    "data",
    "descend",
    "drift",
    "flows",
    "functions",
    "integrate",
    "models",
    "plot",
    "report",
    "runs",
    "scale_by_dal",
    "spectrum",
    "stability",
    "training",
]
