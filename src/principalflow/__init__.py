"""principalflow: the dynamics of gradient descent, in continuous time."""

from typing import TYPE_CHECKING, Any

from principalflow import (
    data,
    drift,
    flows,
    functions,
    landscape,
    models,
    optimizers,
    plot,
    report,
    runs,
    spectrum,
    stability,
    training,
)
from principalflow._cdat import CDATState, cdat
from principalflow._checks import NonFiniteError, PrecisionWarning
from principalflow._dal import DALState, ScaleByDALState, dal, scale_by_dal
from principalflow._version import __version__ as __version__
from principalflow.descent import Descent, descend
from principalflow.flows import Solution, compare, integrate
from principalflow.monitor import Event, Monitor
from principalflow.objective import Objective
from principalflow.record import Record
from principalflow.status import Status

if TYPE_CHECKING:
    from principalflow import reproduce

__all__ = [
    "CDATState",
    "DALState",
    "Descent",
    "Event",
    "Monitor",
    "NonFiniteError",
    "Objective",
    "PrecisionWarning",
    "Record",
    "ScaleByDALState",
    "Solution",
    "Status",
    "cdat",
    "compare",
    "dal",
    "data",
    "descend",
    "drift",
    "flows",
    "functions",
    "integrate",
    "landscape",
    "models",
    "optimizers",
    "plot",
    "report",
    "reproduce",
    "runs",
    "scale_by_dal",
    "spectrum",
    "stability",
    "training",
]


def __getattr__(name: str) -> Any:
    """Imports `principalflow.reproduce` when it is asked for: it needs matplotlib and pyarrow, the rest doesn't."""
    if name == "reproduce":
        import principalflow.reproduce

        return principalflow.reproduce
    raise AttributeError(f"module 'principalflow' has no attribute {name!r}")
