import copy
import pickle
import warnings
import weakref
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
from torch import nn

from principalflow.torch import DAL, NonFiniteWarning

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
CURVATURES = ["hvp", "finite_difference"]
each_option = pytest.mark.parametrize("options", OPTIONS, ids=str)
each_curvature = pytest.mark.parametrize("curvature", CURVATURES)


class Network(nn.Module):
    """The tanh network of `cases`, with the same parameters."""

    def __init__(self, sizes=(2, 4, 1), seed=0):
        super().__init__()
        layers = cases.network(sizes, seed)
        self.weights = nn.ParameterList([torch.tensor(np.asarray(w)) for w, _ in layers])
        self.biases = nn.ParameterList([torch.tensor(np.asarray(b)) for _, b in layers])

    def forward(self, x):
        *hidden, (weights, bias) = zip(self.weights, self.biases, strict=True)
        for w, b in hidden:
            x = torch.tanh(x @ w + b)
        return x @ weights + bias


RANDOM = np.random.default_rng(0)
INPUTS, TARGETS = RANDOM.standard_normal((11, 2)), RANDOM.standard_normal((11, 1))
X, Y = torch.tensor(INPUTS), torch.tensor(TARGETS)


def square_loss(model, x=X, y=Y):
    return ((model(x) - y) ** 2).sum(1).mean()


def closure_of(optimizer, loss, curvature):
    """The closure that each kind of curvature wants."""

    def usual():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    return loss if curvature == "hvp" else usual


def train(model, steps, curvature="hvp", optimizer=None, **options):
    """The optimiser after some steps, and the parameters after each."""
    optimizer = optimizer or DAL(model.parameters(), curvature=curvature, **options)
    path = []
    for _ in range(steps):
        optimizer.step(closure_of(optimizer, lambda: square_loss(model), curvature))
        path.append(flat(model))
    return optimizer, path


def flat(model):
    return torch.cat([p.detach().clone().ravel() for p in model.parameters()])


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


@each_curvature
@each_option
def test_a_saved_run_goes_on_bit_for_bit(options, curvature, tmp_path):
    model = Network()
    optimizer, _ = train(model, 4, curvature, **options)
    torch.save([model.state_dict(), optimizer.state_dict()], tmp_path / "run.pt")
    _, path = train(model, 5, curvature, optimizer)

    again = Network(seed=1)
    resumed = DAL(again.parameters(), curvature=curvature, **options)
    for part, saved in zip([again, resumed], torch.load(tmp_path / "run.pt"), strict=True):
        part.load_state_dict(saved)
    _, same = train(again, 5, curvature, resumed)
    assert torch.equal(torch.stack(path), torch.stack(same))
    assert resumed.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"]


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


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_copies_go_on_as_the_original_does(duplicate):
    model = Network()
    optimizer, _ = train(model, 3, every=2, momentum=0.9)
    model_2, optimizer_2 = duplicate((model, optimizer))
    assert torch.equal(train(model, 3, optimizer=optimizer)[1][-1], train(model_2, 3, optimizer=optimizer_2)[1][-1])


def test_a_saved_run_brings_its_options():
    optimizer, _ = train(Network(), 2, "finite_difference", every=3, average=0.5)
    other = DAL(Network().parameters())
    other.load_state_dict(optimizer.state_dict())
    assert (other.param_groups[0]["every"], other.param_groups[0]["average"]) == (3, 0.5)


def test_gradients_in_reused_buffers_are_measured():
    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    buffer = torch.zeros(2, dtype=torch.float64)

    def closure():
        buffer.copy_(4 * x.detach())
        x.grad = buffer
        return (2 * x @ x).detach()

    optimizer = DAL([x], curvature="finite_difference")
    optimizer.step(closure)
    assert optimizer.curvature == pytest.approx(4.0)


@each_curvature
def test_closures_accumulate(curvature):
    model, whole = Network(), Network()
    optimizer = DAL(model.parameters(), curvature=curvature)
    parts = [lambda s=s: square_loss(model, X[s], Y[s]) * len(X[s]) / len(X) for s in (slice(0, 4), slice(4, 11))]
    for _ in range(3):
        optimizer.step([closure_of(optimizer, part, curvature) for part in parts])
    _, path = train(whole, 3, curvature)
    np.testing.assert_allclose(flat(model), path[-1], rtol=1e-9)


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


