"""Models that `fully_shard` spreads over processes."""

import os
import socket

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0 runs these tests")

import torch
from pytorch.nets import SMALL, mean_square, tanh_network, tensors
from torch import nn

from principalflow.torch import Monitor, objective
from principalflow.torch._model import ModelLoss


def in_processes(work, number=2):
    """Runs `work(rank)` in so many processes that know each other."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(_one, (work, number, port), number)


def _one(rank, work, number, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(number))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=number)
    try:
        work(rank)
    finally:
        torch.distributed.destroy_process_group()


def sharded():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, mesh = tanh_network(SMALL), init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    fully_shard(model[0], mesh=mesh)
    return fully_shard(model, mesh=mesh)


def share(rank, samples=10):
    x, y = tensors(SMALL)
    return x[rank:samples:2], y[rank:samples:2]


def whole():
    x, y = tensors(SMALL)
    return ModelLoss(tanh_network(SMALL), mean_square, (x[:10], y[:10]))


def derivatives_are_those_of_the_whole(rank):
    model = sharded()
    mean_square(model(share(rank)[0]), share(rank)[1]).backward()
    before = [(p.full_tensor().clone(), p.grad.full_tensor().clone()) for p in model.parameters()]
    of, exact = ModelLoss(model, mean_square, share(rank)), whole()
    block = torch.randn(50, 2, generator=torch.Generator().manual_seed(0)).double()
    moved = torch.linspace(-1, 1, 50).double()
    for here, there in [(of.here(), exact.here()), (of.here(moved=moved), exact.here(moved=moved))]:
        found, expected = here.loss_and_gradient(), there.loss_and_gradient()
        torch.testing.assert_close(torch.tensor(found[0]), torch.tensor(expected[0]))
        torch.testing.assert_close(found[1], expected[1])
        torch.testing.assert_close(here.times(block), there.times(block), rtol=1e-6, atol=1e-7)
    assert abs(of.value(moved=moved) - exact.value(moved=moved)) < 1e-14
    assert abs(of.value() - exact.value()) < 1e-14
    assert abs(of.value_as_it_runs() - exact.value()) < 1e-14
    assert of.products.how.endswith("gradients are averaged over processes, where the model is sharded")
    torch.testing.assert_close(of.theta(), exact.theta(), rtol=0, atol=0)
    for p, (value, gradient) in zip(model.parameters(), before, strict=True):
        torch.testing.assert_close(p.full_tensor(), value, rtol=0, atol=0)
        torch.testing.assert_close(p.grad.full_tensor(), gradient, rtol=0, atol=0)


def a_monitor_sees_the_whole(rank):
    row = Monitor(sharded(), mean_square, share(rank), k=2, tol=1e-4).observe(0, 0.1)
    x, y = tensors(SMALL)
    expected = Monitor(tanh_network(SMALL), mean_square, (x[:10], y[:10]), k=2, tol=1e-4).observe(0, 0.1)
    for name in ("loss", "gradient_norm", "eigenvalue_0", "eigenvalue_1", "loss_change"):
        assert abs(row[name] - expected[name]) < 1e-6 * abs(expected[name]), name


def the_rest_is_refused(rank):
    model = sharded()
    for call, message in [
        (lambda: ModelLoss(model, mean_square, share(rank), products="exact"), "products must be 'auto' or 'differ"),
        (lambda: objective(model, mean_square, share(rank)), "model must be in one piece"),
        (lambda: ModelLoss(sharded().bfloat16(), mean_square, share(rank)), "must have float32 or float64 param"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch was built without processes")
@pytest.mark.parametrize("work", [derivatives_are_those_of_the_whole, a_monitor_sees_the_whole, the_rest_is_refused])
def test_of_sharded_models(work):
    in_processes(work)


def test_the_older_way_to_shard_is_refused():
    class FullyShardedDataParallel(nn.Module):
        pass

    with pytest.raises(ValueError, match=r"model must be sharded by torch\.distributed\.fsdp\.fully_shard"):
        ModelLoss(nn.Sequential(FullyShardedDataParallel(), nn.Linear(2, 2)), mean_square, tensors(SMALL))
