"""Training runs of the paper's networks that are recorded, can be stopped and resumed, and swept."""

from principalflow.training._options import RESCALING, Options
from principalflow.training._problem import objective
from principalflow.training._restore import Restored, parameters, restore
from principalflow.training._run import run
from principalflow.training._tables import measures, steps

__all__ = ["RESCALING", "Options", "Restored", "measures", "objective", "parameters", "restore", "run", "steps"]
