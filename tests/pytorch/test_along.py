"""What every optimiser that measures curvature along its update keeps to in PyTorch: DAL and CDAT."""

import copy
import pickle
import warnings
import weakref
from functools import partial

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0 runs these tests")

import torch
from pytorch.cases import CURVATURES, Network, X, Y, cdat, closure_of, flat, square_loss, train
from torch import nn

from principalflow.torch import DAL, NonFiniteWarning

on_sgd = partial(cdat, base=torch.optim.SGD)
VARIANTS = [
    (DAL, dict()),
    (DAL, dict(momentum=0.9, average=0.5)),
    (DAL, dict(per_parameter=True)),
    (DAL, dict(per_parameter=True, power=0.5, momentum=0.5, every=2, average=0.5)),
    (DAL, dict(weight_decay=0.1, every=3)),
    (cdat, dict()),
    (cdat, dict(every=2, average=None)),
    (cdat, dict(measure="drift", power=0.5, scale=0.1)),
    (on_sgd, dict(max_learning_rate=5.0)),
]
# A share of the usual rate.
SMALL = {DAL: dict(factor=0.5), cdat: dict(scale=0.5), on_sgd: dict(scale=0.5)}
each_kind = pytest.mark.parametrize("make", [DAL, cdat], ids=["DAL", "CDAT"])
each_curvature = pytest.mark.parametrize("curvature", CURVATURES)


@each_kind
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_copies_go_on_as_the_original_does(make, duplicate):
    model = Network()
    optimizer, _ = train(model, 3, every=2, make=make)
    model_2, optimizer_2 = duplicate((model, optimizer))
    assert torch.equal(train(model, 3, optimizer=optimizer)[1][-1], train(model_2, 3, optimizer=optimizer_2)[1][-1])


@each_kind
@each_curvature
def test_closures_accumulate(make, curvature):
    model, whole = Network(), Network()
    optimizer = make(model.parameters(), curvature=curvature)
    parts = [lambda s=s: square_loss(model, X[s], Y[s]) * len(X[s]) / len(X) for s in (slice(0, 4), slice(4, 11))]
    for _ in range(3):
        optimizer.step([closure_of(optimizer, part, curvature) for part in parts])
    _, path = train(whole, 3, curvature, make=make)
    np.testing.assert_allclose(flat(model), path[-1], rtol=1e-9)


@each_kind
def test_frozen_and_unused_parameters_stay(make):
    model = Network()
    unused = nn.Parameter(torch.ones(3, dtype=torch.float64))
    model.biases.requires_grad_(False)
    before = flat(model.biases)
    optimizer, _ = train(model, 2, optimizer=make([*model.parameters(), unused]))
    assert torch.equal(flat(model.biases), before)
    assert torch.equal(unused.detach(), torch.ones(3, dtype=torch.float64))
    assert optimizer.count == 2


@each_kind
@each_curvature
def test_parameters_that_are_frozen_later_stay(make, curvature):
    model = Network()
    optimizer, _ = train(model, 1, curvature, every=3, make=make)
    model.biases.requires_grad_(False)
    before = flat(model.biases)
    train(model, 4, curvature, optimizer)
    assert torch.equal(flat(model.biases), before)


@each_kind
def test_parameters_without_entries_are_no_trouble(make):
    x, empty = (torch.ones(n, requires_grad=True) for n in (2, 0))
    optimizer = make([dict(params=[x]), dict(params=[empty])])
    optimizer.step(lambda: x @ x + empty.sum())
    assert optimizer.count == 1


@each_kind
def test_a_gradient_of_zero_is_measured_again(make):
    x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = make([x], every=10)
    optimizer.step(lambda: 2 * x @ x)
    x.data += 1
    optimizer.step(lambda: 2 * x @ x)
    assert optimizer.curvature == pytest.approx(4.0)


@each_kind
def test_a_skipped_step_runs_no_closure_on_spoilt_parameters(make):
    norm = nn.BatchNorm1d(2)
    optimizer = make(norm.parameters(), curvature="finite_difference", skip_nonfinite=True)
    loss = lambda: norm(X.float()).sum() * torch.nan  # noqa: E731
    optimizer.step(closure_of(optimizer, loss, "finite_difference"))
    assert torch.isfinite(norm.running_mean).all()


@each_kind
def test_a_linear_loss_has_no_curvature(make):
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    make([x], max_learning_rate=3.0).step(lambda: x.sum())
    np.testing.assert_allclose(x.detach(), [-3.0, -3.0], rtol=1e-6)  # AdamW's epsilon


