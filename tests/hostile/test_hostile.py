"""Every public function ends in a finite result, in one that is marked, or in an error that names an argument."""

import inspect
import math
import os
from importlib.util import find_spec

import pytest
from hostile.call import Call
from hostile.calls import CALLS
from hostile.judge import verdict

import principalflow as pf

# For each function: how many cases with one hostile argument, and with two, the first of which ends most calls. With
# HOSTILE=all in the environment, all of the first kind, for ten minutes.
SINGLES = math.inf if os.environ.get("HOSTILE") == "all" else 30
PAIRS = 3

# What the table has no row for: what functions return, ...
_RETURNED = """
    CDATState Descent Event Solution DALState ScaleByDALState data.Dataset drift.MomentumDrift landscape.Landscape
    landscape.Plane spectrum.Applied spectrum.Density spectrum.Eigenpairs spectrum.Trace stability.CriticalPoint
    stability.LossChange stability.Stability stability.Measured runs.Kept training.Restored flows.Field flows.Solution
    spectrum.Trail Status stability.BatchSharpness stability.BatchThresholds
    optimizers.Edge optimizers.Filter optimizers.Part flows.CentralState flows.OptaxState flows.PairState
    flows.TrackedState
    flows.CentralRMSPropState flows.RodState flows.TwoPointState
"""
# ... what is subclassed, what modules share, and the page of the experiments, which are tested as a whole.
_OTHERS = """
    flows.Flow flows.RateFlow flows.SpectralFlow flows.as_flow flows.compare flows.integrate flows.phi plot.typical
    report.write_experiments runs.add_row runs.check_free runs.last_checkpoint runs.read_config runs.read_status
    spectrum.block_eigenpairs_and_product spectrum.check_memory spectrum.krylov spectrum.krylov_and_space
    stability.formulas stability.measure stability.overlaps stability.progress_ratio training.parameters
    keep_memory optimizers.Group optimizers.combined optimizers.or_unknown optimizers.Moment optimizers.SecondMoment
    runs.scalars
"""
WITHOUT_ROW = {*_RETURNED.split(), *_OTHERS.split()}


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_a_hostile_call_is_answered(call: Call):
    call.function(**call.good)
    names = {*call.good, *call.hostile, *call.names}
    assert not verdict(call.function, call.good, names)
    cases = call.cases(SINGLES, PAIRS)
    verdicts = [(case, verdict(call.function, call.good | case, names, call.is_formula)) for case in cases]
    wrong = [(case, text) for case, text in verdicts if text]
    assert not wrong, wrong


@pytest.mark.skipif(not find_spec("torch"), reason="PyTorch is not installed")
def test_every_public_callable_has_a_row():
    covered = {call.name.split(" ")[0] for call in CALLS}
    assert sorted(_public() - covered - WITHOUT_ROW) == []
    assert sorted(WITHOUT_ROW - _public()) == []


def _public() -> set[str]:
    """Functions and classes below `principalflow`, and the methods of `Objective`; no errors, no experiments."""
    import principalflow.torch

    modules = {name: getattr(pf, name) for name in pf.__all__ if inspect.ismodule(getattr(pf, name))}
    modules = {"": pf, "torch": principalflow.torch, **modules}
    names = {f"Objective.{name}" for name, value in vars(pf.Objective).items() if inspect.isfunction(value)}
    for prefix, module in modules.items():
        for name, value in vars(module).items():
            if (
                name in module.__all__
                and callable(value)
                and not (inspect.isclass(value) and issubclass(value, Exception))
            ):
                names.add(f"{prefix}.{name}".strip("."))
    return {name for name in names if not name.startswith("reproduce.") and "._" not in name}
