"""All experiments, in the order in which the paper tells its story."""

from principalflow.reproduce import (
    bea_orders,
    breast_cancer,
    coefficients,
    complex_needed,
    iris_edge,
    motivation,
    quadratic_2d,
    small_mlp,
    z_square,
)
from principalflow.reproduce._experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.id: module.EXPERIMENT
    for module in (
        motivation,
        complex_needed,
        coefficients,
        z_square,
        quadratic_2d,
        small_mlp,
        breast_cancer,
        iris_edge,
        bea_orders,
    )
}
