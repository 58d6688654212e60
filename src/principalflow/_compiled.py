"""Compilation that lasts as long as the loss it is for.

What `equinox.filter_jit` compiles stays for as long as the process lives, and with it the loss and all that the loss
closes over. Here it belongs to the objectives with that loss, and goes with the last of them.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any
from weakref import WeakValueDictionary, ref

import equinox as eqx
import jax

from principalflow._cache import keep_programs

# Stands for the programs themselves where they are part of what they were compiled for: else they would never go.
_THESE = object()


class Programs:
    """The compiled functions of one loss, a leaf of the objectives that share it."""

    def __init__(self):
        keep_programs()
        self._programs: dict[tuple, Callable] = {}

    def __reduce__(self) -> tuple:
        """Copies and pickles begin with none: programs can't be saved, and are compiled anew."""
        return type(self), ()

    @classmethod
    def of(cls, loss: Callable) -> "Programs":
        """Returns those of a loss, which may be a pytree; its arrays are arguments of the programs."""
        return _OF_LOSSES.setdefault(_fixed_part(loss), cls())

    def run(self, function: Callable, arguments: tuple) -> Any:
        """Returns what `function` returns, compiled once for each shape and for each of what isn't an array."""
        program, arrays = self._prepared(function, arguments)
        arrays, rest = program(arrays)
        return eqx.combine(arrays, rest.value)

    def bound(self, function: Callable, arguments: tuple) -> Callable[[Any], Any]:
        """Returns a function of the last argument, an array; what comes before it is looked at once."""
        program, arrays = self._prepared(function, arguments)
        return lambda last: program([*arrays[:-1], last])[0]

    def _prepared(self, function: Callable, arguments: tuple) -> tuple[Callable, list]:
        leaves, structure = jax.tree.flatten(arguments)
        arrays = [leaf if eqx.is_array(leaf) else None for leaf in leaves]
        rest = tuple(None if eqx.is_array(leaf) else _THESE if leaf is self else leaf for leaf in leaves)
        key = function, structure, _with_types(rest)
        program = self._programs.get(key) or self._programs.setdefault(key, self._program(function, structure, rest))
        return program, arrays

    def _program(self, function: Callable, structure: Any, rest: tuple) -> Callable:
        these = ref(self)

        # What isn't an array is part of the program, and no static argument: JAX never forgets those.
        def program(arrays: list) -> tuple[Any, _Fixed]:
            pairs = zip(arrays, rest, strict=True)
            leaves = [these() if other is _THESE else other if array is None else array for array, other in pairs]
            returned, others = eqx.partition(function(*jax.tree.unflatten(structure, leaves)), eqx.is_array)
            return returned, _Fixed(others)

        program.__name__ = program.__qualname__ = function.__name__
        return jax.jit(program)


_OF_LOSSES: WeakValueDictionary[tuple, Programs] = WeakValueDictionary()


@jax.tree_util.register_static
class _Fixed:
    """What a program returns besides arrays."""

    def __init__(self, value: Any):
        self.value = value


def hashable(loss: Callable) -> Callable:
    """Returns the loss, within a function of its own if it has no hash to be known by."""
    try:
        hash(_fixed_part(loss))
        return loss
    except TypeError:
        return lambda *arguments: loss(*arguments)


def compiled(function: Callable) -> Callable:
    """Compiles a function of positional arguments, an objective among them; arrays are traced, all else is fixed."""

    @wraps(function)
    def run(*arguments: Any) -> Any:
        return _programs_in(arguments).run(function, arguments)

    return run


def bound(function: Callable, *arguments: Any) -> Callable[[Any], Any]:
    """Returns a function, which returns arrays alone, compiled as a function of the last argument, an array.

    Where it is called a thousand times, its other arguments are looked at once.
    """
    return _programs_in(arguments).bound(function, arguments)


def _programs_in(arguments: tuple) -> Programs:
    return next(leaf for leaf in jax.tree.leaves(arguments) if isinstance(leaf, Programs))


def _fixed_part(loss: Callable) -> tuple:
    leaves, structure = jax.tree.flatten(loss)
    return structure, _with_types(None if eqx.is_array(leaf) else leaf for leaf in leaves)


def _with_types(leaves: Iterable) -> tuple:
    """Returns the leaves as part of a key: with their types, or else True would be taken for 1."""
    return tuple((type(leaf), leaf) for leaf in leaves)
