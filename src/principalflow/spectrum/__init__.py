"""The Hessian's spectrum, from Hessian products alone: eigenpairs, density, trace, and functions of it."""

from principalflow.spectrum._block import (
    Eigenpairs,
    block_eigenpairs,
    block_eigenpairs_and_product,
)
from principalflow.spectrum._density import Density, Trace, density, trace
from principalflow.spectrum._eigenpairs import eigenpairs_and_gradient, sharpness, top_eigenpairs
from principalflow.spectrum._krylov import Applied, apply, krylov, krylov_and_space
from principalflow.spectrum._memory import basis_memory, check_memory
from principalflow.spectrum._trail import Trail

__all__ = [
    "Applied",
    "Density",
    "Eigenpairs",
    "Trace",
    "Trail",
    "apply",
    "basis_memory",
    "block_eigenpairs",
    "block_eigenpairs_and_product",
    "check_memory",
    "density",
    "eigenpairs_and_gradient",
    "krylov",
    "krylov_and_space",
    "sharpness",
    "top_eigenpairs",
    "trace",
]
