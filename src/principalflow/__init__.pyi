from . import (
    data,
    drift,
    flows,
    functions,
    landscape,
    models,
    optimizers,
    plot,
    report,
    reproduce,
    runs,
    spectrum,
    stability,
    training,
)
from ._cdat import CDATState, cdat
from ._checks import NonFiniteError, PrecisionWarning
from ._dal import DALState, ScaleByDALState, dal, scale_by_dal
from ._memory import keep_memory
from .descent import Descent, descend
from .flows import Solution, compare, integrate
from .monitor import Event, Monitor
from .objective import Objective
from .record import Record
from .status import Status

__version__: str
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
    "keep_memory",
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
