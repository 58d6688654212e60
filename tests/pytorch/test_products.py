"""Hessian products, exact where there are second derivatives and else by differences of the gradient."""

import math
import shutil

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0 runs these tests")

import torch
from pytorch.nets import LARGE, SMALL, mean_square, sentences, tanh_network, tensors, transformer
from torch import nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from principalflow.torch import CDAT, DAL
from principalflow.torch._model import ModelLoss
from principalflow.torch._products import Differences


def network_loss(dtype, products, scale=1.0):
    x, y = tensors(LARGE, dtype)
    return ModelLoss(tanh_network(LARGE, dtype), mean_square, (scale * x, y), products=products)


def transformer_loss(dtype, products):
    return ModelLoss(transformer(dtype), None, sentences(), products=products)


def directions(of):
    """A random direction and the gradient's."""
    gradient = of.here().loss_and_gradient()[1]
    random = torch.randn(gradient.numel(), generator=torch.Generator().manual_seed(0)).to(gradient)
    return torch.stack([random, gradient], 1)


def errors(of, exact):
    """Of each product, relative to it."""
    block = directions(exact)
    found, expected = (loss.here().times(block) for loss in (of, exact))
    return ((found - expected).norm(dim=0) / expected.norm(dim=0)).tolist()


@pytest.mark.parametrize("loss", [network_loss, transformer_loss])
@pytest.mark.parametrize(("dtype", "most"), [(torch.float64, 1e-8), (torch.float32, 1e-2)])
def test_differences_are_the_exact_products_within_their_error(loss, dtype, most):
    of, exact = loss(dtype, "differences"), loss(dtype, "exact")
    found = errors(of, exact)
    assert of.products.differences.error < most
    assert found[1] < 2 * of.products.differences.error
    assert max(found) < most
    assert not of.products.is_exact
    assert exact.products.is_exact


@pytest.mark.parametrize("scale", [1e-2, 1.0, 100.0])
def test_the_step_fits_losses_that_are_flat_or_sharp(scale):
    of, exact = (network_loss(torch.float64, products, scale) for products in ("differences", "exact"))
    assert errors(of, exact)[1] < 1e-7
    assert of.products.differences.error < 1e-6


def test_a_step_for_flat_losses_would_be_too_long_for_sharp_ones():
    exact, flat, sharp = (
        network_loss(torch.float64, products, scale)
        for products, scale in (("exact", 300.0), ("differences", 1.0), ("differences", 300.0))
    )
    flat.here().times(directions(flat))
    flat._data = exact._data
    assert errors(flat, exact)[1] > 3 * errors(sharp, exact)[1]


def counted(function):
    calls = []

    def counting(v):
        calls.append(v)
        return function(v)

    return counting, calls


def cubic(v):
    """The gradient of sum(x^2 + x^3 / 3) at 1 + v."""
    x = 1 + v
    return 2 * x + x**2


def test_a_product_costs_two_gradients_and_the_step_is_looked_for_every_hundred():
    slope, calls = counted(cubic)
    differences, v = Differences(), torch.tensor([1.0, 2.0]).double()
    gradient = lambda: cubic(torch.zeros(2).double())  # noqa: E731
    costs = []
    for _ in range(102):
        before = len(calls)
        np.testing.assert_allclose(differences.times(slope, v, gradient), 4 * v, rtol=1e-8)
        costs.append(len(calls) - before)
    assert all(cost == 2 for i, cost in enumerate(costs) if i not in (0, 100))
    assert 2 < costs[0] <= 12
    assert 2 < costs[100] <= 12


def test_differences_along_nothing_are_nothing_and_of_what_is_not_finite_not_finite():
    differences, zeros = Differences(), torch.zeros(2).double()
    assert differences.times(cubic, zeros, lambda: cubic(zeros)).tolist() == [0, 0]
    broken = Differences().times(lambda v: v * math.nan, torch.ones(2), lambda: torch.ones(2))
    assert broken.isnan().all()


def test_third_derivatives_by_differences_are_the_exact_ones():
    of, exact = (network_loss(torch.float64, products) for products in ("differences", "exact"))
    u, v = directions(exact).T
    np.testing.assert_allclose(of.here().third(u, v), exact.here().third(u, v), atol=1e-4 * exact.theta().norm())


def test_fused_attention_is_used_as_it_is_with_differences():
    seen, inner = [], nn.functional.scaled_dot_product_attention

    def attention(*args, **options):
        seen.append(torch.backends.cuda.flash_sdp_enabled())
        return inner(*args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.functional, "scaled_dot_product_attention", attention)
        transformer_loss(torch.float64, "differences").here().loss_and_gradient()
        transformer_loss(torch.float64, "exact").here().loss_and_gradient()
    assert seen == [True, False]


class Tanh(torch.autograd.Function):
    """tanh with a backward pass that can be differentiated."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.tanh(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (1 - torch.tanh(x) ** 2)


class OnceTanh(Tanh):
    """tanh with one that says it can't; PyTorch leaves its part of second derivatives out without a word."""

    backward = staticmethod(once_differentiable(Tanh.backward))


