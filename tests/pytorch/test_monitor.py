"""The monitor for PyTorch: the numbers of the one for JAX, and a model that is left as it was."""

import copy
import math

import numpy as np
import pytest
from cases import network, square_loss

import principalflow as pf
from principalflow.monitor import Monitor as JaxMonitor

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0 runs these tests")

import torch
from pytorch.nets import LARGE, SMALL, mean_square, numbers, tanh_network, tensors
from torch import nn

from principalflow.torch import DAL, Monitor


def both_rows(sizes, h=0.1, **options):
    """The rows of both frameworks."""
    objective = pf.Objective(square_loss, network(sizes), numbers(sizes))
    ours = Monitor(tanh_network(sizes), mean_square, tensors(sizes), **options).observe(0, h)
    return ours, JaxMonitor(objective, **options).observe(0, objective.theta, h)


def plain(**options):
    return Monitor(tanh_network(SMALL), mean_square, tensors(SMALL), **options)


def test_rows_are_those_of_jax():
    ours, theirs = both_rows(SMALL)
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        if isinstance(value, float) and not name.startswith("residual"):
            np.testing.assert_allclose(ours[name], value, rtol=1e-8, atol=1e-10, err_msg=name)
        elif isinstance(value, str):
            assert ours[name] == value


def test_eigenvalues_of_larger_networks_are_those_of_jax_within_the_residuals():
    ours, theirs = both_rows(LARGE, tol=1e-4)
    assert ours["converged"]
    for i in range(3):
        bound = ours[f"residual_{i}"] + theirs[f"residual_{i}"]
        assert abs(ours[f"eigenvalue_{i}"] - theirs[f"eigenvalue_{i}"]) <= bound
    for name in ("loss", "gradient_norm", "loss_change", "loss_change_discrete", "drift_estimate"):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-8, err_msg=name)


def dense_eigenvalues(model, x, y):
    """The eigenvalues of the whole Hessian by the trainable parameters, the largest first."""
    params = {name: p for name, p in model.named_parameters() if p.requires_grad}

    def loss(*values):
        return mean_square(torch.func.functional_call(model, dict(zip(params, values, strict=True)), x), y)

    blocks = torch.autograd.functional.hessian(loss, tuple(params.values()))
    rows = [
        torch.cat([b.reshape(p.numel(), -1) for b in row], 1) for p, row in zip(params.values(), blocks, strict=True)
    ]
    return torch.linalg.eigvalsh(torch.cat(rows)).flip(0).numpy()


@pytest.mark.parametrize("frozen", [False, True])
def test_values_are_those_of_the_dense_hessian_of_what_is_trained(frozen):
    model = tanh_network(SMALL)
    model[0].requires_grad_(not frozen)
    row = Monitor(model, mean_square, tensors(SMALL)).observe(0, 0.1)
    found = [row[f"eigenvalue_{i}"] for i in range(3)]
    np.testing.assert_allclose(found, dense_eigenvalues(model, *tensors(SMALL))[:3], rtol=1e-9)


def test_single_precision_is_double_precision_to_its_rounding():
    single = Monitor(tanh_network(LARGE, torch.float32), mean_square, tensors(LARGE, torch.float32), tol=1e-3)
    double = Monitor(tanh_network(LARGE), mean_square, tensors(LARGE), tol=1e-3)
    ours, exact = single.observe(0, 0.1), double.observe(0, 0.1)
    for name in ("loss", "gradient_norm", "loss_change_discrete", "drift_estimate"):
        np.testing.assert_allclose(ours[name], exact[name], rtol=1e-4, err_msg=name)
    np.testing.assert_allclose(ours["eigenvalue_0"], exact["eigenvalue_0"], rtol=1e-4)


@pytest.mark.parametrize("container", [list, lambda batches: torch.utils.data.DataLoader(batches, batch_size=None)])
def test_ragged_batches_are_weighed_by_their_samples(container):
    x, y = tensors(SMALL)
    batches = container([(x[:4], y[:4]), (x[4:8], y[4:8]), (x[8:], y[8:])])
    whole, parts = plain().observe(0, 0.1), Monitor(tanh_network(SMALL), mean_square, batches).observe(0, 0.1)
    for name in ("loss", "eigenvalue_0", "eigenvalue_2", "loss_change", "drift_estimate", "next_projection_0"):
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-9, err_msg=name)


