"""All experiments, in the order in which the paper tells its story."""

from principalflow.reproduce import (
    banana,
    bea_orders,
    breast_cancer,
    coefficients,
    complex_needed,
    cosine,
    edge,
    flow_league,
    gradient_flow,
    instabilities,
    iris_edge,
    local_flows,
    lower_rate,
    motivation,
    one_direction,
    projection_dynamics,
    projection_prediction,
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
    edge,
    projection_prediction,
    local_flows,
    instabilities,
    one_direction,
    projection_dynamics,
    lower_rate,
    flow_league,
)

EXPERIMENTS: dict[str, Experiment] = {module.EXPERIMENT.id: module.EXPERIMENT for module in _MODULES}