@each_kind
def test_no_graph_stays_behind(make):
    model, losses = Network(), []

    def closure():
        loss = square_loss(model)
        losses.append(weakref.ref(loss))
        return loss

    make(model.parameters()).step(closure)
    assert losses[0]() is None
    assert all(p.grad.grad_fn is None for p in model.parameters())


@each_kind
def test_the_gradient_of_the_step_is_left_for_loggers(make):
    model, other = Network(), Network()
    train(model, 1, make=make)
    square_loss(other).backward()
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)


@each_kind
def test_closures_may_zero_gradients_either_way(make):
    model = Network()
    optimizer = make(model.parameters())
    for to_none in (True, False):

        def closure(to_none=to_none):
            optimizer.zero_grad(set_to_none=to_none)
            return square_loss(model)

        optimizer.step(closure)
    _, path = train(Network(), 2, make=make)
    assert torch.equal(flat(model), path[-1])


@each_kind
def test_dropout_is_the_same_in_both_evaluations(make):
    def last_curvature(curvature):
        torch.manual_seed(0)
        model, drop = Network((2, 40, 1)), nn.Dropout(0.5)
        optimizer = make(model.parameters(), curvature=curvature)
        for _ in range(3):
            optimizer.step([closure_of(optimizer, lambda: square_loss(model, drop(X)), curvature)] * 2)
        return optimizer.curvature, torch.rand(())

    (exact, after), (difference, later) = map(last_curvature, CURVATURES)
    assert difference == pytest.approx(exact, rel=0.05)
    assert after == later


def attention(x):
    """Fused attention, which has no second derivative on CPUs either."""
    return nn.functional.scaled_dot_product_attention(x, x, x).square().sum()


