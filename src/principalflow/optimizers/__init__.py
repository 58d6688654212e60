"""Optimisers as the edge of stability sees them: their metric, momentum and threshold."""

from principalflow.optimizers._edge import Edge, Filter, Part

__all__ = ["Edge", "Filter", "Part"]
