"""All experiments, in the order in which the paper tells its story."""

from principalflow.reproduce import (
    bea_orders,
    coefficients,
    complex_needed,
    flow_league,
    motivation,
    quadratic_2d,
    z_square,
)
from principalflow.reproduce._experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.id: module.EXPERIMENT
    for module in (motivation, complex_needed, coefficients, z_square, quadratic_2d, bea_orders, flow_league)
}
