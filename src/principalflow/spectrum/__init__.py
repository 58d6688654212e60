"""The Hessian's spectrum, from Hessian products alone: eigenpairs, density, trace, and functions of it."""

from principalflow.spectrum._block import Eigenpairs, block_eigenpairs
from principalflow.spectrum._density import Density, Trace, density, trace
from principalflow.spectrum._eigenpairs import top_eigenpairs
from principalflow.spectrum._krylov import Applied, apply

__all__ = [
    "Applied",
    "Density",
    "Eigenpairs",
    "Trace",
    "apply",
    "block_eigenpairs",
    "density",
    "top_eigenpairs",
    "trace",
]
