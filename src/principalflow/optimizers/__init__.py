"""Optimisers as the edge of stability sees them: their metric, momentum and threshold."""

from principalflow.optimizers._edge import Edge, Filter, Part
from principalflow.optimizers._groups import Group, UnknownError, combined, or_unknown
from principalflow.optimizers._reader import edge, reader
from principalflow.optimizers._second_moment import Moment, SecondMoment

__all__ = [
    "Edge",
    "Filter",
    "Group",
    "Moment",
    "Part",
    "SecondMoment",
    "UnknownError",
    "combined",
    "edge",
    "or_unknown",
    "reader",
]
