"""E(theta): a loss over a pytree of parameters, with the derivatives that flows and spectra need."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.tree_util import Partial
from jaxtyping import Array, Inexact, Int, PyTree

from principalflow import _checks, _derivatives, _loss, _pytrees
from principalflow._compiled import Programs, hashable
from principalflow._derivatives import Block, Vector

__all__ = ["Objective", "as_objective", "checked_theta"]


class Objective(eqx.Module):
    r"""A loss $E(\theta)$ and its derivatives.

    Its methods take $\theta$ flat, as a vector like `objective.theta`, or with the structure of `params`; derivatives
    are flat.

    Without data, `loss(params)` is the loss. With data, `loss(params, batch)` is the mean over the
    samples of `batch`, and everything here is the exact mean over all samples: chunks are weighted
    by their size, the ragged last one included.

    At complex `theta` all derivatives are the holomorphic ones, which the principal flow needs
    (paper, section 3). `loss` must then be built of holomorphic operations.

    Args:
        loss: `loss(params)` or `loss(params, batch)`, returning a real scalar (complex at complex parameters).
        params: Any pytree; its floating leaves are the parameters, all else is passed through.
        data: None, or a pytree of arrays whose leading axes all count the samples.
        chunk: The most samples to evaluate at once, which bounds memory; None for all.
        holomorphic: False to have the loss checked before a complex flow runs on it (the default),
            True to vouch for it, as for a loss that is holomorphic piece by piece.

    Warns:
        PrecisionWarning: For parameters in single precision where JAX's 64-bit switch is on.

    Raises:
        ValueError: For no or non-finite parameters or ones of less than 16 bits, empty or ragged data or ones that
            aren't numbers, chunk below 1, chunks with a node of `params` that needs the whole batch (one with an
            attribute `why_whole_batch`, a sentence), or a loss that takes other arguments, fails in JAX or doesn't
            return a floating-point scalar. Errors that the loss raises itself come through as they are. A loss without
            a derivative, such as a `jax.custom_vjp` without forward mode, is refused where that is asked for.

    Example:
        >>> import jax.numpy as jnp
        >>> import principalflow as pf
        >>> def loss(params, batch):
        ...     inputs, targets = batch
        ...     return jnp.mean((inputs * params["w"] + params["b"] - targets) ** 2)
        >>> inputs = jnp.arange(5.0)
        >>> data = (inputs, 2 * inputs)
        >>> objective = pf.Objective(loss, {"w": jnp.array(1.0), "b": jnp.array(0.0)}, data, chunk=2)
        >>> objective.theta
        Array([0., 1.], dtype=float64)
        >>> objective.gradient(objective.theta)
        Array([ -4., -12.], dtype=float64)
    """

    theta: Vector
    _loss: Callable
    _unravel: Callable
    _rest: PyTree
    _data: PyTree
    _programs: Programs
    chunk: int | None = eqx.field(static=True)
    vouched_holomorphic: bool = eqx.field(static=True)

    # Where values and derivatives come from, and which axis of a weight counts what it leads to; PyTorch has its own.
    _calculus = _derivatives
    output_axis = -1

    def __init__(
        self,
        loss: Callable,
        params: PyTree,
        data: PyTree = None,
        *,
        chunk: int | None = None,
        holomorphic: bool = False,
    ):
        self.theta, self._unravel, self._rest = _pytrees.flatten(params)
        self._data = _pytrees.samples_of(data)
        self._loss = hashable(_checks.function("loss", loss, *(("params",) if data is None else ("params", "batch"))))
        self._programs = Programs.of(self._loss)
        self.chunk = None if chunk is None else _checks.whole("chunk", chunk, least=1)
        self.vouched_holomorphic = _checks.flag("holomorphic", holomorphic)
        if self.in_chunks:
            _pytrees.refuse_chunks(params)
        self._check_scalar_loss()
        _checks.double_if_enabled("params", self.theta.dtype, stacklevel=5)  # past equinox

    def __getattribute__(self, name: str) -> Any:
        # Python's own bound methods, since `jax.jit(objective.gradient)` needs a hash: equinox's are trees of arrays.
        return object.__getattribute__(self, name)

    def __repr__(self) -> str:
        samples = "" if self.samples is None else f", {self.samples} samples"
        return f"<Objective: {self.theta.size} parameters of {self.theta.dtype}{samples}>"

    def unravel(self, theta: _checks.Numbers) -> PyTree:
        """Returns the pytree of parameters that `theta` is the flat form of.

        Raises:
            ValueError: For a `theta` that isn't a vector of `len(objective.theta)` numbers.

        Example:
            >>> import jax.numpy as jnp
            >>> import principalflow as pf
            >>> objective = pf.Objective(lambda p: p["a"] * p["b"][0], {"a": jnp.array(2.0), "b": jnp.ones(1)})
            >>> objective.unravel(objective.theta)["a"]
            Array(2., dtype=float64)
        """
        return eqx.combine(self._unravel(self.flat("theta", theta)), self._rest)

    def entries(self, select: Callable[[str], bool]) -> Int[Array, " d"]:
        """Returns the positions in theta of the leaves whose path `select` is true for.

        Args:
            select: A function of a path such as `"['b']"` or `".layers[1].weight"`, true for the leaves to take.

        Returns:
            The positions, in increasing order.

        Raises:
            ValueError: If it is no function, or true for no path; the message lists the paths.

        Example:
            >>> import jax.numpy as jnp
            >>> import principalflow as pf
            >>> objective = pf.Objective(lambda p: p["a"] * p["b"][0], {"a": jnp.array(2.0), "b": jnp.ones(2)})
            >>> objective.entries(lambda path: path == "['b']")
            Array([1, 2], dtype=int64)
        """
        return jnp.asarray(_pytrees.entries(self._unravel(self.theta), select))

    @property
    def samples(self) -> int | None:
        """The number of samples, or None without data."""
        leaves = jax.tree.leaves(self._data)
        return leaves[0].shape[0] if leaves else None

    def first(self, samples: int | None) -> "Objective":
        """Returns the same loss over the first `samples` samples only; all for None, or where there are fewer.

        Raises:
            ValueError: For samples below 1.
        """
        if samples is not None:
            samples = _checks.whole("samples", samples, least=1, most=None)
        return self._with(jax.tree.map(lambda leaf: leaf[:samples], self._data))

    def value(self, theta: _checks.Numbers | PyTree) -> Inexact[Array, ""]:
        """Returns the loss $E$ at `theta`.

        Raises:
            ValueError: For a `theta` that is neither a vector of `len(objective.theta)` numbers nor has the structure
                of the parameters; the same below.

        Example:
            >>> import principalflow as pf
            >>> pf.functions.banana().value([1.0, 2.0])
            Array(100., dtype=float64)
            >>> pf.Objective(lambda params: params["w"] ** 2, {"w": 1.0}).value({"w": 3.0})
            Array(9., dtype=float64)
        """
        return self._calculus.value(self, self.flat("theta", theta))

    def gradient(self, theta: _checks.Numbers | PyTree) -> Vector:
        r"""Returns the gradient $g = \nabla E$ at `theta`.

        Example:
            >>> import principalflow as pf
            >>> pf.functions.banana().gradient([1.0, 2.0])
            Array([-400.,  200.], dtype=float64)
        """
        return self.value_and_gradient(theta)[1]

    def value_and_gradient(self, theta: _checks.Numbers | PyTree) -> tuple[Inexact[Array, ""], Vector]:
        """Returns the loss and its gradient at `theta`, for the price of the gradient."""
        theta = self.flat("theta", theta)
        with _loss.needs("loss", "a gradient"):
            return self._calculus.value_and_gradient(self, theta)

    def hvp(self, theta: _checks.Numbers | PyTree, v: _checks.Numbers) -> Vector | Block:
        r"""Returns the Hessian product $\nabla^2 E\, v$ at `theta`, by forward over reverse mode.

        Args:
            theta: Where to take the Hessian.
            v: A vector (D,), or a block (D, k) whose columns are multiplied at once.

        Example:
            >>> import jax.numpy as jnp
            >>> import principalflow as pf
            >>> bowl = pf.functions.quadratic(jnp.diag(jnp.array([1.0, 3.0])))
            >>> bowl.hvp(bowl.theta, jnp.array([1.0, 1.0]))
            Array([1., 3.], dtype=float64)
        """
        theta, v = self.flat("theta", theta), self._columns("v", v)
        with _loss.needs("loss", _loss.PRODUCTS):
            return self._calculus.hvp(self, theta, v)

    def hessian(self, theta: _checks.Numbers | PyTree) -> Inexact[Array, "D D"]:
        r"""Returns the dense Hessian $\nabla^2 E$ at `theta`: D products, so for small D.

        Raises:
            ValueError: For a Hessian beyond the memory that is available, before any work.

        Example:
            >>> import principalflow as pf
            >>> pf.functions.banana().hessian([1.0, 1.0])
            Array([[ 802., -400.],
                   [-400.,  200.]], dtype=float64)
        """
        theta = self.flat("theta", theta)
        size = theta.size
        _checks.fits("theta", 2 * size**2 * theta.itemsize, f"a Hessian and an identity of {size} x {size} numbers")
        with _loss.needs("loss", _loss.PRODUCTS):
            return self._calculus.hessian(self, theta)

    def third(self, theta: _checks.Numbers | PyTree, u: _checks.Numbers, v: _checks.Numbers) -> Vector | Block:
        r"""Returns the third derivatives contracted twice, $\nabla^3 E[u, v]$, as a vector.

        With $u = v = g$ it is the paper's $\nabla E^T (\nabla^3 E) \nabla E$ (section 3), whole:
        nested forward mode over the gradient, with no dense tensor. Blocks are taken column by column.

        Raises:
            ValueError: For wrong shapes, blocks with different numbers of columns, or complex ones at real theta.

        Example:
            >>> import jax.numpy as jnp
            >>> import principalflow as pf
            >>> cubes = pf.Objective(lambda theta: jnp.sum(theta**3), jnp.ones(2))
            >>> cubes.third(cubes.theta, jnp.array([1.0, 2.0]), jnp.array([3.0, 4.0]))  # 6 u v
            Array([18., 48.], dtype=float64)
        """
        theta = self.flat("theta", theta)
        u, v = self._columns("u", u), self._columns("v", v)
        if u.shape != v.shape:
            raise ValueError(f"u and v must have the same shape, got {u.shape} and {v.shape}.")
        if not jnp.iscomplexobj(theta) and (jnp.iscomplexobj(u) or jnp.iscomplexobj(v)):
            raise ValueError(f"u and v must be real where theta is real, got {u.dtype} and {v.dtype}.")
        with _loss.needs("loss", "third derivatives, which are taken in forward mode of the gradient"):
            return self._calculus.third(self, theta, u, v)

    def linearize(self, theta: _checks.Numbers | PyTree) -> tuple[Vector, Callable[[Vector], Vector]]:
        """Returns the gradient at `theta` and the function `v -> Hessian v` there.

        Where all samples are evaluated at once the products share one forward and backward pass,
        which halves their price; with chunks each product makes its own, to keep memory bounded.

        Raises:
            ValueError: For a `theta`, or later a `v`, that isn't a vector of `len(objective.theta)` numbers.

        Example:
            >>> import jax.numpy as jnp
            >>> import principalflow as pf
            >>> gradient, product = pf.functions.banana().linearize([1.0, 1.0])
            >>> product(jnp.array([1.0, 0.0]))
            Array([ 802., -400.], dtype=float64)
        """
        theta = self.flat("theta", theta)
        if self._piece is not None:
            return self.gradient(theta), lambda v: self.hvp(theta, self.flat("v", v))
        with _loss.needs("loss", _loss.PRODUCTS):
            gradient, product = self._calculus.linearize(self, theta)
        return gradient, Partial(_derivatives.times, product, theta)

    def function(self) -> Callable[[Vector], Inexact[Array, ""]]:
        """Returns the loss as a plain function of theta, for `jax.grad` and what else takes one.

        Its first and second derivatives are those of this objective, in chunks where there are: JAX's own would keep
        what all chunks need in memory at once.

        Example:
            >>> import jax
            >>> import principalflow as pf
            >>> jax.grad(pf.functions.banana().function())(jax.numpy.array([1.0, 2.0]))
            Array([-400.,  200.], dtype=float64)
        """
        if not self.in_chunks:
            return self.value
        return _derivatives.differentiable(self.value, self.gradient, self.hvp)

    def over(self, data: PyTree) -> "Objective":
        """Returns the same loss over other samples, such as those for testing.

        Raises:
            ValueError: For data of another structure or another kind of numbers than the objective's, ragged or empty
                ones.
        """
        return self._with(_pytrees.samples_like(data, self._data))

    def batch(self, index: Int[Array, " b"]) -> "Objective":
        """Returns the same loss over the samples at `index` only.

        Under `jax.jit` the numbers of a traced index aren't known, so its range can't be checked: as everywhere in JAX,
        one beyond the end takes the last sample.

        Raises:
            ValueError: For an objective without data, or an index that isn't a vector of whole numbers from 0 to the
                number of samples less 1.
        """
        if self.samples is None:
            raise ValueError("index needs an objective with data, this one was made without.")
        index = _pytrees.positions(index, self.samples)
        return self._with(jax.tree.map(lambda leaf: leaf[index], self._data))

    def _with(self, data: PyTree) -> "Objective":
        other = eqx.tree_at(lambda o: o._data, self, data, is_leaf=lambda x: x is None)
        if other.in_chunks:
            _pytrees.refuse_chunks(self._rest)
        return other

    def flat(self, name: str, theta: _checks.Numbers | PyTree) -> Vector:
        """Returns `theta`, flat or with the structure of the parameters, as a vector; a ValueError has its `name`."""
        if getattr(theta, "shape", None) != self.theta.shape:
            params = self.unravel(self.theta)
            if not _pytrees.is_flat(theta, params):
                return _pytrees.flattened(name, theta, params)
        hint = "objective.theta is the flat form of the parameters that the objective was made with."
        try:
            array = _checks.inexact(name, theta, self.theta.dtype)
        except ValueError as error:
            raise ValueError(f"{error} {hint}") from error
        if array.shape != self.theta.shape:
            raise ValueError(f"{name} must be flat with shape {self.theta.shape}, got shape {array.shape}. {hint}")
        return array

    def _columns(self, name: str, v: _checks.Numbers) -> Array:
        array = _checks.inexact(name, v, self.theta.dtype)
        if array.ndim not in (1, 2) or array.shape[0] != self.theta.size:
            size = self.theta.size
            raise ValueError(f"{name} must have shape ({size},) or ({size}, k), got {array.shape}.")
        return array

    @property
    def in_chunks(self) -> bool:
        """Whether the samples are evaluated in more than one piece."""
        return self._piece is not None

    @property
    def _piece(self) -> int | None:
        """Samples per evaluation, or None if all are evaluated at once."""
        at_once = self.samples is None or self.chunk is None or self.chunk >= self.samples
        return None if at_once else self.chunk

    def _on_batch(self, theta: Vector, batch: PyTree) -> Inexact[Array, ""]:
        """Returns the mean loss over a batch of the data's structure; None for a loss without data."""
        params = self.unravel(theta)
        at = "complex params" if jnp.iscomplexobj(theta) else "params" if batch is None else "params and data"
        with _loss.evaluated("loss", at):
            value = self._loss(params) if batch is None else _loss.of_batch(self._loss, params, batch, theta.dtype)
        if jnp.iscomplexobj(theta) and not jnp.iscomplexobj(value):
            raise ValueError("The loss returns a real number at complex parameters, so it has no derivative there.")
        return value

    def _check_scalar_loss(self) -> None:
        value = eqx.filter_eval_shape(lambda o: o._on_batch(o.theta, o.first(self.chunk or self.samples)._data), self)
        _loss.check_value(value, self.theta.dtype)


def as_objective(value: Any) -> Objective:
    """Returns `value` if it is an `Objective`, or raises a ValueError that says how to make one."""
    if not isinstance(value, Objective):
        raise ValueError(
            f"objective must be a principalflow.Objective(loss, params, data), got a {type(value).__name__}."
        )
    return value


def checked_theta(objective: Objective, theta: _checks.Numbers | PyTree, *, half: bool = True) -> Vector:
    """Returns `theta` as a flat array if the objective takes it and it is finite, or raises a ValueError.

    It may have the structure of the parameters that the objective was made with. If `half` is False, half precision is
    refused too.
    """
    objective = as_objective(objective)
    theta = objective.flat("theta", theta)
    if not half:
        _checks.single_or_double("theta", theta)
    _checks.finite("theta", theta)
    return theta
