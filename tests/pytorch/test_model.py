"""The loss of a model over data: what may be given, whose derivatives are right, and a model that is left as it was."""

import copy
from collections import UserDict
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0 runs these tests")

import torch
from pytorch.nets import (
    LARGE,
    SMALL,
    Restless,
    dense,
    mean_square,
    sentences,
    tanh_network,
    tensors,
    transformer,
)
from torch import nn
from torch.utils.checkpoint import checkpoint

from principalflow.torch._model import ModelLoss


def derivatives(of, theta=None, columns=None):
    """Value, gradient, and the Hessian or some columns of it."""
    with of.here(theta) as here:
        value, gradient = here.loss_and_gradient()
        return (
            value,
            gradient,
            here.times(torch.eye(gradient.numel(), columns or gradient.numel(), dtype=gradient.dtype)),
        )


def assert_same(found, expected, rtol=1e-12):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * float(torch.as_tensor(b).abs().max()))


def plain(**options):
    return ModelLoss(tanh_network(SMALL), mean_square, tensors(SMALL), **options)


def test_derivatives_are_the_dense_ones():
    x, y = tensors(SMALL)
    model = tanh_network(SMALL)
    gradient, hessian = dense(model, lambda model: mean_square(model(x), y))
    value = mean_square(model(x), y).item()
    assert_same(derivatives(ModelLoss(model, mean_square, (x, y))), (value, gradient, hessian))


def test_derivatives_elsewhere_are_those_of_a_model_there():
    of, change = plain(), torch.linspace(-1, 1, 50).double()
    other = tanh_network(SMALL)
    nn.utils.vector_to_parameters(of.theta() + change, other.parameters())
    expected = derivatives(ModelLoss(other, mean_square, tensors(SMALL)))
    assert_same(derivatives(of, of.theta() + change), expected)
    with of.here(moved=change) as there:
        assert_same((*there.loss_and_gradient(), there.times(torch.eye(50).double())), expected)
    assert of.value(moved=change) == of.value(of.theta() + change) == expected[0]


def test_third_derivatives_are_those_of_products():
    of, (u, v) = plain(), torch.randn(2, 50, generator=torch.Generator().manual_seed(1)).double()
    e = 1e-5
    ahead, behind = (of.here(moved=s * e * u).times(v[:, None])[:, 0] for s in (1, -1))
    np.testing.assert_allclose(of.here().third(u, v), (ahead - behind) / (2 * e), rtol=1e-6, atol=1e-8)


def test_products_of_a_linear_loss_are_zero():
    of = ModelLoss(nn.Linear(3, 1), lambda model: model.bias.sum() + 2 * model.weight.sum())
    _, gradient, hessian = derivatives(of)
    assert gradient.tolist() == [2, 2, 2, 1]
    assert not hessian.any()
    assert not of.here().third(gradient, gradient).any()


def as_list(x, y):
    return [x, y]


def ragged(x, y):
    return [(x[:4], y[:4]), [x[4:8], y[4:8]], (x[8:], y[8:])]


def loader(x, y):
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=3, shuffle=True)


@pytest.mark.parametrize("container", [as_list, ragged, loader])
def test_batches_are_weighed_by_their_samples(container):
    parts = ModelLoss(tanh_network(SMALL), mean_square, container(*tensors(SMALL)))
    assert_same(derivatives(parts), derivatives(plain()))
    np.testing.assert_allclose(parts.value(), plain().value(), rtol=1e-14)


