"""Continuous-time models of gradient descent, and their integration."""

from principalflow.flows._flipped import FlippedDirection
from principalflow.flows._flow import Field, Flow, RateFlow, SpectralFlow
from principalflow.flows._gradient import NegativeGradient, PositiveGradient
from principalflow.flows._modified import BackwardError, ImplicitGradientRegularization, ThirdOrder
from principalflow.flows._principal import Principal, PrincipalThirdOrder
from principalflow.flows._quadratic import solve_quadratic

IGR = ImplicitGradientRegularization

__all__ = [
    "IGR",
    "BackwardError",
    "Field",
    "FlippedDirection",
    "Flow",
    "ImplicitGradientRegularization",
    "NegativeGradient",
    "PositiveGradient",
    "Principal",
    "PrincipalThirdOrder",
    "RateFlow",
    "SpectralFlow",
    "ThirdOrder",
    "solve_quadratic",
]
