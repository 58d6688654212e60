"""Optimisers whose steps are watched: what is read of each, and what isn't."""

import gc
import math

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0 runs these tests")

import torch
from pytorch.nets import SMALL, mean_square, tanh_network, tensors
from torch import nn

from principalflow.torch import CDAT, DAL, Monitor, edge

X, Y = tensors(SMALL)


def rows_of(make, steps=3, closure=False):
    """Rows of some steps of an optimiser, and the monitor."""
    model = tanh_network(SMALL)
    optimizer = make(model.parameters())
    monitor = Monitor(model, mean_square, (X, Y), measure="cheap")
    monitor.attach(optimizer, steps=True)

    def usual():
        optimizer.zero_grad()
        loss = mean_square(model(X), Y)
        loss.backward()
        return loss

    for step in range(1, steps + 1):
        if closure:
            optimizer.step(usual)
        else:
            usual()
            optimizer.step()
        monitor.observe(step, batch=(X, Y))
    return monitor.rows, monitor


class OwnAdam(torch.optim.Adam):
    """Scales its average in a way of its own, as Prodigy does."""

    def step(self, closure=None):
        super().step(closure)
        for state in self.state.values():
            state["exp_avg_sq"] *= 1e-12


class NoStep(torch.optim.SGD):
    """Keeps an average under Adam's name, but no count of steps, as schedule-free optimisers do."""

    def step(self, closure=None):
        super().step(closure)
        for p in self.param_groups[0]["params"]:
            self.state[p]["exp_avg_sq"] = p.grad**2


@pytest.mark.parametrize("kind", [OwnAdam, NoStep])
def test_optimisers_that_are_not_known_have_no_surprise(kind):
    rows, _ = rows_of(lambda params: kind(params, lr=0.01))
    assert not any("surprise" in row for row in rows)
    assert rows[-1]["realised_edge"] < 1


def test_groups_are_surprised_by_their_own_averages():
    """After one step a corrected average is the squared gradient itself, whichever the betas."""

    def make(params):
        first, *others = params
        return torch.optim.Adam([dict(params=[first], betas=(0.9, 0.5)), dict(params=others)], lr=0.01)

    assert rows_of(make, steps=1)[0][0]["surprise"] == pytest.approx(1, rel=1e-12)


def test_cdats_base_has_the_average():
    def make(params):
        return CDAT(torch.optim.AdamW(params, lr=1.0), curvature="finite_difference")

    assert rows_of(make, steps=1, closure=True)[0][0]["surprise"] == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize(
    "make",
    [
        lambda params: torch.optim.SGD(params, lr=0.01),
        lambda params: DAL(params, curvature="finite_difference"),
    ],
    ids=["sgd", "dal"],
)
def test_a_closure_that_is_evaluated_where_the_step_starts_gives_the_slope(make):
    rows, _ = rows_of(make, closure=True)
    for row in rows:
        assert row["batch_slope"] == pytest.approx(-row["batch_gradient_norm"] * row["update_norm"])


def test_a_closure_that_is_evaluated_elsewhere_gives_no_slope():
    rows, monitor = rows_of(lambda params: torch.optim.LBFGS(params, lr=0.1, max_iter=4), closure=True)
    for row in rows:
        assert (
            torch.tensor([row[name] for name in ("batch_slope", "batch_gradient_norm", "realised_edge")]).isnan().all()
        )
        assert row["batch_loss_change"] < 0
    assert monitor.summary()


class InPlace(torch.optim.SGD):
    """Computes in the gradients' memory, as schedule-free AdamW does."""

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            p.sub_(p.grad.div_(p.grad.abs() + 1), alpha=0.01)


def test_an_optimiser_that_overwrites_gradients_gives_no_slope():
    rows, _ = rows_of(lambda params: InPlace(params, lr=0.01))
    assert torch.tensor(rows[-1]["batch_slope"]).isnan()


class Lookahead(torch.optim.Optimizer):
    """Holds an optimiser, and does more than it: its edge isn't the base's."""

    def __init__(self, base):
        self.optimizer = base
        super().__init__(base.param_groups, dict(lr=0.1))

    def step(self, closure=None):
        self.optimizer.step()


def test_optimisers_that_hold_another_are_not_taken_for_it():
    base = Lookahead(torch.optim.SGD(tanh_network(SMALL).parameters(), lr=0.1))
    assert "Lookahead" in edge(base).unknown
    _, monitor = rows_of(lambda params: Lookahead(torch.optim.SGD(params, lr=0.1)))
    assert type(monitor._optimizer) is Lookahead


def test_what_wraps_an_optimiser_without_being_one_is_refused_with_a_remedy():
    class Wrapper:
        def __init__(self):
            self.base = torch.optim.SGD(tanh_network(SMALL).parameters(), lr=0.1)

    with pytest.raises(ValueError, match=r"must be a torch.optim.Optimizer.* leave it out, and give observe the learn"):
        Monitor(tanh_network(SMALL), mean_square, (X, Y), optimizer=Wrapper())


def test_a_step_that_is_gone_has_no_critical_sharpness():
    _, monitor = rows_of(lambda params: torch.optim.SGD(params, lr=0.1))
    assert monitor.critical_sharpness() > 0
    monitor.observe(4)
    with pytest.raises(ValueError, match="needs a step"):
        monitor.critical_sharpness()


def test_a_rate_of_zero_ends_no_loop():
    model = tanh_network(SMALL)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = Monitor(model, mean_square, (X, Y), measure="cheap")
    monitor.attach(optimizer, steps=True)
    found = []
    for step, rate in enumerate((0.0, 0.1)):
        mean_square(model(X), Y).backward()
        optimizer.step()
        optimizer.param_groups[0]["lr"] = rate
        monitor.observe(step, batch=(X, Y))
        found.append(monitor.critical_sharpness())
    assert found[0] > 0  # at the rate that was taken
    assert math.isnan(found[1])


def of_size(size):
    """How many tensors of so many numbers there are, of memory of their own."""
    gc.collect()
    tensors = [t for t in gc.get_objects() if issubclass(type(t), torch.Tensor) and t.numel() == size]
    return len({t.untyped_storage().data_ptr() for t in tensors})


@pytest.mark.parametrize(("make", "own"), [(torch.optim.SGD, 2), (torch.optim.AdamW, 4)])
def test_cheap_measures_hold_one_vector_besides_the_loops_own(make, own):
    """Parameters and gradient are the loop's own, and Adam's two averages."""
    model = nn.Sequential(nn.Linear(211, 103, bias=False), nn.Linear(103, 2, bias=False))
    optimizer = make(model.parameters(), lr=0.01)
    x, y = torch.randn(5, 211), torch.randn(5, 2)
    monitor = Monitor(model, mean_square, (x, y), optimizer=optimizer, measure="cheap")
    counts = []
    optimizer.register_step_post_hook(lambda *_: counts.append(of_size(211 * 103)))
    for step in range(1, 5):
        optimizer.zero_grad()
        loss = mean_square(model(x), y)
        loss.backward()
        optimizer.step()
        monitor.observe(step, batch=(x, y), loss=loss)
        counts.append(of_size(211 * 103))
    assert counts == [own, own, *[own + 1] * 6]
    assert monitor.memory == 0
