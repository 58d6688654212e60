"""A PyTorch model's loss as a `principalflow.Objective`, for all of the library."""

# pyright: reportMissingImports=false

import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jaxtyping import Array, Int, PyTree
from torch import Tensor, nn

from principalflow import _checks
from principalflow._holomorphic import off_the_real_axis, require_holomorphic
from principalflow.objective import Objective, Vector
from principalflow.torch import _calculus
from principalflow.torch._derivatives import RandomState
from principalflow.torch._model import ModelLoss
from principalflow.torch._products import Option
from principalflow.torch._stand_in import unwrapped, wide

_NEEDED = "A complex flow, such as Principal, needs a loss that is holomorphic in the parameters"


def objective(
    model: nn.Module,
    loss: Callable | None = None,
    data: Any = None,
    *,
    select: Callable[[str], bool] | None = None,
    train_mode: bool | None = None,
    products: Option = "auto",
) -> "ModelObjective":
    r"""Returns the loss of a PyTorch model as a `principalflow.Objective`, for everything that takes one.

    PyTorch computes the loss $E(\theta)$, its gradient, Hessian products and third derivatives, and JAX calls it from
    its programs: `descend`, `compare` and `integrate` with all flows, `spectrum`, `stability`, `drift`, `landscape` and
    `Monitor` work as they do on a loss in JAX. A method that is called by itself goes straight to PyTorch.

    `theta` has the parameters that require gradients, in the model's order, as they are when the objective is made.
    Wherever a `theta` is asked for, the model may be given for its parameters as they are then, or tensors by their
    names, as `state_dict()` has them. The model is left as it is, but must not be used while a JAX program still runs
    (`jax.block_until_ready`); `write` puts a `theta` into it. Random numbers, such as dropout's, are the same at every
    `theta`.

    Complex flows evaluate the model with complex parameters, buffers and inputs. They are refused where PyTorch has no
    such operations, as for relu, `mse_loss` and cross-entropies, or the loss isn't holomorphic.

    Args:
        model: The model. Parameters in half precision are measured in single precision, as everything then is.
        loss: `loss(model(inputs), targets)` for a batch `(inputs, targets)`, and `loss(model(**batch), batch)` for a
            mapping, a mean over the batch; without data, `loss(model)`. None for a loss that the model computes itself:
            `model(inputs, targets)` or `model(**batch)` returns an object or a mapping with it as `loss`.
        data: One batch; or several, in a list, a `DataLoader` or whatever else can be iterated again, which are
            weighted by their numbers of samples. One batch has its graph kept, which halves the price of products.
        select: A function of a parameter's name, like `"layers.0.weight"`, true for those to have in `theta`.
        train_mode: True or False for training or evaluation mode; None for that which the model is in.
        products: How to multiply by the Hessian: `"exact"`, by two backward passes; by `"differences"` of the gradient;
            or `"auto"`, exactly where PyTorch has second derivatives. `how` of the objective says which it is.

    Returns:
        The objective.

    Raises:
        ValueError: For a model without parameters to train, or in double precision where JAX's 64-bit switch is off; a
            loss or data that don't fit; or exact products where there are none.

    Warns:
        PrecisionWarning: For a model in single precision where JAX's 64-bit switch is on.

    Example:
        >>> import torch
        >>> import principalflow as pf
        >>> from principalflow.torch import objective
        >>> model = torch.nn.Linear(1, 1, bias=False).double()
        >>> data = torch.full((4, 1), 2.0).double(), torch.ones(4, 1).double()
        >>> bowl = objective(model, torch.nn.functional.mse_loss, data)
        >>> pf.spectrum.top_eigenpairs(bowl, model, k=1).values
        array([8.])
        >>> path = pf.descend(bowl, [1.0], h=0.1, steps=2)
        >>> path.thetas[:, 0]
        Array([1.  , 0.6 , 0.52], dtype=float64)
        >>> bowl.write(path.thetas[-1])
        >>> round(model.weight.item(), 12)
        0.52
    """
    return ModelObjective(ModelLoss(model, loss, data, select=select, train_mode=train_mode, products=products))


