"""Monitors: what governs the stability of a training loop that somebody else wrote, within a budget of time."""

from principalflow.monitor._events import EARLY, Event, in_words
from principalflow.monitor._monitor import Monitor
from principalflow.monitor._taken import Taken, critical_factor
from principalflow.monitor._watch import Measure, Watch, checked_rate, same_rate

__all__ = [
    "EARLY",
    "Event",
    "Measure",
    "Monitor",
    "Taken",
    "Watch",
    "checked_rate",
    "critical_factor",
    "in_words",
    "same_rate",
]
