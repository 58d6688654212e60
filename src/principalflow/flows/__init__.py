"""Continuous-time models of gradient descent, and their integration."""

from principalflow.flows._central import Central, CentralState
from principalflow.flows._central_rmsprop import CentralRMSProp, CentralRMSPropState
from principalflow.flows._compare import compare
from principalflow.flows._flipped import FlippedDirection
from principalflow.flows._flow import (
    COMPLEX_COST,
    CONTRACTION_COST,
    PRODUCT_COST,
    Field,
    Flow,
    RateFlow,
    SpectralFlow,
    as_flow,
)
from principalflow.flows._gradient import NegativeGradient, PositiveGradient
from principalflow.flows._integrate import Solution, integrate
from principalflow.flows._logarithm import phi
from principalflow.flows._modified import ImplicitGradientRegularization, ThirdOrder
from principalflow.flows._pair import Pair, PairState
from principalflow.flows._principal import Principal, PrincipalThirdOrder
from principalflow.flows._quadratic import solve_quadratic
from principalflow.flows._rod import Rod, RodState
from principalflow.flows._step_flow import OptaxState, StepFlow
from principalflow.flows._steps import BackwardError, TwoStep
from principalflow.flows._tracked import TrackedState
from principalflow.flows._two_point import TwoPoint, TwoPointState

IGR = ImplicitGradientRegularization

__all__ = [
    "COMPLEX_COST",
    "CONTRACTION_COST",
    "IGR",
    "PRODUCT_COST",
    "BackwardError",
    "Central",
    "CentralRMSProp",
    "CentralRMSPropState",
    "CentralState",
    "Field",
    "FlippedDirection",
    "Flow",
    "ImplicitGradientRegularization",
    "NegativeGradient",
    "OptaxState",
    "Pair",
    "PairState",
    "PositiveGradient",
    "Principal",
    "PrincipalThirdOrder",
    "RateFlow",
    "Rod",
    "RodState",
    "Solution",
    "SpectralFlow",
    "StepFlow",
    "ThirdOrder",
    "TrackedState",
    "TwoPoint",
    "TwoPointState",
    "TwoStep",
    "as_flow",
    "compare",
    "integrate",
    "phi",
    "solve_quadratic",
]