def test_a_list_of_inputs_and_targets_is_one_batch():
    data = list(tensors(SMALL))  # as a DataLoader yields it
    assert Monitor(tanh_network(SMALL), mean_square, data).observe(0, 0.1) == plain().observe(0, 0.1)


def test_without_data_the_loss_takes_the_model():
    x, y = tensors(SMALL)
    alone = Monitor(tanh_network(SMALL), lambda model: mean_square(model(x), y))
    assert alone.observe(0, 0.1) == plain().observe(0, 0.1)


def test_parameters_may_be_thawed_along_the_way():
    monitor = plain(every=1)
    model = monitor._of.model
    model[0].requires_grad_(False)
    monitor.observe(0, 0.1)
    model[0].requires_grad_(True)
    assert monitor.observe(1, 0.1)["eigenvalue_0"] == plain().observe(1, 0.1)["eigenvalue_0"]


class Restless(nn.Module):
    """Batch norm, dropout, and a buffer that each forward pass replaces."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 2)).double()
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x):
        self.passes = self.passes + 1
        return self.layers(x)


@pytest.mark.parametrize("train_mode", [None, True, False])
@pytest.mark.parametrize("batches", [1, 2])
def test_the_model_is_left_as_it_was(train_mode, batches):
    model = Restless()
    model.layers[1].eval()
    x, y = tensors(SMALL)
    mean_square(model(x), y).backward()
    state, gradients = copy.deepcopy(model.state_dict()), [p.grad.clone() for p in model.parameters()]
    memory = [p.data_ptr() for p in model.parameters()]
    modes, random = [m.training for m in model.modules()], torch.get_rng_state()

    data = (x, y) if batches == 1 else [(x[:6], y[:6]), (x[6:], y[6:])]
    Monitor(model, mean_square, data, train_mode=train_mode).observe(0, 0.1)

    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients, strict=True))
    assert [p.data_ptr() for p in model.parameters()] == memory
    assert [m.training for m in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)


def test_a_loss_that_raises_leaves_the_model_as_it_was():
    model, random = Restless(), torch.get_rng_state()

    def loss(out, targets):
        torch.rand(1)
        raise ValueError("no loss today")

    with pytest.raises(ValueError, match="no loss today"):
        Monitor(model, loss, tensors(SMALL)).observe(0, 0.1)
    assert model.passes == 0
    assert model.training
    assert torch.equal(torch.get_rng_state(), random)


def test_a_graph_of_the_loop_can_still_be_differentiated():
    model, (x, y) = tanh_network(SMALL), tensors(SMALL)
    pending = mean_square(model(x), y)
    Monitor(model, mean_square, (x, y)).observe(0, 0.1)
    pending.backward()


@pytest.mark.parametrize("batches", [1, 2])
def test_dropout_is_the_same_in_all_passes(batches):
    model = nn.Sequential(nn.Linear(3, 300), nn.Tanh(), nn.Dropout(0.5), nn.Linear(300, 2)).double()
    x, y = tensors(SMALL)
    data = (x, y) if batches == 1 else [(x[:6], y[:6]), (x[6:], y[6:])]
    row = Monitor(model, mean_square, data, tol=1e-6).observe(0, 1e-4)
    assert row["converged"]  # other numbers would give an operator that isn't linear
    np.testing.assert_allclose(row["loss_change"], row["loss_change_discrete"], rtol=1e-2)  # of third order in h


def test_the_mode_can_be_chosen():
    model, data = Restless(), tensors(SMALL)
    evaluated = Monitor(model, mean_square, data, train_mode=False).observe(0, 0.1)["loss"]
    model.eval()
    assert Monitor(model, mean_square, data).observe(0, 0.1)["loss"] == evaluated
    assert Monitor(model, mean_square, data, train_mode=True).observe(0, 0.1)["loss"] != evaluated


def test_fused_attention_is_taken_apart():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 12)

        def forward(self, x):
            q, k, v = self.layer(x).chunk(3, dim=-1)
            return nn.functional.scaled_dot_product_attention(q, k, v)

    x = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    row = Monitor(Attention(), nn.functional.mse_loss, (x, x)).observe(0, 0.1)
    assert row["converged"]


def test_a_restored_recording_goes_on_bit_for_bit():
    one, other = (Monitor(tanh_network(LARGE), mean_square, tensors(LARGE), every=1) for _ in range(2))
    one.observe(0, 0.1)
    for monitor in (one, other):  # some way on
        for p in monitor._of.params():
            p.data *= 0.99
    other._take.restore({name: torch.tensor(np.asarray(array)) for name, array in one._take.state.items()})
    assert other.observe(1, 0.1) == one.observe(1, 0.1)


def test_later_measurements_start_at_the_former_eigenpairs():
    monitor = Monitor(tanh_network(LARGE), mean_square, tensors(LARGE), every=1)
    first, second = (monitor.observe(step, 0.1)["products"] for step in range(2))
    assert second < first / 2


def test_rate_and_momentum_come_from_the_optimizer():
    model = tanh_network(SMALL)
    optimizer = torch.optim.SGD(model.parameters(), lr=9.0, momentum=0.5)
    row = Monitor(model, mean_square, tensors(SMALL), optimizer=optimizer).observe(0)
    assert row["learning_rate"] == 9.0
    assert "2(1+m)/h, the threshold with momentum m = 0.5," in str(row["events"][0])


def test_groups_with_rates_of_their_own_make_one_metric():
    model, (x, y) = tanh_network(SMALL), tensors(SMALL)
    groups = [dict(params=model[0].parameters(), lr=0.1), dict(params=model[2].parameters(), lr=0.3, momentum=0.5)]
    row = Monitor(model, mean_square, (x, y), optimizer=torch.optim.SGD(groups, lr=0.1), k=1).observe(0)
    objective = pf.Objective(square_loss, network(SMALL), numbers(SMALL))
    threshold = np.repeat([2 / 0.1, 2 * 1.5 / 0.3], [3 * 8 + 8, 8 * 2 + 2])  # of each layer
    relative = np.linalg.eigvalsh(objective.hessian(objective.theta) / np.sqrt(np.outer(threshold, threshold)))[-1]
    assert row["edge"] == pytest.approx(relative)
    assert (row["learning_rate"], row["threshold"]) == (0.1, 20)


def test_nesterovs_momentum_has_its_own_threshold():
    model = tanh_network(SMALL)
    optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(9.0), momentum=0.5, nesterov=True)
    row = Monitor(model, mean_square, tensors(SMALL), optimizer=optimizer).observe(0)
    assert str(row["events"][0]).endswith(f"against {3 / 2 / 9:.4g}")


def test_dal_has_a_rate_to_read():
    model, (x, y) = tanh_network(SMALL), tensors(SMALL)
    optimizer = DAL(model.parameters())
    monitor = Monitor(model, mean_square, (x, y), optimizer=optimizer)
    assert monitor.observe(0) is None  # DAL's rate is 0 before its first step
    optimizer.step(lambda: mean_square(model(x), y))
    assert monitor.observe(1)["learning_rate"] == optimizer.param_groups[0]["lr"]


def test_descent_beyond_the_threshold_is_told():
    model, (x, y) = tanh_network(SMALL), tensors(SMALL)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = Monitor(model, mean_square, (x, y), every=1, optimizer=optimizer)
    for step in range(6):
        monitor.observe(step)
        optimizer.zero_grad()
        mean_square(model(x), y).backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] *= 3
    sharp = [row["eigenvalue_0"] * row["learning_rate"] > 2 for row in monitor.rows]
    changes = [step for step in range(1, 6) if sharp[step] != sharp[step - 1]]
    assert changes
    assert [event.step for event in monitor.events if event.kind in ("above", "below")] == changes


def test_a_model_that_is_not_finite_is_told():
    monitor = plain(every=1)
    monitor.observe(0, 0.1)
    monitor._of.params()[0].data.fill_(math.nan)
    rows = [monitor.observe(step, 0.1) for step in (1, 2)]
    assert [event.kind for event in monitor.events] == ["nonfinite", "spike"]
    assert str(monitor.events[0]) == "the loss is not finite at step 1"
    assert "eigenvalue_0" not in rows[0]


def test_a_loss_without_curvature_is_measured():
    model = nn.Linear(3, 1).double()
    row = Monitor(model, lambda model: model.bias.sum()).observe(0, 0.1)
    assert row["eigenvalue_0"] == 0
    np.testing.assert_allclose(row["loss_change"], -0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(model=tanh_network(SMALL).requires_grad_(False)), "model must have parameters that require gradients"),
        (dict(model=3), "model must be an nn.Module"),
        (dict(loss=3), "loss must be a function of outputs and targets, got 3"),
        (dict(data=iter([tensors(SMALL)])), "data must be a batch, or batches that can be iterated again"),
        (dict(data=3), "data must be a batch"),
        (dict(data=(torch.ones(1),)), r"data must be \(inputs, targets\)"),
        (dict(loss=lambda outputs: outputs.sum()), "loss must be a function of outputs and targets"),
        (dict(data=torch.ones(3)), "data must be a batch, or batches"),
        (dict(data="abc"), "data must be a batch, or batches"),
        (dict(k=0), "k must be"),
        (dict(momentum=1.5), "momentum must be"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Monitor(**{"model": tanh_network(SMALL), "loss": mean_square, "data": tensors(SMALL), **arguments})


def test_no_data_at_all_are_refused():
    with pytest.raises(ValueError, match="data must hold at least one batch"):
        Monitor(tanh_network(SMALL), mean_square, []).observe(0, 0.1)


def test_a_rate_must_be_known():
    with pytest.raises(ValueError, match="learning_rate must be given to observe, or an optimizer"):
        plain().observe(0)


@pytest.mark.parametrize("value", [lambda a, b: a, lambda a, b: None, lambda a, b: 1.0, lambda a, b: (a > 0).any()])
def test_a_loss_that_returns_no_number_is_named(value):
    with pytest.raises(ValueError, match="loss must return a tensor of one real number"):
        Monitor(tanh_network(SMALL), value, tensors(SMALL)).observe(0, 0.1)


def test_batches_that_are_no_pairs_are_named():
    with pytest.raises(ValueError, match=r"must be a pair \(inputs, targets\) or a mapping, got a Tensor"):
        Monitor(tanh_network(SMALL), mean_square, [tensors(SMALL), torch.ones(2)]).observe(0, 0.1)


class Cube(torch.autograd.Function):
    """x^3, whose backward pass can't be differentiated."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, slope):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * slope