def test_frozen_and_unused_parameters_stay():
    model = Network()
    unused = nn.Parameter(torch.ones(3, dtype=torch.float64))
    model.biases.requires_grad_(False)
    before = flat(model.biases)
    optimizer, _ = train(model, 2, optimizer=DAL([*model.parameters(), unused], weight_decay=0.1, momentum=0.9))
    assert torch.equal(flat(model.biases), before)
    assert torch.equal(unused.detach(), torch.ones(3, dtype=torch.float64))
    assert optimizer.count == 2


@each_curvature
def test_parameters_that_are_frozen_later_stay(curvature):
    model = Network()
    optimizer, _ = train(model, 1, curvature, every=3, weight_decay=0.1)
    model.biases.requires_grad_(False)
    before = flat(model.biases)
    train(model, 4, curvature, optimizer)
    assert torch.equal(flat(model.biases), before)


def test_a_group_added_later_moves_at_once():
    model = Network()
    optimizer = DAL(model.weights.parameters(), every=5, per_parameter=True)
    train(model, 1, optimizer=optimizer)
    before = flat(model.biases)
    optimizer.add_param_group(dict(params=model.biases.parameters()))
    train(model, 1, optimizer=optimizer)
    assert not torch.equal(flat(model.biases), before)
    assert optimizer.count == 2


def test_parameters_without_entries_are_no_trouble():
    x, empty = (torch.ones(n, requires_grad=True) for n in (2, 0))
    for options in (dict(), dict(per_parameter=True)):
        optimizer = DAL([dict(params=[x]), dict(params=[empty])], **options)
        optimizer.step(lambda: x @ x + empty.sum())
        assert optimizer.count == 1


def test_a_gradient_of_zero_is_measured_again():
    x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = DAL([x], every=10)
    optimizer.step(lambda: 2 * x @ x)
    x.data += 1
    optimizer.step(lambda: 2 * x @ x)
    assert optimizer.curvature == pytest.approx(4.0)


def test_a_skipped_step_runs_no_closure_on_spoilt_parameters():
    norm = nn.BatchNorm1d(2)
    optimizer = DAL(norm.parameters(), curvature="finite_difference", skip_nonfinite=True)
    loss = lambda: norm(X.float()).sum() * torch.nan  # noqa: E731
    optimizer.step(closure_of(optimizer, loss, "finite_difference"))
    assert torch.isfinite(norm.running_mean).all()


def test_a_linear_loss_has_no_curvature():
    x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    DAL([x], max_learning_rate=3.0).step(lambda: x.sum())
    assert x.tolist() == [-3.0, -3.0]


def test_no_graph_stays_behind():
    model, losses = Network(), []

    def closure():
        loss = square_loss(model)
        losses.append(weakref.ref(loss))
        return loss

    DAL(model.parameters()).step(closure)
    assert losses[0]() is None
    assert all(p.grad.grad_fn is None for p in model.parameters())


def test_the_gradient_of_the_step_is_left_for_loggers():
    model, other = Network(), Network()
    train(model, 1)
    square_loss(other).backward()
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad)


def test_closures_may_zero_gradients_either_way():
    model = Network()
    optimizer = DAL(model.parameters())
    for to_none in (True, False):

        def closure(to_none=to_none):
            optimizer.zero_grad(set_to_none=to_none)
            return square_loss(model)

        optimizer.step(closure)
    _, path = train(Network(), 2)
    assert torch.equal(flat(model), path[-1])


def test_dropout_is_the_same_in_both_evaluations():
    def last_curvature(curvature):
        torch.manual_seed(0)
        model, drop = Network((2, 40, 1)), nn.Dropout(0.5)
        optimizer = DAL(model.parameters(), curvature=curvature)
        for _ in range(3):
            optimizer.step([closure_of(optimizer, lambda: square_loss(model, drop(X)), curvature)] * 2)
        return optimizer.curvature, torch.rand(())

    (exact, after), (difference, later) = map(last_curvature, CURVATURES)
    assert difference == pytest.approx(exact, rel=0.05)
    assert after == later


def attention(x):
    """Fused attention, which has no second derivative on CPUs either."""
    return nn.functional.scaled_dot_product_attention(x, x, x).square().sum()


def test_fused_attention_trains_with_finite_differences():
    x = torch.randn(1, 2, 8, 16, generator=torch.Generator().manual_seed(0)).requires_grad_()
    optimizer = DAL([x], curvature="finite_difference", factor=0.5)
    losses = [float(optimizer.step(closure_of(optimizer, lambda: attention(x), "finite_difference"))) for _ in range(5)]
    assert losses[-1] < losses[0]