@each_kind
def test_fused_attention_trains_with_finite_differences(make):
    x = torch.randn(1, 2, 8, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()
    optimizer = make([x], curvature="finite_difference", **SMALL[make])
    losses = [float(optimizer.step(closure_of(optimizer, lambda: attention(x), "finite_difference"))) for _ in range(5)]
    assert losses[-1] < losses[0]


@each_kind
@pytest.mark.parametrize("closures", [1, 2])
def test_exact_products_of_attention_are_those_without_fused_kernels(make, closures):
    def curvature(measured):
        x = torch.randn(1, 2, 8, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64).requires_grad_()
        optimizer = make([x], **SMALL[make])
        optimizer.step([lambda: measured(x)] * closures)
        return optimizer.curvature

    def unfused(x):
        weights = (x @ x.transpose(-1, -2) / 16**0.5).softmax(-1)
        return (weights @ x).square().sum()

    assert curvature(attention) == pytest.approx(curvature(unfused), rel=1e-9)


@each_kind
def test_exact_products_of_a_compiled_model_are_the_models_own(make):
    model = Network()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = make(model.parameters())
    optimizer.step(lambda: square_loss(compiled))
    _, path = train(Network(), 1, "hvp", make=make)
    torch.testing.assert_close(flat(model), path[-1])


@each_kind
def test_a_compiled_model_trains_with_finite_differences(make):
    model = Network()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = make(model.parameters(), curvature="finite_difference")
    optimizer.step(closure_of(optimizer, lambda: square_loss(compiled), "finite_difference"))
    _, path = train(Network(), 1, "finite_difference", make=make)
    torch.testing.assert_close(flat(model), path[-1])


@each_kind
def test_a_closure_that_fails_leaves_the_parameters_alone(make):
    model, calls = Network(), []
    before = flat(model)
    optimizer = make(model.parameters(), curvature="finite_difference")

    def closure():
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        loss = square_loss(model)
        loss.backward()
        return loss

    with pytest.raises(KeyboardInterrupt):
        optimizer.step(closure)
    assert torch.equal(flat(model), before)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(("make", "options"), VARIANTS)
def test_dtypes_are_kept(make, options, dtype):
    x = torch.ones(3, dtype=dtype, requires_grad=True)
    optimizer = make([x], **(SMALL[make] | options))
    for _ in range(2):
        optimizer.step(lambda: (x**2).sum())
    assert x.dtype == dtype
    assert all(value.dtype == dtype for value in optimizer.state[x].values())
    assert torch.isfinite(x).all()


@each_curvature
@pytest.mark.parametrize(("make", "options"), [(DAL, {}), (DAL, dict(per_parameter=True)), (cdat, {}), (on_sgd, {})])
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize(
    ("scale", "start"), [(1.0, 0.0), (0.0, 1.0), (1e30, 1.0), (1e30, 1e-30)], ids=["gradient", "flat", "huge", "steep"]
)
def test_no_extreme_gives_nan(make, options, curvature, power, scale, start):
    x = torch.full((3,), start, requires_grad=True)
    optimizer = make([x], power=power, curvature=curvature, **options)
    with warnings.catch_warnings():
        # Not normalised, |Hg| leaves single precision where both are huge: a rate of zero, and said.
        warnings.simplefilter("ignore" if options else "error", NonFiniteWarning)
        optimizer.step(closure_of(optimizer, lambda: scale * (x @ x) / 2 + (0 if scale else x[0]), curvature))
    assert torch.isfinite(x).all()


@each_kind
def test_a_gradient_that_is_not_finite_is_passed_on_and_said(make):
    x = torch.ones(2, requires_grad=True)
    optimizer = make([x])
    with pytest.warns(NonFiniteWarning, match="skip_nonfinite=True"):
        optimizer.step(lambda: (x * torch.tensor([1.0, torch.nan])).sum())
    assert torch.isnan(x).any()
    assert optimizer.nonfinite == 1


@each_kind
def test_after_a_rate_that_is_not_finite_steps_go_on_as_they_can(make):
    x = torch.ones(2, requires_grad=True)
    optimizer = make([x])
    for _ in range(2):
        with pytest.warns(NonFiniteWarning):
            optimizer.step(lambda: (x * torch.nan).square().sum())
    assert optimizer.nonfinite == 2


@pytest.mark.parametrize(("make", "options"), VARIANTS)
def test_a_gradient_that_is_not_finite_is_skipped_if_asked_for(make, options):
    model = Network()
    optimizer, _ = train(model, 2, make=make, skip_nonfinite=True, **options)
    before, count = flat(model), optimizer.count
    optimizer.step(lambda: square_loss(model) * torch.nan)
    assert torch.equal(flat(model), before)
    assert (optimizer.nonfinite, optimizer.count) == (1, count)
    _, path = train(model, 2, optimizer=optimizer)
    _, without = train(Network(), 4, make=make, **options)
    assert torch.equal(path[-1], without[-1])


# Refusals, each with its remedy.


def refused(make, message, closure=None, curvature="hvp", params=None):
    model = Network()
    optimizer = make(params or model.parameters(), curvature=curvature)
    with pytest.raises(RuntimeError, match=message):
        optimizer.step(closure(optimizer, model) if closure else None)


@each_kind
def test_no_closure_is_refused(make):
    refused(make, "step needs a closure")


@each_kind
def test_a_closure_that_calls_backward_is_refused_where_products_are_exact(make):
    refused(
        make,
        r"called backward\(\).*curvature='finite_difference'",
        lambda optimizer, model: closure_of(optimizer, lambda: square_loss(model), "finite_difference"),
    )


@each_kind
def test_a_closure_that_calls_backward_is_refused_where_the_gradient_is_zero(make):
    x = torch.zeros(2, requires_grad=True)
    refused(
        make,
        r"called backward\(\)",
        lambda optimizer, _: closure_of(optimizer, lambda: x @ x, "finite_difference"),
        params=[x],
    )


@each_kind
@pytest.mark.parametrize("closure", [[], torch.ones(()), [torch.ones(())]])
def test_what_is_no_closure_is_refused(make, closure):
    refused(make, "step needs a closure", lambda *_: closure)


@each_kind
def test_another_models_loss_is_refused(make):
    other = Network(seed=1)
    refused(make, "no gradient by any parameter", lambda *_: lambda: square_loss(other))


@each_kind
def test_a_closure_without_a_loss_is_refused(make):
    refused(
        make,
        "must return the loss, got None",
        lambda _, model: lambda: square_loss(model).backward(),
        "finite_difference",
    )


@each_kind
def test_a_closure_that_does_not_call_backward_is_refused_with_finite_differences(make):
    refused(make, "must call backward", lambda _, model: lambda: square_loss(model), "finite_difference")


@each_kind
@pytest.mark.parametrize(
    "bad",
    [lambda loss: loss.item(), lambda loss: loss.detach(), lambda loss: loss * torch.ones(2), lambda loss: 1j * loss],
)
def test_a_loss_that_is_no_real_number_with_a_graph_is_refused(make, bad):
    refused(
        make, "must return the loss, one real number with its graph", lambda _, model: lambda: bad(square_loss(model))
    )


@each_kind
@each_curvature
def test_sparse_gradients_are_refused(make, curvature):
    table = nn.Embedding(5, 2, sparse=True)

    def loss():
        return table(torch.tensor([1, 2])).square().sum()

    refused(
        make,
        "sparse=False",
        lambda optimizer, _: closure_of(optimizer, loss, curvature),
        curvature,
        list(table.parameters()),
    )


@each_kind
def test_a_model_without_second_derivatives_is_refused_where_products_are_exact(make):
    x = torch.randn(1, 2, 8, 16, requires_grad=True)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # called by its name, it can't be replaced
    loss = lambda: kernel(x, x, x)[0].square().sum()  # noqa: E731
    refused(make, "give the optimizer curvature='finite_difference'", lambda *_: loss, params=[x])


@each_kind
def test_a_scheduler_is_refused(make):
    model = Network()
    optimizer, _ = train(model, 1, make=make)
    torch.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5)
    with pytest.raises(RuntimeError, match=r"schedule the group's '(factor|scale)'"):
        train(model, 1, optimizer=optimizer)


