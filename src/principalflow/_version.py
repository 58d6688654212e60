"""The version of principalflow, apart from `__init__`, which imports all that writes it into files."""

__version__ = "0.1.0"
