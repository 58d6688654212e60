"""The steps of PyTorch optimisers as a monitor sees them: the numbers of the one for JAX."""

import math

import numpy as np
import optax
import pytest
from cases import network, square_loss

import principalflow as pf

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0 runs these tests")

import torch
from pytorch.nets import SMALL, mean_square, numbers, tanh_network, tensors
from torch import nn

from principalflow.torch import Monitor


def trained(make, steps=4, batch=slice(0, 6), every=3, **options):
    """A monitor of some steps of an optimiser, each on a part of the data."""
    model, (x, y) = tanh_network(SMALL), tensors(SMALL)
    optimizer = make(model.parameters())
    monitor = Monitor(model, mean_square, (x, y), optimizer=optimizer, every=every, **options)
    monitor.observe(0, batch=(x, y))  # from here on updates are kept
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss = mean_square(model(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        monitor.observe(step, batch=(x[batch], y[batch]), loss=loss)
    return monitor


def twin(tx, steps=4, batch=slice(0, 6), every=3):
    """The same in JAX."""
    params, (x, y) = network(SMALL), numbers(SMALL)
    objective = pf.Objective(square_loss, params, (x, y))
    part = objective.over((x[batch], y[batch]))
    state, monitor = tx.init(params), pf.Monitor(objective, optimizer=tx, every=every)
    monitor.observe(0, params, state=state)
    for step in range(1, steps + 1):
        loss, gradient = part.value_and_gradient(params)
        gradient = objective.unravel(gradient)
        updates, state = tx.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
        taken = dict(updates=updates, gradient=gradient, loss=loss, batch=(x[batch], y[batch]))
        monitor.observe(step, params, state=state, **taken)
    return monitor


OPTIMIZERS = {
    "sgd": (lambda p: torch.optim.SGD(p, 0.05), optax.sgd(0.05)),
    "momentum": (lambda p: torch.optim.SGD(p, 0.05, momentum=0.9), optax.sgd(0.05, momentum=0.9)),
    "adam": (lambda p: torch.optim.Adam(p, 0.01), optax.adam(0.01)),
    "adamw": (lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1), optax.adamw(0.01, weight_decay=0.1)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_rows_of_steps_are_those_of_jax(name):
    make, tx = OPTIMIZERS[name]
    ours, theirs = trained(make).rows, twin(tx).rows
    assert [row["step"] for row in ours] == [row["step"] for row in theirs]
    for row, other in zip(ours, theirs, strict=True):
        assert set(row) == set(other)
        for column, value in other.items():
            if isinstance(value, float) and not column.startswith("residual"):
                np.testing.assert_allclose(row[column], value, rtol=1e-6, atol=1e-10, err_msg=column)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_monitor_that_watches_steps_changes_nothing(name):
    make, _ = OPTIMIZERS[name]
    watched = trained(make)._of.model
    model, (x, y) = tanh_network(SMALL), tensors(SMALL)
    optimizer = make(model.parameters())
    for _ in range(4):
        optimizer.zero_grad()
        mean_square(model(x[:6]), y[:6]).backward()
        optimizer.step()
    for p, q in zip(watched.parameters(), model.parameters(), strict=True):
        assert torch.equal(p, q)


def test_random_numbers_of_the_loop_are_its_own():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(3, 1))
    x, y = torch.ones(5, 3), torch.zeros(5, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = Monitor(model, nn.functional.mse_loss, (x, y), optimizer=optimizer, measure="cheap")
    monitor.observe(0, batch=(x, y))
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    state = torch.get_rng_state()
    monitor.observe(1, batch=(x, y))
    assert torch.equal(state, torch.get_rng_state())


def test_gradients_that_are_gone_are_asked_for():
    monitor = trained(OPTIMIZERS["sgd"][0])
    optimizer = monitor._optimizer
    optimizer.step()
    optimizer.zero_grad()
    with pytest.raises(ValueError, match="call observe before zero_grad"):
        monitor.observe(9, batch=tensors(SMALL))


def clipped(most):
    """The row of a step of descent at the rate 0.1 whose gradient was clipped, and the gradient's norm before."""
    model, (x, y) = tanh_network(SMALL), tensors(SMALL)
    monitor = Monitor(model, mean_square, (x, y), measure="cheap")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor.attach(optimizer, steps=True)
    mean_square(model(x), y).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), most)
    optimizer.step()
    return monitor.observe(1, batch=(x, y), gradient_norm=norm), float(norm)


def test_the_slope_is_that_of_the_gradient_before_it_was_clipped():
    row, norm = clipped(most=0.5)
    assert norm > 1
    assert row["update_norm"] == pytest.approx(0.1 * 0.5, rel=1e-5)  # clipping adds 1e-6 to the norm that it divides by
    assert row["batch_slope"] == pytest.approx(-norm * row["update_norm"], rel=1e-9)
    assert row["batch_gradient_norm"] == pytest.approx(norm, rel=1e-9)


def test_a_norm_of_gradients_that_were_not_clipped_changes_nothing():
    row, norm = clipped(most=1e9)
    assert row["batch_slope"] == pytest.approx(-0.1 * norm**2, rel=1e-9)


def test_a_batch_needs_an_optimiser():
    with pytest.raises(ValueError, match="batch needs the optimizer"):
        Monitor(tanh_network(SMALL), mean_square, tensors(SMALL)).observe(0, 0.1, batch=tensors(SMALL))


def test_critical_sharpness_is_the_curvature_of_a_parabola():
    model = nn.Linear(1, 1, bias=False).double()
    x, y = torch.full((4, 1), 2.0).double(), torch.ones(4, 1).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = Monitor(model, nn.functional.mse_loss, (x, y), optimizer=optimizer)
    monitor.observe(0, batch=(x, y))
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    monitor.observe(1, batch=(x, y))
    assert monitor.critical_sharpness() == pytest.approx(8, rel=1 / 16)


def test_the_rate_of_a_step_is_the_one_that_the_optimiser_had():
    model = nn.Linear(1, 1, bias=False).double()
    x, y = torch.full((4, 1), 2.0).double(), torch.ones(4, 1).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = Monitor(model, nn.functional.mse_loss, (x, y), optimizer=optimizer, every=1, k=1)
    monitor.observe(0, batch=(x, y))
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.1
    row = monitor.observe(1, batch=(x, y))
    assert (row["directional_sharpness"], row["momentum"], row["direction"]) == pytest.approx((8, 1, 1))
    assert row["landscape"] == pytest.approx(0.01 * 8 / 2)
    assert monitor.critical_sharpness() == pytest.approx(8, rel=1 / 16)


def test_critical_sharpness_needs_a_step():
    with pytest.raises(ValueError, match="needs a step"):
        Monitor(tanh_network(SMALL), mean_square, tensors(SMALL)).critical_sharpness()


def test_an_optimiser_can_be_replaced():
    model, (x, y) = tanh_network(SMALL), tensors(SMALL)
    first, second = (torch.optim.SGD(model.parameters(), lr=h) for h in (0.1, 0.2))
    monitor = Monitor(model, mean_square, (x, y), optimizer=first)
    monitor.attach(second)
    assert not first._optimizer_step_pre_hooks
    assert monitor.observe(0)["learning_rate"] == 0.2


def test_what_is_no_optimiser_is_refused():
    with pytest.raises(ValueError, match=r"optimizer must be a torch.optim.Optimizer, got 3"):
        Monitor(tanh_network(SMALL), mean_square, tensors(SMALL), optimizer=3)


def test_eigenvectors_in_the_machines_memory_give_the_same_rows():
    rows = [trained(OPTIMIZERS["adam"][0], on_host=on_host).rows for on_host in (False, True)]
    for column, value in rows[0][-1].items():
        if isinstance(value, float) and math.isfinite(value):
            assert rows[1][-1][column] == pytest.approx(value)


def test_steps_are_watched_whole_where_parameters_are_selected():
    whole, part = (trained(OPTIMIZERS["adam"][0], **o) for o in ({}, dict(select=lambda name: name.startswith("2."))))
    assert part.rows[-1]["realised_edge"] == whole.rows[-1]["realised_edge"]
    assert part.rows[0]["eigenvalue_0"] < whole.rows[0]["eigenvalue_0"]
