import cases
import jax
import numpy as np
import optax
import pytest

import principalflow as pf

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0 runs these tests")

import torch
from pytorch.cases import CURVATURES, INPUTS, TARGETS, Network, cdat, closure_of, flat, square_loss, train
from torch import nn

from principalflow.torch import CDAT, DAL

BASES = {
    "sgd": (optax.sgd(1.0), lambda p: torch.optim.SGD(p, lr=1.0)),
    "momentum": (optax.sgd(1.0, momentum=0.9), lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.9)),
    "adam": (optax.adam(1.0), lambda p: torch.optim.Adam(p, lr=1.0)),
    "adamw": (optax.adamw(1.0, weight_decay=0.1), lambda p: torch.optim.AdamW(p, lr=1.0, weight_decay=0.1)),
}
OPTIONS = [
    dict(),
    dict(measure="drift", average=0.5),
    dict(average=None, scale=1.0),
    dict(power=0.5, scale=0.1),
    dict(every=3, max_learning_rate=0.2),
    dict(every=2, average=None, measure="drift"),
]
each_base = pytest.mark.parametrize("base", BASES)


@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@each_base
def test_optax_and_pytorch_agree_step_for_step(base, options, curvature):
    params, model = cases.network((2, 4, 1)), Network()
    theirs, ours = BASES[base]
    tx = pf.cdat(theirs, curvature=curvature, **options)
    state = tx.init(params)
    optimizer = CDAT(ours(model.parameters()), curvature=curvature, **options)

    def loss(params):
        return cases.square_loss(params, (INPUTS, TARGETS))

    # As for DAL: a finite difference divides rounding by 0.01, and steps at the edge double it now and then.
    tolerance = 1e-10 if curvature == "hvp" else 1e-7
    for _ in range(8):
        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = tx.update(gradient, state, params, value_fn=loss)
        params = optax.apply_updates(params, updates)
        found = optimizer.step(closure_of(optimizer, lambda: square_loss(model), curvature))
        np.testing.assert_allclose(found, value, rtol=tolerance)
        np.testing.assert_allclose(optimizer.curvature, state.curvature, rtol=tolerance)
        np.testing.assert_allclose(optimizer.param_groups[0]["lr"], state.curvature_learning_rate, rtol=tolerance)
        leaves = [leaf for pair in zip(model.weights, model.biases, strict=True) for leaf in pair]
        for mine, leaf in zip(leaves, jax.tree.leaves(params), strict=True):
            np.testing.assert_allclose(mine.detach(), leaf, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("measure", ["directional", "drift"])
def test_the_rate_on_a_quadratic_is_the_closed_form(dtype, tolerance, measure):
    A = np.array([[2.0, 0.5], [0.5, -1.0]])
    x = torch.tensor([1.0, 0.5], dtype=dtype, requires_grad=True)
    optimizer = CDAT(torch.optim.SGD([x], lr=1.0), measure=measure, max_learning_rate=5.0)
    optimizer.step(lambda: x @ torch.tensor(A, dtype=dtype) @ x / 2)
    g = A @ [1.0, 0.5]
    expected = 2 * (g @ g) / abs(g @ A @ g) if measure == "directional" else 2 * np.sqrt(g @ g) / np.linalg.norm(A @ g)
    assert abs(optimizer.param_groups[0]["lr"] / min(expected, 5.0) - 1) < tolerance


def test_the_drift_along_the_gradient_is_dal():
    options = dict(max_learning_rate=5.0, average=None)
    _, ours = train(Network(), 6, make=cdat, base=torch.optim.SGD, measure="drift", **options)
    _, theirs = train(Network(), 6, make=DAL, **options)
    torch.testing.assert_close(ours[-1], theirs[-1], rtol=1e-9, atol=1e-9)


# The base.


def test_the_base_keeps_what_it_would_have_kept():
    model, alone = Network(), Network()
    optimizer, _ = train(model, 1, make=cdat)
    square_loss(alone).backward()
    adam = torch.optim.AdamW(alone.parameters(), lr=1.0)
    adam.step()
    for p, q in zip(model.parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(optimizer.base.state[p]["exp_avg_sq"], adam.state[q]["exp_avg_sq"])
    assert [p for group in optimizer.base.param_groups for p in group["params"]] == list(model.parameters())


@pytest.mark.parametrize("foreach", [True, False])
def test_bases_may_be_any_that_need_no_closure(foreach):
    for base in (torch.optim.NAdam, torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.Adamax, torch.optim.RAdam):
        model = Network()
        before = square_loss(model)
        train(model, 5, optimizer=CDAT(base(model.parameters(), lr=1.0, foreach=foreach), measure="drift"))
        assert square_loss(model) < before, base


def test_rates_of_the_bases_groups_keep_their_ratio():
    model = Network()
    groups = [dict(params=model.weights.parameters()), dict(params=model.biases.parameters(), lr=0.1)]
    optimizer = CDAT(torch.optim.SGD(groups, lr=1.0))
    before = [b.detach().clone() for b in model.biases]
    train(model, 1, optimizer=optimizer)
    rate = optimizer.param_groups[1]["lr"]
    assert rate == optimizer.param_groups[0]["lr"]
    for b, old in zip(model.biases, before, strict=True):
        torch.testing.assert_close(b.detach(), old - 0.1 * rate * b.grad)


def test_groups_have_their_own_cap():
    model = Network()
    groups = [dict(params=model.weights.parameters()), dict(params=model.biases.parameters())]
    optimizer = CDAT(torch.optim.SGD(groups, lr=1.0))
    optimizer.param_groups[1]["max_learning_rate"] = 1e-3
    train(model, 1, optimizer=optimizer)
    assert optimizer.param_groups[0]["lr"] > optimizer.param_groups[1]["lr"] == 1e-3


def test_an_update_that_does_not_descend_is_not_taken_and_told_once():
    model = Network()
    before = flat(model)
    optimizer = CDAT(torch.optim.SGD(model.parameters(), lr=1.0, maximize=True))
    with pytest.warns(UserWarning, match="first update points up the slope") as told:
        train(model, 2, optimizer=optimizer)
    assert len(told) == 1
    assert torch.equal(flat(model), before)
    assert (optimizer.param_groups[0]["lr"], optimizer.count) == (0.0, 2)


def test_a_group_added_later_moves():
    model = Network()
    optimizer = cdat(model.weights.parameters())
    before = flat(model.biases)
    optimizer.add_param_group(dict(params=model.biases.parameters(), lr=0.5, scale=1.0))
    train(model, 1, optimizer=optimizer)
    assert not torch.equal(flat(model.biases), before)
    assert (optimizer.base.param_groups[1]["lr"], optimizer.param_groups[1]["scale"]) == (0.5, 1.0)


def test_a_bad_group_is_kept_by_neither():
    optimizer = cdat(Network().parameters())
    with pytest.raises(ValueError, match="scale must be"):
        optimizer.add_param_group(dict(params=[torch.ones(2, requires_grad=True)], scale=-1.0))
    assert len(optimizer.param_groups) == len(optimizer.base.param_groups) == 1


def test_a_group_that_only_the_base_has_is_refused():
    model = Network()
    optimizer = cdat(model.weights.parameters())
    optimizer.base.add_param_group(dict(params=model.biases.parameters()))
    with pytest.raises(RuntimeError, match="add_param_group"):
        train(model, 1, optimizer=optimizer)


def test_a_curvature_that_is_not_finite_leaves_the_base_as_it_was():
    class Bent(torch.autograd.Function):
        """The sum, with a second derivative that is not finite."""

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sum()

        @staticmethod
        def backward(ctx, ct):
            (x,) = ctx.saved_tensors
            return ct * (1 + torch.sqrt(x - x.detach()))

    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    optimizer = cdat([x], skip_nonfinite=True)
    optimizer.step(lambda: x @ x)
    before = (x.tolist(), optimizer.base.state_dict()["state"][0]["step"].item(), optimizer.count)
    optimizer.step(lambda: Bent.apply(x))
    assert (x.tolist(), optimizer.base.state_dict()["state"][0]["step"].item(), optimizer.count) == before
    assert optimizer.nonfinite == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(scale=0.0), "scale must be a finite number above 0"),
        (dict(power=-1), "power must be"),
        (dict(max_learning_rate=0.0), "max_learning_rate must be"),
        (dict(measure="norm"), "measure must be one of 'directional', 'drift'"),
        (dict(every=0), "every must be"),
        (dict(average=1.0), "average must be"),
        (dict(curvature="exact"), "curvature must be one of"),
        (dict(skip_nonfinite="no"), "skip_nonfinite must be True or False"),
    ],
)
def test_bad_options_are_refused_and_leave_the_base_alone(options, message):
    base = torch.optim.SGD(Network().parameters(), lr=1.0)
    with pytest.raises(ValueError, match=message):
        CDAT(base, **options)
    assert len(base.param_groups) == 1


@pytest.mark.parametrize("base", [None, [nn.Parameter(torch.ones(2))], torch.optim.SGD, "adam"])
def test_what_is_no_optimiser_is_refused(base):
    with pytest.raises(ValueError, match="base must be an optimiser"):
        CDAT(base)


def test_a_base_that_needs_a_closure_is_refused():
    with pytest.raises(ValueError, match="base must be an optimiser whose step needs no closure, got LBFGS"):
        CDAT(torch.optim.LBFGS([nn.Parameter(torch.ones(2))]))


def test_a_base_may_have_a_scheduler_already():
    base = torch.optim.AdamW(Network().parameters(), lr=1.0)
    torch.optim.lr_scheduler.ConstantLR(base)
    assert CDAT(base).base is base


def test_a_scale_may_be_scheduled_down_to_zero():
    model = Network()
    optimizer, before = cdat(model.parameters()), flat(model)
    optimizer.param_groups[0]["scale"] = 0.0
    train(model, 1, optimizer=optimizer)
    assert torch.equal(flat(model), before)