class KernelTanh(Tanh):
    """tanh with one that PyTorch can't see into, as of a kernel."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.from_numpy(g.detach().numpy() * (1 - np.tanh(x.detach().numpy()) ** 2))


class Refusing(Tanh):
    """tanh with one that raises where it is differentiated."""

    @staticmethod
    def backward(ctx, g):
        if torch.is_grad_enabled():
            raise NotImplementedError("there is no double backward here")
        return Tanh.backward(ctx, g)


class Activation(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function.apply(x)


def with_function(function, products="auto"):
    model = tanh_network(SMALL)
    model[1] = Activation(function)
    return ModelLoss(model, mean_square, tensors(SMALL), products=products)


def test_functions_of_ones_own_with_a_second_derivative_are_exact():
    of, exact = with_function(Tanh), ModelLoss(tanh_network(SMALL), mean_square, tensors(SMALL))
    assert max(errors(of, exact)) < 1e-14
    assert of.products.how == "exactly, by two backward passes"


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (OnceTanh, "the backward pass of OnceTanhBackward can't be differentiated, and products through it would be"),
        (KernelTanh, "the backward pass of KernelTanhBackward can't be differentiated, and products"),
        (Refusing, "there is no second derivative; PyTorch says: there is no double backward here"),
    ],
)
def test_functions_without_a_second_derivative_get_differences_and_a_sentence(function, why):
    of, exact = with_function(function), ModelLoss(tanh_network(SMALL), mean_square, tensors(SMALL))
    assert max(errors(of, exact)) < 1e-8
    assert of.products.how.startswith("by differences of the gradient, with an error of about ")
    assert why in of.products.how
    with pytest.raises(ValueError, match="products must be 'auto' or 'differences' here: the"):
        with_function(function, "exact").here().times(directions(exact))


def test_batches_share_what_was_found_out():
    x, y = tensors(SMALL)
    of = with_function(OnceTanh)
    of.here().times(directions(of))
    assert not of.over((x[:3], y[:3])).products.is_exact


def test_compiled_models_have_exact_products():
    model = tanh_network(SMALL)
    model.compile(backend="aot_eager")
    of, exact = (ModelLoss(m, mean_square, tensors(SMALL)) for m in (model, tanh_network(SMALL)))
    assert max(errors(of, exact)) < 1e-14
    assert of.products.is_exact


def test_compiled_models_have_differences_too():
    model = tanh_network(SMALL)
    model.compile(backend="aot_eager")
    of = ModelLoss(model, mean_square, tensors(SMALL), products="differences")
    assert max(errors(of, ModelLoss(tanh_network(SMALL), mean_square, tensors(SMALL)))) < 1e-8
    assert of.products.how.endswith("as was asked for")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no compiler for torch.compile")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("products", "most"), [("auto", 1e-14), ("differences", 1e-8)])
def test_models_compiled_by_inductor_have_products(products, most):
    model = torch.compile(tanh_network(SMALL))
    model(tensors(SMALL)[0])
    of = ModelLoss(nn.Sequential(model), mean_square, tensors(SMALL), products=products)
    assert max(errors(of, ModelLoss(tanh_network(SMALL), mean_square, tensors(SMALL)))) < most


def normed(norm):
    torch.manual_seed(0)
    return nn.Sequential(norm(nn.Linear(3, 8)), nn.Tanh(), norm(nn.Linear(8, 2))).double()


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
@pytest.mark.parametrize("norm", [nn.utils.parametrizations.weight_norm, nn.utils.weight_norm], ids=["new", "old"])
def test_weight_norm_whose_second_derivative_is_wrong_gets_differences(norm):
    of = ModelLoss(normed(norm), mean_square, tensors(SMALL))
    with of.here() as here:
        hessian = here.times(torch.eye(of.theta().numel()).double())
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-8)
    assert "the backward pass of WeightNormInterfaceBackward0 can't be differentiated" in of.products.how


@pytest.mark.parametrize("of_params", [DAL, lambda params: CDAT(torch.optim.SGD(params, lr=1.0))], ids=["DAL", "CDAT"])
def test_weight_norm_is_refused_where_curvature_is_exact(of_params):
    model, (x, y) = normed(nn.utils.parametrizations.weight_norm), tensors(SMALL)
    with pytest.raises(RuntimeError, match=r"second derivative of WeightNorm is wrong: .*finite_difference"):
        of_params(model.parameters()).step(lambda: mean_square(model(x), y))


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = tanh_network(SMALL)

    def forward(self, x):
        return self.inner[2](checkpoint(torch.tanh, self.inner[0](x), use_reentrant=True))


@pytest.mark.parametrize("products", ["auto", "differences"])
def test_checkpoints_that_know_only_backward_are_named(products):
    of = ModelLoss(Checkpointed(), mean_square, tensors(SMALL), products=products)
    with pytest.raises(ValueError, match="model must have checkpoints with use_reentrant=False"):
        of.here().loss_and_gradient()
