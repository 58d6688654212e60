"""Pictures (matplotlib): trajectories over the loss's contours, error curves, landscapes, and recorded runs."""

from principalflow.plot._axes import typical
from principalflow.plot._monitor import monitor
from principalflow.plot._paths import errors, landscape, trajectories
from principalflow.plot._stability import stability

__all__ = ["errors", "landscape", "monitor", "stability", "trajectories", "typical"]
