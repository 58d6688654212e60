"""The curvature along an update: what is measured of it, exactly or by the paper's finite difference."""

from typing import Any, Literal, get_args

from principalflow import _checks

Curvature = Literal["hvp", "finite_difference"]
Measure = Literal["directional", "drift"]

# The paper's step of the finite difference along g, over the norm of g (appendix C).
FINITE_DIFFERENCE_STEP = 0.01


def checked_curvature(curvature: Any) -> Curvature:
    """Returns `curvature` if it is one of the two ways."""
    _checks.one_of("curvature", curvature, get_args(Curvature))
    return curvature


def checked_measure(measure: Any) -> Measure:
    """Returns `measure` if it is CDAT's or DAL's."""
    _checks.one_of("measure", measure, get_args(Measure))
    return measure
