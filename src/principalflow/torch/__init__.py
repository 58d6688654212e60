"""principalflow for PyTorch: the drift-adjusted learning rate as a `torch.optim.Optimizer`, and a monitor."""

# pyright: reportMissingImports=false

try:
    from torch import Tensor as _  # noqa: F401
except ImportError as error:
    raise ImportError("principalflow.torch needs PyTorch: pip install 'principalflow[torch]'.") from error

from principalflow.torch._dal import DAL, NonFiniteWarning
from principalflow.torch._monitor import Monitor

__all__ = ["DAL", "Monitor", "NonFiniteWarning"]
