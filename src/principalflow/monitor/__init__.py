"""Monitors: what governs the stability of a training loop that somebody else wrote, within a budget of time."""

from principalflow.monitor._events import Event, in_words
from principalflow.monitor._monitor import Monitor
from principalflow.monitor._threshold import Threshold
from principalflow.monitor._watch import Watch

__all__ = ["Event", "Monitor", "Threshold", "Watch", "in_words"]
