"""Random forward passes: the losses of a step are compared under the numbers that gave its gradient."""

import copy
import pickle

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0 runs these tests")

import torch
from torch import nn

from principalflow.torch import Monitor

X = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)).double()
Y = torch.randn(12, 1, generator=torch.Generator().manual_seed(1)).double()
RATE = 1e-3
loss_of = nn.functional.mse_loss


def dropout_model(head=1.0):
    """A model that is linear under each mask, so that a step's loss is a parabola."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 1, bias=False)).double()
    model[1].weight.data *= head
    return model


def watched(model, every=1, **options):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE)
    monitor = Monitor(model, loss_of, (X, Y), every=every, k=1, **options)
    monitor.attach(optimizer, steps=True)
    return monitor, optimizer


def stepped(monitor, optimizer, model, batches, before=lambda: None):
    """The row of one step on the mean over batches, and the loss before it."""
    optimizer.zero_grad()
    losses = []
    for x, y in batches:
        before()
        losses.append(loss_of(model(x), y))
        (losses[-1] / len(batches)).backward()
    loss = sum(losses).item() / len(batches)
    optimizer.step()
    batch = batches[0] if len(batches) == 1 else batches
    return monitor.observe(len(monitor.rows), batch=batch, loss=loss), loss


ONE, THREE = [(X, Y)], [(X[:4], Y[:4]), (X[4:8], Y[4:8]), (X[8:], Y[8:])]


def assert_parabola(row, loss):
    """Half the curvature along the step is what the step changes beyond its slope; all of one mask, or nothing fits."""
    assert row["batch_loss"] == pytest.approx(loss, rel=1e-12)
    assert row["realised_edge"] == pytest.approx(row["directional_sharpness"] * RATE / 2, rel=1e-6)


@pytest.mark.parametrize("batches", [ONE, THREE], ids=["one", "accumulated"])
@pytest.mark.parametrize("head", [1.0, 0.0], ids=["usual", "zero"])
def test_losses_and_curvature_are_those_of_the_gradients_mask(batches, head):
    model = dropout_model(head)
    monitor, optimizer = watched(model)
    for _ in range(3):
        assert_parabola(*stepped(monitor, optimizer, model, batches))


def test_passes_that_are_not_differentiated_are_no_part_of_the_step():
    model = dropout_model()
    monitor, optimizer = watched(model)

    def evaluate():
        with torch.no_grad():
            model(X)

    assert_parabola(*stepped(monitor, optimizer, model, ONE, evaluate))


def test_where_passes_are_more_than_batches_both_losses_have_the_same_other_numbers():
    model = dropout_model()
    monitor, optimizer = watched(model)
    row, loss = stepped(monitor, optimizer, model, ONE, lambda: model(X))
    assert row["batch_loss"] != loss
    assert abs(row["batch_loss_change"]) < 100 * RATE**2 + 2 * abs(row["batch_slope"])  # two masks would be 0.1 apart


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.passes = nn.Linear(3, 1).double(), 0

    def forward(self, x):
        self.passes += 1
        return self.inner(x)


def test_a_loss_that_is_given_saves_a_pass():
    model = Counting()
    monitor, optimizer = watched(model, measure="cheap")
    row, loss = stepped(monitor, optimizer, model, ONE)
    assert row["batch_loss"] == loss
    assert model.passes == 2  # the loop's, and one after the step


def test_a_loss_under_autocast_is_computed_again():
    """A head of zero gives the same loss in all precisions at first, but not for long."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    nn.init.zeros_(model[2].weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = X.float(), Y.float()
    monitor = Monitor(model, loss_of, (x, y), measure="cheap")
    monitor.attach(optimizer, steps=True)
    for step in range(1, 4):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model(x), y)
        loss.backward()
        exact = loss_of(model(x), y).item()
        optimizer.step()
        assert monitor.observe(step, batch=(x, y), loss=loss)["batch_loss"] == exact


def test_half_precision_is_compared_in_single():
    model = nn.Linear(3, 1).bfloat16()
    optimizer, x, y = torch.optim.SGD(model.parameters(), lr=0.1), X.bfloat16(), Y.bfloat16()
    monitor = Monitor(model, loss_of, (x, y), measure="cheap")
    monitor.attach(optimizer, steps=True)
    loss = loss_of(model(x), y)
    loss.backward()
    exact = loss_of(x.float() @ model.weight.float().T + model.bias.float(), y.float()).item()
    optimizer.step()
    assert monitor.observe(1, batch=(x, y), loss=loss)["batch_loss"] == pytest.approx(exact, rel=1e-6)


def test_compiled_models_run_in_one_graph_and_are_compared_with_the_same_numbers():
    model = dropout_model()
    monitor, optimizer = watched(model)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    for _ in range(2):
        row, _ = stepped(monitor, optimizer, compiled, ONE)
        assert abs(row["batch_loss_change"]) < 100 * RATE**2 + 2 * abs(row["batch_slope"])


def test_copies_of_the_model_hold_nothing_of_the_monitor():
    model = dropout_model()
    monitor, optimizer = watched(model)
    for duplicate in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        duplicate(X).sum().backward()
        assert len(pickle.dumps(duplicate)) < 3_000
    assert_parabola(*stepped(monitor, optimizer, model, ONE))


def test_a_monitor_that_is_closed_leaves_model_and_optimiser_alone():
    model = dropout_model()
    with watched(model)[0] as monitor:
        optimizer = monitor._optimizer
    hooks = [model._forward_pre_hooks, model._forward_hooks]
    assert not any([*hooks, optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks])
