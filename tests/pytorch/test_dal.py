from decimal import Decimal
from fractions import Fraction

import cases
import jax
import numpy as np
import optax
import pytest

import principalflow as pf

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0 runs these tests")

import torch
from pytorch.cases import CURVATURES, INPUTS, TARGETS, Network, closure_of, flat, square_loss, train
from torch import nn

from principalflow.torch import DAL

OPTIONS = [
    dict(),
    dict(power=0.5, factor=0.5),
    dict(power=2.0, factor=0.7, max_learning_rate=0.4),
    dict(momentum=0.9, factor=0.5),
    dict(every=3),
    dict(average=0.9, every=2),
    dict(per_parameter=True),
    dict(per_parameter=True, power=0.5, momentum=0.5, every=2, average=0.5),
    dict(weight_decay=0.1, momentum=0.3),
]
each_option = pytest.mark.parametrize("options", OPTIONS, ids=str)
each_curvature = pytest.mark.parametrize("curvature", CURVATURES)


@each_curvature
@each_option
def test_optax_and_pytorch_agree_step_for_step(options, curvature):
    params = cases.network((2, 4, 1))
    tx = pf.dal(curvature=curvature, **options)
    state = tx.init(params)
    model = Network()
    optimizer = DAL(model.parameters(), curvature=curvature, **options)

    def loss(params):
        return cases.square_loss(params, (INPUTS, TARGETS))

    # A finite difference divides rounding by 0.01, and steps at the edge of stability double it now and then.
    tolerance = 1e-11 if curvature == "hvp" else 1e-8
    for _ in range(12):
        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = tx.update(gradient, state, params, value_fn=loss)
        params = optax.apply_updates(params, updates)
        ours = optimizer.step(closure_of(optimizer, lambda: square_loss(model), curvature))
        np.testing.assert_allclose(ours, value, rtol=tolerance)
        theirs = [leaf for pair in zip(model.weights, model.biases, strict=True) for leaf in pair]
        for leaf, mine in zip(jax.tree.leaves(params), theirs, strict=True):
            np.testing.assert_allclose(mine.detach(), leaf, rtol=tolerance, atol=tolerance)
        if not options.get("per_parameter"):
            np.testing.assert_allclose(optimizer.param_groups[0]["lr"], state.scale.drift_learning_rate, rtol=tolerance)
            np.testing.assert_allclose(optimizer.curvature, state.scale.curvature, rtol=tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
def test_the_rate_on_a_quadratic_is_the_closed_form(dtype, tolerance, power):
    A = np.array([[2.0, 0.5], [0.5, -1.0]])
    x = torch.tensor([1.0, 0.5], dtype=dtype, requires_grad=True)
    optimizer = DAL([x], power=power)
    optimizer.step(lambda: x @ torch.tensor(A, dtype=dtype) @ x / 2)
    g = A @ [1.0, 0.5]
    expected = min(2 / np.linalg.norm(A @ g / np.linalg.norm(g)) ** power, 5.0)
    assert abs(optimizer.param_groups[0]["lr"] / expected - 1) < tolerance


@each_option
def test_foreach_changes_no_number(options, monkeypatch):
    calls = []
    original = torch._foreach_sub_
    monkeypatch.setattr(
        torch, "_foreach_sub_", lambda params, steps: calls.append(len(params)) or original(params, steps)
    )
    together, one_by_one = (train(Network(), 5, foreach=foreach, **options)[1] for foreach in (True, False))
    assert torch.equal(torch.stack(together), torch.stack(one_by_one))
    assert calls == [4] * 5 + [1] * 20


def test_groups_have_their_own_power_and_cap():
    model = Network()
    groups = [
        dict(params=model.weights.parameters(), power=0.5),
        dict(params=model.biases.parameters(), max_learning_rate=0.01),
    ]
    optimizer, _ = train(model, 1, optimizer=DAL(groups))
    assert optimizer.param_groups[0]["lr"] == pytest.approx(2 / optimizer.curvature**0.5, rel=1e-12)
    assert optimizer.param_groups[1]["lr"] == 0.01


def test_a_group_that_does_not_adapt_takes_plain_steps():
    model = Network()
    biases = [b.detach().clone() for b in model.biases]
    groups = [dict(params=model.weights.parameters()), dict(params=model.biases.parameters(), adapt=False, lr=0.02)]
    optimizer, _ = train(model, 1, optimizer=DAL(groups))
    for before, b in zip(biases, model.biases, strict=True):
        torch.testing.assert_close(b, before - 0.02 * b.grad)
    fixed = Network()
    fixed.biases.requires_grad_(False)
    reference, _ = train(fixed, 1)
    assert optimizer.curvature == reference.curvature


def test_a_group_added_later_moves_at_once():
    model = Network()
    optimizer = DAL(model.weights.parameters(), every=5, per_parameter=True)
    train(model, 1, optimizer=optimizer)
    before = flat(model.biases)
    optimizer.add_param_group(dict(params=model.biases.parameters()))
    train(model, 1, optimizer=optimizer)
    assert not torch.equal(flat(model.biases), before)
    assert optimizer.count == 2


def test_the_learning_rate_is_in_the_group():
    optimizer, _ = train(Network(), 2)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(2 / optimizer.curvature, rel=1e-12)


# Refusals, each with its remedy.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(power=-1), "power must be"),
        (dict(max_learning_rate=0.0), "max_learning_rate must be"),
        (dict(factor=-2), "factor must be"),
        (dict(every=0), "every must be"),
        (dict(momentum=1.0), "momentum must be"),
        (dict(average=1.0), "average must be"),
        (dict(weight_decay=-0.1), "weight_decay must be"),
        (dict(curvature="exact"), "curvature must be one of"),
        (dict(factor=10**400), "factor must be within the range of floating-point numbers"),
        (dict(factor=torch.ones(2)), "factor must be a real number"),
        (dict(momentum=[]), "momentum must be a real number"),
        (dict(per_parameter="no"), "per_parameter must be True or False"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        DAL(Network().parameters(), **options)


@pytest.mark.parametrize("name", ["lr", "learning_rate"])
def test_a_rate_is_refused_with_what_to_give_instead(name):
    with pytest.raises(ValueError, match=f"DAL takes no {name}, since it computes .* factor .* max_learning_rate"):
        DAL(Network().parameters(), **{name: 0.1})


def test_a_misspelt_option_gets_the_nearest_one():
    with pytest.raises(TypeError, match=r"DAL has no option 'momentun'\. Did you mean 'momentum'"):
        DAL(Network().parameters(), momentun=0.9)


@pytest.mark.parametrize("params", [None, [], "abc", torch.ones(2), [1.0], 3])
def test_what_are_no_parameters_is_refused(params):
    with pytest.raises(ValueError, match="params must be tensors, named tensors or groups of them, at least one"):
        DAL(params)


def test_options_may_be_any_real_numbers():
    x = torch.ones(2, requires_grad=True)
    DAL([x], power=Fraction(1, 2), factor=Decimal(1), momentum=np.float32(0.5)).step(lambda: (x * x).sum())
    assert x.detach().isfinite().all()


def test_a_bad_group_is_refused_and_not_kept():
    optimizer = DAL(Network().parameters())
    for options, message in [
        (dict(adapt=False), "lr, which a group with adapt=False must have"),
        (dict(lr=0.1), "a group's lr needs adapt=False"),
        (dict(adpat=False, lr=0.1), "got adpat"),
    ]:
        with pytest.raises(ValueError, match=message):
            optimizer.add_param_group(dict(params=[torch.ones(2, requires_grad=True)], **options))
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("option", [dict(every=2), dict(per_parameter=True), dict(curvature="finite_difference")])
def test_what_is_one_for_all_groups_is_refused_in_one(option):
    optimizer = DAL(Network().parameters())
    with pytest.raises(ValueError, match="is one for all groups"):
        optimizer.add_param_group(dict(params=[torch.ones(2, requires_grad=True)], **option))


def test_a_warm_up_may_begin_at_zero():
    model = Network()
    optimizer, before = DAL(model.parameters()), flat(model)
    optimizer.param_groups[0]["factor"] = 0.0
    train(model, 1, optimizer=optimizer)
    assert torch.equal(flat(model), before)


def test_a_weight_decay_beyond_the_parameters_numbers_is_refused():
    with pytest.raises(ValueError, match=r"^weight_decay must be at most 3.4e\+38, the largest number of the params"):
        DAL([nn.Parameter(torch.ones(2))], weight_decay=1e39)


def test_rates_per_parameter_in_float16_are_refused():
    with pytest.raises(ValueError, match="use bfloat16 or float32"):
        DAL([torch.ones(2, dtype=torch.float16, requires_grad=True)], per_parameter=True)
