"""The table of what is called: the arguments that work, and what else is thrown at each of them."""

from importlib.util import find_spec

from hostile.analysis import ANALYSIS, PICTURES
from hostile.objective import DYNAMICS, OBJECTIVE
from hostile.optimizers import OPTIMIZERS, torch_calls
from hostile.training import MODELS, RUNS

CALLS = [
    *(*OBJECTIVE, *DYNAMICS, *ANALYSIS, *PICTURES, *OPTIMIZERS, *MODELS, *RUNS),
    *(torch_calls() if find_spec("torch") else []),
]
