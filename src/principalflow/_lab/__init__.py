"""The laboratory: what an experiment is, how it is run and kept, and what it leaves in a folder."""

from principalflow._lab.experiment import PROFILES, Claim, Experiment, Profile, Table, Tables
from principalflow._lab.folder import CLAIMS, clean, collect
from principalflow._lab.kept import lock, place, trainings_in
from principalflow._lab.result import DPI, Result
from principalflow._lab.run import run, run_all

__all__ = [
    "CLAIMS",
    "DPI",
    "PROFILES",
    "Claim",
    "Experiment",
    "Profile",
    "Result",
    "Table",
    "Tables",
    "clean",
    "collect",
    "lock",
    "place",
    "run",
    "run_all",
    "trainings_in",
]