def test_a_compiled_model_trains_with_finite_differences():
    model = Network()
    compiled = torch.compile(model, backend="aot_eager")
    optimizer = DAL(model.parameters(), curvature="finite_difference")
    optimizer.step(closure_of(optimizer, lambda: square_loss(compiled), "finite_difference"))
    _, path = train(Network(), 1, "finite_difference")
    torch.testing.assert_close(flat(model), path[-1])


def test_a_closure_that_fails_leaves_the_parameters_alone():
    model, calls = Network(), []
    before = flat(model)
    optimizer = DAL(model.parameters(), curvature="finite_difference")

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
@pytest.mark.parametrize("options", [dict(), dict(momentum=0.9), dict(per_parameter=True)], ids=str)
def test_dtypes_are_kept(dtype, options):
    x = torch.ones(3, dtype=dtype, requires_grad=True)
    optimizer = DAL([x], factor=0.5, **options)
    for _ in range(2):
        optimizer.step(lambda: (x**2).sum())
    assert x.dtype == dtype
    assert all(value.dtype == dtype for value in optimizer.state[x].values())
    assert torch.isfinite(x).all()


def test_the_learning_rate_is_in_the_group():
    optimizer, _ = train(Network(), 2)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(2 / optimizer.curvature, rel=1e-12)


@each_curvature
@pytest.mark.parametrize("per_parameter", [False, True])
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize(
    ("scale", "start"), [(1.0, 0.0), (0.0, 1.0), (1e30, 1.0), (1e30, 1e-30)], ids=["gradient", "flat", "huge", "steep"]
)
def test_no_extreme_gives_nan(curvature, per_parameter, power, scale, start):
    x = torch.full((3,), start, requires_grad=True)
    optimizer = DAL([x], power=power, per_parameter=per_parameter, curvature=curvature)
    with warnings.catch_warnings():
        # Not normalised, |Hg| leaves single precision where both are huge: a rate of zero, and said.
        warnings.simplefilter("ignore" if per_parameter else "error", NonFiniteWarning)
        optimizer.step(closure_of(optimizer, lambda: scale * (x @ x) / 2 + (0 if scale else x[0]), curvature))
    assert torch.isfinite(x).all()


def test_a_gradient_that_is_not_finite_is_passed_on_and_said():
    x = torch.ones(2, requires_grad=True)
    optimizer = DAL([x])
    with pytest.warns(NonFiniteWarning, match="skip_nonfinite=True"):
        optimizer.step(lambda: (x * torch.tensor([1.0, torch.nan])).sum())
    assert torch.isnan(x).any()
    assert optimizer.nonfinite == 1


def test_after_a_rate_that_is_not_finite_steps_go_on_as_they_can():
    x = torch.ones(2, requires_grad=True)
    optimizer = DAL([x])
    for _ in range(2):
        with pytest.warns(NonFiniteWarning):
            optimizer.step(lambda: (x * torch.nan).square().sum())
    assert optimizer.nonfinite == 2


@pytest.mark.parametrize("options", [dict(), dict(momentum=0.9, average=0.5), dict(per_parameter=True)], ids=str)
def test_a_gradient_that_is_not_finite_is_skipped_if_asked_for(options):
    model = Network()
    optimizer, _ = train(model, 2, skip_nonfinite=True, **options)
    before, count = flat(model), optimizer.count
    optimizer.step(lambda: square_loss(model) * torch.nan)
    assert torch.equal(flat(model), before)
    assert (optimizer.nonfinite, optimizer.count) == (1, count)
    _, path = train(model, 2, optimizer=optimizer)
    _, without = train(Network(), 4, **options)
    assert torch.equal(path[-1], without[-1])


# Refusals, each with its remedy.


def refused(message, closure=None, curvature="hvp", params=None):
    model = Network()
    optimizer = DAL(params or model.parameters(), curvature=curvature)
    with pytest.raises(RuntimeError, match=message):
        optimizer.step(closure(optimizer, model) if closure else None)


def test_no_closure_is_refused():
    refused("step needs a closure")


def test_a_closure_that_calls_backward_is_refused_where_products_are_exact():
    refused(
        r"called backward\(\).*curvature='finite_difference'",
        lambda optimizer, model: closure_of(optimizer, lambda: square_loss(model), "finite_difference"),
    )


def test_a_closure_that_calls_backward_is_refused_where_the_gradient_is_zero():
    x = torch.zeros(2, requires_grad=True)
    refused(
        r"called backward\(\)",
        lambda optimizer, _: closure_of(optimizer, lambda: x @ x, "finite_difference"),
        params=[x],
    )


@pytest.mark.parametrize("closure", [[], torch.ones(()), [torch.ones(())]])
def test_what_is_no_closure_is_refused(closure):
    refused("step needs a closure", lambda *_: closure)