class Cubic(nn.Module):
    def __init__(self, exact):
        super().__init__()
        self.inner, self.exact = tanh_network(SMALL), exact

    def forward(self, x):
        out = self.inner(x)
        return out**3 if self.exact else Cube.apply(out)


def test_models_without_second_derivatives_are_measured_by_differences_and_an_event_says_so():
    rows = [Monitor(Cubic(exact), mean_square, tensors(SMALL)).observe(0, 0.01) for exact in (True, False)]
    assert "products_error" not in rows[0]
    assert rows[1]["products_error"] < 1e-4
    assert rows[1]["eigenvalue_0"] == pytest.approx(rows[0]["eigenvalue_0"], rel=1e-4)
    assert [event.kind for event in rows[1]["events"]] == ["inexact"]
    assert "differences of gradients from step 0 on" in str(rows[1]["events"][0])


def test_half_precision_is_measured_in_single():
    single, half = (tanh_network(LARGE, torch.float32) for _ in range(2))
    half = half.to(torch.bfloat16)
    single.load_state_dict(half.state_dict())
    data = tensors(LARGE, torch.float32)
    rows = [Monitor(model, mean_square, data, k=1).observe(0, 0.1) for model in (single, half)]
    for name in ("loss", "eigenvalue_0", "gradient_norm"):
        assert rows[1][name] == pytest.approx(rows[0][name], rel=1e-5)


def test_layers_can_be_selected_by_name():
    model, (x, y) = tanh_network(SMALL), tensors(SMALL)
    row = Monitor(model, mean_square, (x, y), k=1, select=lambda name: name.startswith("2.")).observe(0, 0.1)
    model[0].requires_grad_(False)
    assert row["eigenvalue_0"] == pytest.approx(dense_eigenvalues(model, x, y)[0])


def test_mappings_go_to_models_that_compute_their_own_loss():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = tanh_network(SMALL)

        def forward(self, inputs, labels):
            return {"loss": mean_square(self.inner(inputs), labels)}

    x, y = tensors(SMALL)
    optimizer_steps = []
    model = Own()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    monitor = Monitor(model, data={"inputs": x, "labels": y}, optimizer=optimizer)
    for step in range(3):
        optimizer.zero_grad()
        loss = model(x, y)["loss"]
        loss.backward()
        optimizer.step()
        optimizer_steps.append(monitor.observe(step + 1, batch={"inputs": x, "labels": y}, loss=loss))
    assert optimizer_steps[0]["threshold"] == pytest.approx(38 / 1e-3, rel=1e-4)
    assert optimizer_steps[2]["realised_edge"] < 1
