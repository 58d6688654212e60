"""The Hessian's spectrum: what it does to vectors, from Hessian products alone."""

from principalflow.spectrum._krylov import Applied, apply

__all__ = ["Applied", "apply"]
