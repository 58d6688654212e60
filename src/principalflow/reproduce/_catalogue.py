"""All experiments, in the order in which the paper tells its story."""

from principalflow.reproduce import (
    banana,
    bea_orders,
    breast_cancer,
    coefficients,
    complex_needed,
    cosine,
    flow_league,
    gradient_flow,
    iris_edge,
    motivation,
    quadratic_2d,
    small_mlp,
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
    small_mlp,
    breast_cancer,
    iris_edge,
    bea_orders,
    validating_bea,
    gradient_flow,
    flow_league,
)

EXPERIMENTS: dict[str, Experiment] = {module.EXPERIMENT.id: module.EXPERIMENT for module in _MODULES}
