"""Data sets, ready to train on: bundled, downloaded once, or your own."""

from principalflow.data._download import DataError

__all__ = ["DataError"]
