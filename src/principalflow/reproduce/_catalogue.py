"""All experiments, in the order in which the paper tells its story."""

from principalflow.reproduce import (
    banana,
    bea_orders,
    coefficients,
    complex_needed,
    cosine,
    flow_league,
    gradient_flow,
    motivation,
    quadratic_2d,
    validating_bea,
    z_square,
)
from principalflow.reproduce._experiment import Experiment

_MODULES = (
    motivation,
    complex_needed,
    coefficients,
    z_square,
    quadratic_2d,
    banana,
    cosine,
    bea_orders,
    validating_bea,
    gradient_flow,
    flow_league,
)

EXPERIMENTS: dict[str, Experiment] = {module.EXPERIMENT.id: module.EXPERIMENT for module in _MODULES}
