"""How many vectors a search for eigenpairs holds, and the memory that they take."""

from typing import Any

from principalflow import _checks

# Vectors beyond the k that are asked for: they meet a cluster or a swap of order before it matters. The first is
# multiplied where it may have come beyond the k-th. A search has a second, for what it finds; a start from nothing has
# three.
GUARDS, SEARCH_GUARDS, COLD_GUARDS = 1, 2, 3
# On CPUs blocks of up to so many vectors are multiplied by one program, which has room for them and their products.
AT_ONCE = 8


def check_memory(name: str, k: int, vector: Any) -> None:
    """Raises if `name`, k eigenpairs of vectors like this one, asks for more memory than is free."""
    count, size = _vectors(k) + 2 * AT_ONCE, vector.shape[0]
    _checks.fits(name, count * size * vector.dtype.itemsize, f"{count} vectors of {size} numbers")


def basis_memory(k: int, size: int, *, itemsize: int = 4) -> int:
    """Returns the bytes that a search for k eigenpairs of an operator of this size takes at the most.

    They are those of the basis, its products, the vectors that are being multiplied, and those that a later search
    starts from.

    Args:
        k: How many pairs.
        size: The number of parameters.
        itemsize: The bytes of a number: 4 in single precision, 8 in double.

    Raises:
        ValueError: For a k, size or itemsize below 1.

    Example:
        >>> import principalflow as pf
        >>> f"{pf.spectrum.basis_memory(1, 10**9) / 2**30:.0f} GiB"
        '220 GiB'
    """
    k, size = _checks.whole("k", k, least=1), _checks.whole("size", size, least=1, most=None)
    kept = 3 * (k + GUARDS) + 1
    return (_vectors(k) + 2 * AT_ONCE + kept) * size * _checks.whole("itemsize", itemsize, least=1)


def _vectors(k: int) -> int:
    """How many vectors a basis with its products has at the most."""
    return 2 * room(k, COLD_GUARDS)


def room(wanted: int, guards: int) -> int:
    """How many vectors a basis has room for before it must be restarted."""
    width = wanted + max(guards, SEARCH_GUARDS)  # for a search too, so that JAX has one shape for both
    return 4 * width + max(2, width // 4)