@each_kind
def test_exact_products_on_several_processes_are_refused(make, monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    refused(make, "several processes", lambda _, model: lambda: square_loss(model))


@each_kind
def test_another_optimisers_state_is_refused(make):
    state = torch.optim.SGD(Network().parameters(), 0.1).state_dict()
    with pytest.raises(ValueError, match=r"must be one of (DAL|CDAT)'s"):
        make(Network().parameters()).load_state_dict(state)


@each_kind
@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64])
def test_parameters_that_are_not_real_are_refused(make, dtype):
    with pytest.raises(ValueError, match="params must be real"):
        make([nn.Parameter(torch.ones(2, dtype=dtype), requires_grad=False)])


@each_kind
def test_sharded_parameters_are_refused(make):
    p = torch.ones(2, requires_grad=True)
    p.device_mesh = "a mesh, as a DTensor has"
    with pytest.raises(ValueError, match="must not be sharded"):
        make([p])


@each_kind
def test_a_finite_difference_in_half_precision_is_refused(make):
    with pytest.raises(ValueError, match="lost in rounding"):
        make([torch.ones(2, dtype=torch.bfloat16, requires_grad=True)], curvature="finite_difference")


@each_kind
def test_every_may_be_a_small_whole_number_of_numpy(make):
    x = torch.ones(1, requires_grad=True)
    optimizer = make([x], every=np.uint8(2))
    optimizer.param_groups[0]["count"] = 300  # beyond the largest uint8
    optimizer.step(lambda: x @ x)
    assert optimizer.count == 301


@each_kind
def test_an_option_that_is_set_out_of_its_range_is_refused(make):
    model = Network()
    optimizer = make(model.parameters())
    optimizer.param_groups[0]["power"] = -1.0
    with pytest.raises(ValueError, match="power must be"):
        train(model, 1, optimizer=optimizer)


@each_curvature
@pytest.mark.parametrize(("make", "options"), VARIANTS)
def test_a_saved_run_goes_on_bit_for_bit(make, options, curvature, tmp_path):
    model = Network()
    optimizer, _ = train(model, 4, curvature, make=make, **options)
    torch.save([model.state_dict(), optimizer.state_dict()], tmp_path / "run.pt")
    _, path = train(model, 5, curvature, optimizer)

    again = Network(seed=1)
    resumed = make(again.parameters(), curvature=curvature, **options)
    for part, saved in zip([again, resumed], torch.load(tmp_path / "run.pt"), strict=True):
        part.load_state_dict(saved)
    _, same = train(again, 5, curvature, resumed)
    assert torch.equal(torch.stack(path), torch.stack(same))
    assert resumed.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


@each_kind
def test_a_saved_run_brings_its_options(make):
    optimizer, _ = train(Network(), 2, "finite_difference", make=make, every=3, average=0.5)
    other = make(Network().parameters())
    other.load_state_dict(optimizer.state_dict())
    assert (other.param_groups[0]["every"], other.param_groups[0]["average"]) == (3, 0.5)


@each_kind
def test_gradients_in_reused_buffers_are_measured(make):
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    buffer = torch.zeros(2, dtype=torch.float64)

    def closure():
        buffer.copy_(4 * x.detach())
        x.grad = buffer
        return (2 * x @ x).detach()

    optimizer = make([x], curvature="finite_difference")
    optimizer.step(closure)
    assert optimizer.curvature == pytest.approx(4.0)