class ModelObjective(Objective):
    """The loss of a PyTorch model; `principalflow.torch.objective` makes it."""

    _calculus = _calculus
    output_axis = 0

    def __init__(self, of: ModelLoss):
        if of.is_sharded:
            raise ValueError("model must be in one piece, as JAX has no part in its processes; it is sharded.")
        of.random = of.random or RandomState(of.params())
        _check_precision(of.theta().dtype)
        with _checks.renamed(params="model"), _checks.chosen_precision():
            super().__init__(_calculus.Host(of), _arrays(of.named_params()))
        self.host.settle()

    @property
    def host(self) -> _calculus.Host:
        """The model, its loss and its data, as JAX calls them."""
        return self._loss  # pyright: ignore[reportReturnType]

    @property
    def how(self) -> str:
        """How Hessian products are made, in a sentence."""
        return self.host.of.products.how

    def write(self, theta: _checks.Numbers | PyTree) -> None:
        """Writes parameters into the model.

        Raises:
            ValueError: For a `theta` that isn't real, or doesn't fit.
        """
        named = self.unravel(self.flat("theta", theta))
        params = self.host.of.named_params()
        if any(jnp.iscomplexobj(array) for array in named.values()):
            raise ValueError("theta must be real, as the model's parameters are, got complex numbers.")
        with torch.no_grad():
            for name, array in named.items():
                params[name].copy_(torch.tensor(np.asarray(array)))

    def over(self, data: Any) -> "ModelObjective":
        """Returns the same loss over other data, of PyTorch."""
        return ModelObjective(self.host.of.over(data))

    def batch(self, index: Int[Array, " b"]) -> Objective:
        """Raises a ValueError: data of PyTorch aren't indexed."""
        raise ValueError("index needs data that JAX knows; objective.over(batch) takes a batch of PyTorch's.")

    def entries(self, select: Callable[[str], bool]) -> Int[Array, " d"]:
        """Returns the positions in theta of the parameters whose name, like `"layers.0.weight"`, `select` is true for.

        Raises:
            ValueError: If it is no function, or true for no name; the message lists the names.
        """
        _checks.function("select", select, "name")
        params = self.unravel(self.theta)
        index = np.flatnonzero(np.concatenate([np.full(p.size, bool(select(name))) for name, p in params.items()]))
        if not index.size:
            raise ValueError(f"select must be true for at least one name, but it is for none of {', '.join(params)}.")
        return jnp.asarray(index)

    def flat(self, name: str, theta: Any) -> Vector:
        """Returns a vector, a model's parameters or tensors by their names as a vector of the model's precision."""
        if isinstance(theta, nn.Module):
            theta = dict(unwrapped(theta).named_parameters())
        if isinstance(theta, Mapping) and any(isinstance(value, Tensor) for value in theta.values()):
            names = self.host.of.named_params()
            missing = [each for each in names if each not in theta]
            if missing:
                raise ValueError(f"{name} must have the parameters of the objective's model, got no {missing[0]}.")
            theta = _arrays({each: theta[each] for each in names})
        if isinstance(theta, Tensor):
            theta = _arrays({name: theta})[name]
        array = super().flat(name, theta)
        dtype = self.theta.dtype
        return array.astype(jnp.promote_types(dtype, jnp.complex64) if jnp.iscomplexobj(array) else dtype)


@require_holomorphic.register
def _(objective: ModelObjective, theta: Vector) -> None:
    near = torch.tensor(np.asarray(off_the_real_axis(theta)))
    try:
        violation = objective.host.of.here(near).cauchy_riemann_violation()
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(
            f"The model can't be evaluated at complex parameters. {_NEEDED}. PyTorch says: {error}"
        ) from error
    if not violation <= torch.finfo(near.dtype).eps ** 0.5:
        raise ValueError(f"The loss violates the Cauchy-Riemann equations by {violation:.1e}. {_NEEDED}.")


def _arrays(named: Mapping[str, Tensor]) -> OrderedDict[str, np.ndarray]:
    return OrderedDict((name, wide(tensor.detach()).numpy(force=True)) for name, tensor in named.items())


def _check_precision(dtype: torch.dtype) -> None:
    is_double = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    if dtype == torch.float64 and not is_double:
        raise ValueError(
            'model is float64, which JAX can only hold after jax.config.update("jax_enable_x64", True), to be called '
            "before any array is made; or give model.float()."
        )
    if dtype == torch.float32 and is_double:
        text = (
            "model is float32 though JAX's 64-bit switch is on, so that all is computed in float32. For float64 give "
            'model.double() and such data. If float32 is meant: warnings.simplefilter("ignore", '
            "principalflow.PrecisionWarning)."
        )
        warnings.warn(text, _checks.PrecisionWarning, stacklevel=6)