def test_another_models_loss_is_refused():
    other = Network(seed=1)
    refused("no gradient by any parameter", lambda *_: lambda: square_loss(other))


def test_a_closure_without_a_loss_is_refused():
    refused(
        "must return the loss, got None", lambda _, model: lambda: square_loss(model).backward(), "finite_difference"
    )


def test_a_closure_that_does_not_call_backward_is_refused_with_finite_differences():
    refused("must call backward", lambda _, model: lambda: square_loss(model), "finite_difference")


@pytest.mark.parametrize(
    "bad",
    [lambda loss: loss.item(), lambda loss: loss.detach(), lambda loss: loss * torch.ones(2), lambda loss: 1j * loss],
)
def test_a_loss_that_is_no_real_number_with_a_graph_is_refused(bad):
    refused("must return the loss, one real number with its graph", lambda _, model: lambda: bad(square_loss(model)))


@each_curvature
def test_sparse_gradients_are_refused(curvature):
    table = nn.Embedding(5, 2, sparse=True)

    def loss():
        return table(torch.tensor([1, 2])).square().sum()

    refused(
        "sparse=False", lambda optimizer, _: closure_of(optimizer, loss, curvature), curvature, list(table.parameters())
    )


def test_a_model_without_second_derivatives_is_refused_where_products_are_exact():
    x = torch.randn(1, 2, 8, 16, requires_grad=True)
    refused("use curvature='finite_difference'", lambda *_: lambda: attention(x), params=[x])


def test_a_compiled_model_is_refused_where_products_are_exact():
    compiled = torch.compile(Network(), backend="aot_eager")
    refused(
        "use curvature='finite_difference'",
        lambda *_: lambda: square_loss(compiled),
        params=list(compiled.parameters()),
    )


def test_a_scheduler_is_refused():
    model = Network()
    optimizer, _ = train(model, 1)
    torch.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5)
    with pytest.raises(RuntimeError, match="schedule the group's 'factor'"):
        train(model, 1, optimizer=optimizer)


def test_exact_products_on_several_processes_are_refused(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    refused("several processes", lambda _, model: lambda: square_loss(model))


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


def test_an_option_that_is_set_out_of_its_range_is_refused():
    model = Network()
    optimizer = DAL(model.parameters())
    optimizer.param_groups[0]["factor"] = -1.0
    with pytest.raises(ValueError, match="factor must be"):
        train(model, 1, optimizer=optimizer)


def test_a_warm_up_may_begin_at_zero():
    model = Network()
    optimizer, before = DAL(model.parameters()), flat(model)
    optimizer.param_groups[0]["factor"] = 0.0
    train(model, 1, optimizer=optimizer)
    assert torch.equal(flat(model), before)


def test_another_optimisers_state_is_refused():
    state = torch.optim.SGD(Network().parameters(), 0.1).state_dict()
    with pytest.raises(ValueError, match="must be one of DAL's"):
        DAL(Network().parameters()).load_state_dict(state)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64])
def test_parameters_that_are_not_real_are_refused(dtype):
    with pytest.raises(ValueError, match="params must be real"):
        DAL([nn.Parameter(torch.ones(2, dtype=dtype), requires_grad=False)])


def test_a_weight_decay_beyond_the_parameters_numbers_is_refused():
    with pytest.raises(ValueError, match=r"^weight_decay must be at most 3.4e\+38, the largest number of the params"):
        DAL([nn.Parameter(torch.ones(2))], weight_decay=1e39)


def test_sharded_parameters_are_refused():
    p = torch.ones(2, requires_grad=True)
    p.device_mesh = "a mesh, as a DTensor has"
    with pytest.raises(ValueError, match="must not be sharded"):
        DAL([p])


def test_rates_per_parameter_in_float16_are_refused():
    with pytest.raises(ValueError, match="use bfloat16 or float32"):
        DAL([torch.ones(2, dtype=torch.float16, requires_grad=True)], per_parameter=True)


def test_a_finite_difference_in_half_precision_is_refused():
    with pytest.raises(ValueError, match="lost in rounding"):
        DAL([torch.ones(2, dtype=torch.bfloat16, requires_grad=True)], curvature="finite_difference")


def test_every_may_be_a_small_whole_number_of_numpy():
    x = torch.ones(1, requires_grad=True)
    optimizer = DAL([x], every=np.uint8(2))
    optimizer.param_groups[0]["count"] = 300  # beyond the largest uint8
    optimizer.step(lambda: x @ x)
    assert optimizer.count == 301
