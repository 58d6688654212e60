"""An optax optimiser's average of squared gradients, at every step and without reading the optimiser anew."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, PyTree

from principalflow.optimizers._edge import Edge


class Moment(NamedTuple):
    """An average of squared gradients as it is in the state, and what corrects it for its start.

    Attributes:
        average: A tree like the parameters.
        decay: b2, or 0 for an average that isn't corrected.
        count: The number of steps.
    """

    average: PyTree
    decay: Array
    count: Array  # pyright: ignore[reportIncompatibleMethodOverride]

    @property
    def share(self) -> Array:
        """How much of the average is not its start; the corrected one is the average over this."""
        return 1 - self.decay**self.count


class SecondMoment:
    """Finds the average in one state after another; which correction it has is read once.

    Args:
        read: Reads the optimiser.
        size: How many parameters there are.
    """

    def __init__(self, read: Callable[[optax.OptState, PyTree], Edge], size: int):
        self._read, self._size = read, size
        self._decay: Array | None = None

    def __call__(self, state: optax.OptState, params: PyTree) -> Moment | None:
        """Returns the average; None where there is none, or not one for all parameters."""
        nodes = [node for node in jax.tree.leaves(state, is_leaf=_has_average) if _has_average(node)]
        if len(nodes) != 1 or sum(leaf.size for leaf in jax.tree.leaves(nodes[0].nu)) != self._size:
            return None
        if self._decay is None:
            edge = self._read(state, params)
            if edge.second_moment is None:
                return None
            self._decay = jnp.asarray(edge.beta2)
        return Moment(nodes[0].nu, self._decay, jnp.asarray(getattr(nodes[0], "count", 1)))


def _has_average(node: Any) -> bool:
    return hasattr(node, "nu")
