"""principalflow for PyTorch: models as objectives, a monitor, rates from drift and curvature, optimisers' edges."""

# pyright: reportMissingImports=false

try:
    from torch import Tensor as _  # noqa: F401
except ImportError as error:
    raise ImportError("principalflow.torch needs PyTorch: pip install 'principalflow[torch]'.") from error

from principalflow.torch._along import NonFiniteWarning
from principalflow.torch._cdat import CDAT
from principalflow.torch._dal import DAL
from principalflow.torch._monitor import Monitor
from principalflow.torch._objective import objective
from principalflow.torch._optimizers import edge

__all__ = ["CDAT", "DAL", "Monitor", "NonFiniteWarning", "edge", "objective"]