class Named(nn.Module):
    """Takes its inputs by name."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *, inputs, scale=1.0, **_):
        return self.inner(scale * inputs)


@pytest.mark.parametrize("mapping", [dict, UserDict])
@pytest.mark.parametrize("several", [False, True])
def test_mappings_are_the_models_arguments(mapping, several):
    (x, y), model = tensors(SMALL), Named(tanh_network(SMALL))
    data = mapping(inputs=x, targets=y)
    if several:
        data = [mapping(inputs=x[:4], targets=y[:4]), mapping(inputs=x[4:], targets=y[4:])]
    of = ModelLoss(model, lambda outputs, batch: mean_square(outputs, batch["targets"]), data)
    assert_same(derivatives(of), derivatives(plain()))


class OwnLoss(nn.Module):
    """Computes its loss, and returns it as `kind` does."""

    def __init__(self, kind):
        super().__init__()
        self.inner, self.kind = tanh_network(SMALL), kind

    def forward(self, inputs, targets):
        return self.kind(loss=mean_square(self.inner(inputs), targets))


@pytest.mark.parametrize("kind", [SimpleNamespace, dict, UserDict])
@pytest.mark.parametrize("data", [tensors(SMALL), dict(zip(("inputs", "targets"), tensors(SMALL), strict=True))])
def test_a_model_may_compute_its_loss(kind, data):
    assert_same(derivatives(ModelLoss(OwnLoss(kind), None, data)), derivatives(plain()))


def test_fused_attention_has_exact_products():
    model, batch = transformer(), sentences()
    of = ModelLoss(model, None, batch, select=lambda name: name.startswith("attention"))
    model.requires_grad_(False).attention.requires_grad_(True)
    assert_same(derivatives(of)[1:], dense(model, lambda model: model(**batch).loss), rtol=1e-11)
    assert of.products.is_exact


def test_tied_weights_count_once():
    assert "words.weight" in ModelLoss(transformer(), None, sentences()).named_params()
    assert "head.weight" not in ModelLoss(transformer(), None, sentences()).named_params()


@pytest.mark.parametrize("layers", [("0.weight",), ("2.weight", "2.bias"), ("0.bias", "2.weight")])
def test_selected_parameters_have_their_block_of_the_hessian(layers):
    of = plain(select=lambda name: name in layers)
    sizes = {"0.weight": 24, "0.bias": 8, "2.weight": 16, "2.bias": 2}
    chosen = torch.cat([torch.full((size,), name in layers) for name, size in sizes.items()])
    value, gradient, hessian = derivatives(plain())
    assert_same(derivatives(of), (value, gradient[chosen], hessian[chosen][:, chosen]))
    assert of.theta().equal(plain().theta()[chosen])


def test_frozen_parameters_are_left_out():
    model = tanh_network(SMALL)
    model[0].requires_grad_(False)
    of = ModelLoss(model, mean_square, tensors(SMALL))
    assert list(of.named_params()) == ["2.weight", "2.bias"]
    assert_same(derivatives(of), derivatives(plain(select=lambda name: name.startswith("2"))))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_measured_in_single_precision(dtype):
    half = tanh_network(LARGE).to(dtype)
    half.register_buffer("shift", torch.ones(3, dtype=dtype))
    single, data = copy.deepcopy(half).float(), tensors(LARGE, dtype)
    loss = lambda model: mean_square(model(data[0].to(model[0].weight)) + model.shift, data[1].float())  # noqa: E731
    found, twin = (derivatives(ModelLoss(model, loss), columns=9) for model in (half, single))
    assert_same(found, twin, rtol=0)
    assert found[1].dtype == torch.float32
    assert all(p.dtype == dtype for p in [*half.parameters(), *half.buffers()])


def test_batches_in_half_precision_are_measured_in_single_precision():
    half, data = tanh_network(SMALL).bfloat16(), tensors(SMALL, torch.bfloat16)
    twin = ModelLoss(copy.deepcopy(half).float(), mean_square, tuple(part.float() for part in data))
    assert_same(derivatives(ModelLoss(half, mean_square, data)), derivatives(twin), rtol=0)


def test_frozen_half_precision_is_measured_in_single_precision():
    model = nn.Sequential(nn.Linear(3, 4).bfloat16().requires_grad_(False), nn.Tanh(), nn.Linear(4, 2))
    of = ModelLoss(model, mean_square, tensors(SMALL, torch.float32))
    twin = copy.deepcopy(model)
    twin[0].float()
    assert_same(derivatives(of), derivatives(ModelLoss(twin, mean_square, tensors(SMALL, torch.float32))), rtol=0)


def test_autocast_is_off_while_measuring():
    of = ModelLoss(tanh_network(SMALL, torch.float32), mean_square, tensors(SMALL, torch.float32))
    expected = derivatives(of)
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(derivatives(of), expected, rtol=0)
        assert of.value() == expected[0]


def state_of(model):
    return (
        copy.deepcopy(model.state_dict()),
        [p.data_ptr() for p in model.parameters()],
        [(id(p), None if p.grad is None else p.grad.clone()) for p in model.parameters()],
        [m.training for m in model.modules()],
        torch.get_rng_state(),
    )


def assert_state(model, state):
    values, memory, gradients, modes, random = state
    assert all(torch.equal(value, values[name]) for name, value in model.state_dict().items())
    assert [p.data_ptr() for p in model.parameters()] == memory
    assert [id(p) for p in model.parameters()] == [i for i, _ in gradients]
    assert all(torch.equal(p.grad, g) for p, (_, g) in zip(model.parameters(), gradients, strict=True) if g is not None)
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)


@pytest.mark.parametrize("train_mode", [None, True, False])
@pytest.mark.parametrize("products", ["exact", "differences"])
@pytest.mark.parametrize("several", [False, True])
def test_the_model_is_left_as_it_was(train_mode, products, several):
    model, (x, y) = Restless(), tensors(SMALL)
    model.layers[1].eval()
    mean_square(model(x), y).backward()
    state = state_of(model)
    data = [(x[:6], y[:6]), (x[6:], y[6:])] if several else (x, y)
    of = ModelLoss(model, mean_square, data, train_mode=train_mode, products=products)
    of.value()
    derivatives(of, columns=2)
    of.here(of.theta() + 1).third(of.theta(), of.theta())
    assert_state(model, state)


@pytest.mark.parametrize("where", ["forward", "backward", "again"])
def test_a_failure_leaves_the_model_as_it_was(where):
    class Failing(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            if where == "forward":
                raise ValueError("not today")
            return x.clone()

        @staticmethod
        def backward(_, g):
            if where == "backward" or (where == "again" and torch.is_grad_enabled()):
                raise ValueError("not today")
            return g

    model, (x, y) = Restless(), tensors(SMALL)
    state = state_of(model)
    of = ModelLoss(model, lambda out, y: mean_square(Failing.apply(out), y), (x, y), train_mode=False)
    with pytest.raises(ValueError, match="not today"):
        derivatives(of)
    assert_state(model, state)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("products", ["exact", "differences"])
def test_dropout_is_the_same_in_all_passes(several, products):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 40), nn.Tanh(), nn.Dropout(0.5), nn.Linear(40, 2)).double()
    x, y = tensors(SMALL)
    data = [(x[:6], y[:6]), (x[6:], y[6:])] if several else (x, y)
    hessian = derivatives(ModelLoss(model, mean_square, data, products=products))[2]
    np.testing.assert_allclose(hessian, hessian.T, rtol=0, atol=1e-6)  # else it would be of different losses


def test_checkpoints_run_again_with_what_stands_in():
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = tanh_network(SMALL)

        def forward(self, x):
            return self.inner[2](checkpoint(lambda x: torch.tanh(self.inner[0](x)), x, use_reentrant=False))

    of, theta = ModelLoss(Checkpointed(), mean_square, tensors(SMALL)), plain().theta() + 0.3
    assert_same(derivatives(of, theta), derivatives(plain(), theta))


def test_recurrent_networks_have_exact_products():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.LSTM(2, 3, batch_first=True).double()

        def forward(self, x):
            return self.inner(x)[0][:, -1]

    torch.manual_seed(0)
    model, x = Last(), torch.randn(4, 5, 2).double()
    of = ModelLoss(model, lambda outputs, _: (outputs**2).sum(), (x, x))
    assert_same(derivatives(of)[1:], dense(model, lambda model: (model(x) ** 2).sum()))


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda model: torch.compile(model, backend="eager")])
def test_a_wrapped_model_is_measured_without_its_wrapper(wrap):
    model = tanh_network(SMALL)
    of = ModelLoss(wrap(model), mean_square, tensors(SMALL))
    assert of.model is model


def test_a_graph_of_the_loop_can_still_be_differentiated():
    model, (x, y) = tanh_network(SMALL, torch.bfloat16), tensors(SMALL, torch.bfloat16)
    pending = mean_square(model(x), y)
    derivatives(ModelLoss(model, mean_square, (x, y)))
    pending.backward()
    assert all(p.grad.dtype == torch.bfloat16 for p in model.parameters())


def test_data_may_be_replaced():
    x, y = tensors(SMALL)
    part = plain().over((x[:4], y[:4]))
    assert_same(derivatives(part), derivatives(ModelLoss(tanh_network(SMALL), mean_square, (x[:4], y[:4]))), rtol=0)


def test_complex_derivatives_are_the_holomorphic_ones():
    of = plain()
    theta = of.theta() + 0.1j * torch.linspace(-1, 1, 50).double()
    _, gradient, hessian = derivatives(of, theta)
    e, along = 1e-6, torch.linspace(1, -2, 50).double() * (1 + 2j)
    ahead, behind = (derivatives(of, theta + s * e * along) for s in (1, -1))
    np.testing.assert_allclose((ahead[0] - behind[0]) / (2 * e), (gradient @ along).item(), rtol=1e-7)
    np.testing.assert_allclose((ahead[1] - behind[1]) / (2 * e), hessian @ along, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(hessian, hessian.T, atol=1e-13)
    third = of.here(theta).third(along, along)
    np.testing.assert_allclose((ahead[2] - behind[2]) @ along / (2 * e), third, rtol=1e-5, atol=1e-7)


TWO = torch.ones(3, 3).double(), torch.ones(3, 2).double()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(model=3), "model must be an nn.Module, got 3"),
        (dict(model=tanh_network(SMALL).requires_grad_(False)), "model must have parameters that require gradients"),
        (dict(model=nn.Linear(3, 2, dtype=torch.complex64)), "model must have real.* weight is torch.complex64"),
        (dict(loss=3), "loss must be a function of outputs and targets, got 3"),
        (dict(loss=lambda outputs: 0), "loss must be a function of outputs and targets"),
        (dict(loss=None, data=None), "loss must be a function of model where there are no data, got None"),
        (dict(data=None), "loss must be a function of model"),
        (dict(data=tuple(part.numpy() for part in TWO)), "data must hold tensors, got arrays of NumPy"),
        (dict(data={"x": TWO[0].numpy()}), "data must hold tensors, got arrays of NumPy"),
        (dict(data=3), "data must be a batch, or batches that can be iterated again, got a int"),
        (dict(data=iter([TWO])), "data must be a batch, or batches that can be iterated again"),
        (dict(data=(*TWO, *TWO)), r"data must be \(inputs, targets\), a mapping .* got 4 entries"),
        (dict(select=3), "select must be a function of name"),
        (dict(select=lambda name: False), "select must be true for at least one name, but .* 0.weight, 0.bias, 2.w"),
        (dict(train_mode="yes"), "train_mode must be True or False"),
        (dict(products="exactly"), "products must be one of 'auto', 'exact', 'differences', got 'exactly'"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ModelLoss(**{"model": tanh_network(SMALL), "loss": mean_square, "data": TWO, **arguments})


class Pairs(nn.Module):
    """Takes inputs and targets, and returns a tensor."""

    def __init__(self):
        super().__init__()
        self.inner = tanh_network(SMALL)

    def forward(self, inputs, targets):
        return self.inner(inputs)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(data=[]), "data must hold at least one batch with samples, got none"),
        (dict(data=[TWO, TWO[0]]), r"each batch of data must be a pair .* mapping, got a Tensor"),
        (dict(loss=lambda a, b: a), "loss must return a tensor of one real number, got torch.float64 of shape"),
        (dict(loss=lambda a, b: 1.0), "loss must return a tensor of one real number, got a float"),
        (dict(loss=lambda a, b: (a + 1j).sum()), "loss must return a real number, got torch.complex128"),
        (dict(loss=lambda a, b: a.detach().sum()), "loss must depend on the parameters of model"),
        (dict(loss=None), "model, where it computes the loss, must be a function of inputs and targets"),
        (dict(model=Pairs(), loss=None), "loss must be given where the model's output has none: it is a Tensor"),
        (dict(data=(TWO[0].float(), TWO[1])), "model, loss and data must fit each other, but they can't be evaluated"),
        (dict(model=OwnLoss(lambda loss: SimpleNamespace(loss=None)), loss=None), "loss must be given where"),
        (dict(model=OwnLoss(lambda loss: dict(loss=3)), loss=None), "model must return a tensor of one real number"),
    ],
)
def test_what_doesnt_fit_is_named(arguments, message):
    of = ModelLoss(**{"model": tanh_network(SMALL), "loss": mean_square, "data": TWO, **arguments})
    with pytest.raises(ValueError, match=message):
        derivatives(of)


def test_parameters_taken_before_are_refused():
    model = tanh_network(SMALL)
    weights = [p for p in model.parameters() if p.ndim == 2]

    def loss(outputs, targets):
        return nn.functional.mse_loss(outputs, targets) + sum((w**2).sum() for w in weights)

    with pytest.raises(ValueError, match="loss must take parameters from model when it is called"):
        ModelLoss(model, loss, tensors(SMALL)).here().loss_and_gradient()
