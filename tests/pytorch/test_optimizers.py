"""The edges of PyTorch's optimisers: by runs just below and above them, and beside their twins in optax."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optimizers.quadratics import (
    CURVATURE,
    LONG_AGO,
    SIZES,
    SLOW,
    SQUARES,
    STEPS,
    decays_below_and_grows_above,
    sharpness,
)

import principalflow as pf

pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch==2.13.0 runs these tests")

import torch
from torch import optim

from principalflow.torch import CDAT, DAL, edge


def parameters(dtype=torch.float64):
    return [torch.ones(shape, dtype=dtype, requires_grad=True) for shape in SIZES.values()]


def split(flat, params):
    pieces = torch.as_tensor(np.asarray(flat)).split([p.numel() for p in params])
    return [piece.reshape(p.shape).to(p.dtype) for piece, p in zip(pieces, params, strict=True)]


def stepped(optimizer, params, gradients):
    for gradient in gradients:
        for p, g in zip(params, split(gradient, params), strict=True):
            p.grad = g
        optimizer.step()


def one(kind, **options):
    return lambda params: kind(params, **options)


def two(kind, first, second, **options):
    return lambda params: kind([dict(params=params[:1], **first), dict(params=params[1:], **second)], **options)


OPTIMIZERS = {
    "sgd": one(optim.SGD, lr=0.1),
    "sgd, L2": one(optim.SGD, lr=torch.tensor(0.1), weight_decay=2.0),
    "momentum": one(optim.SGD, lr=0.1, momentum=0.9, weight_decay=2.0),
    "momentum, dampened": one(optim.SGD, lr=0.1, momentum=0.9, dampening=0.6),
    "nesterov": one(optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=2.0),
    "rmsprop": one(optim.RMSprop, lr=0.1, alpha=SLOW, weight_decay=2.0),
    "rmsprop, eps": one(optim.RMSprop, lr=0.1, alpha=SLOW, eps=0.3),
    "rmsprop, centred": one(optim.RMSprop, lr=0.1, alpha=SLOW, centered=True),
    "rmsprop, momentum": one(optim.RMSprop, lr=0.1, alpha=SLOW, momentum=0.9, weight_decay=2.0),
    "adam": one(optim.Adam, lr=0.1, betas=(0.9, SLOW)),
    "adam, L2": one(optim.Adam, lr=0.1, betas=(0.8, SLOW), weight_decay=2.0, eps=0.3),
    "adam, decoupled": one(optim.Adam, lr=0.1, betas=(0.9, SLOW), weight_decay=2.0, decoupled_weight_decay=True),
    "adam, amsgrad": one(optim.Adam, lr=0.1, betas=(0.9, SLOW), amsgrad=True),
    "adamw": one(optim.AdamW, lr=torch.tensor(0.1), betas=(0.9, SLOW), weight_decay=2.0),
    "nadam": one(optim.NAdam, lr=0.1, betas=(0.9, SLOW)),
    "nadam, its first steps": one(optim.NAdam, lr=0.1, betas=(0.9, SLOW), momentum_decay=0.0, weight_decay=2.0),
    "nadam, decoupled": one(
        optim.NAdam, lr=0.1, betas=(0.9, SLOW), weight_decay=2.0, decoupled_weight_decay=True, momentum_decay=0.0
    ),
    "two rates": two(optim.SGD, dict(lr=0.1), dict(lr=0.7, momentum=0.9, weight_decay=1.0)),
    "two decays": two(optim.AdamW, dict(weight_decay=0.0), dict(weight_decay=3.0, lr=0.3), lr=0.1, betas=(0.9, SLOW)),
    "two averages": two(optim.Adam, dict(betas=(0.9, SLOW)), dict(betas=(0.5, SLOW)), lr=0.1),
    "one part at rate 0": two(optim.Adam, dict(lr=0.0), dict(lr=0.1), betas=(0.9, SLOW)),
}


def long_trained(make):
    """An optimiser whose averages are where they stay, and its parameters."""
    params = parameters()
    optimizer = make(params)
    stepped(optimizer, params, [np.zeros(7)])
    for p, squares in zip(params, split(SQUARES, params), strict=True):
        state = optimizer.state[p]
        for name in state:
            if name == "step":
                state[name] = torch.tensor(float(LONG_AGO))
            elif name in ("exp_avg_sq", "max_exp_avg_sq", "square_avg"):
                state[name] = squares.clone()
            elif name == "mu_product":
                state[name] = torch.tensor(0.0)
    return optimizer, params


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_decay_below_the_threshold_and_grow_above_it(name):
    def run(scale, theta):
        optimizer, params = long_trained(OPTIMIZERS[name])
        curvature, path = torch.as_tensor(scale * CURVATURE), []
        with torch.no_grad():
            for p, start in zip(params, split(theta, params), strict=True):
                p.copy_(start)
        for _ in range(STEPS):
            path.append(torch.cat([p.detach().reshape(-1) for p in params]).clone())
            stepped(optimizer, params, [curvature @ path[-1]])
        return torch.stack(path).numpy()

    found = edge(long_trained(OPTIMIZERS[name])[0])
    assert not found.unknown
    assert decays_below_and_grows_above(found, run)


PARAMS = {name: jnp.ones(shape) for name, shape in SIZES.items()}
TWINS = {
    "sgd": (one(optim.SGD, lr=0.1), optax.sgd(0.1)),
    "momentum": (one(optim.SGD, lr=0.1, momentum=0.9), optax.sgd(0.1, 0.9)),
    "nesterov": (one(optim.SGD, lr=0.1, momentum=0.9, nesterov=True), optax.sgd(0.1, 0.9, nesterov=True)),
    "L2": (
        one(optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.3),
        optax.chain(optax.add_decayed_weights(0.3), optax.sgd(0.1, 0.9)),
    ),
    "rmsprop": (
        one(optim.RMSprop, lr=0.1, alpha=0.9, momentum=0.9, eps=1e-3),
        optax.rmsprop(0.1, decay=0.9, momentum=0.9, eps=1e-3, eps_in_sqrt=False),
    ),
    "rmsprop, centred": (
        one(optim.RMSprop, lr=0.1, alpha=0.9, centered=True),
        optax.rmsprop(0.1, decay=0.9, centered=True, eps_in_sqrt=False),
    ),
    "adam": (one(optim.Adam, lr=0.1), optax.adam(0.1)),
    "adam, L2": (
        one(optim.Adam, lr=0.1, weight_decay=0.3),
        optax.chain(optax.add_decayed_weights(0.3), optax.adam(0.1)),
    ),
    "adamw": (one(optim.AdamW, lr=0.1, weight_decay=0.3), optax.adamw(0.1, weight_decay=0.3)),
    "groups": (
        two(optim.AdamW, dict(lr=0.1, weight_decay=0.3), dict(lr=0.4, weight_decay=0.0, betas=(0.5, 0.9))),
        optax.partition(
            {"a": optax.adamw(0.1, weight_decay=0.3), "b": optax.adam(0.4, b1=0.5, b2=0.9)}, {"a": "a", "b": "b"}
        ),
    ),
}


@pytest.mark.parametrize("name", TWINS)
def test_both_frameworks_agree(name):
    make, tx = TWINS[name]
    gradients = np.random.default_rng(0).standard_normal((5, 7))
    params = parameters()
    optimizer = make(params)
    tree, unravel = PARAMS, jax.flatten_util.ravel_pytree(PARAMS)[1]
    state = tx.init(tree)
    for gradient in gradients:
        stepped(optimizer, params, [gradient])
        updates, state = tx.update(unravel(jnp.asarray(gradient)), state, tree)
        tree = optax.apply_updates(tree, updates)
    ours, other = edge(optimizer), pf.optimizers.edge(tx, state, tree)
    np.testing.assert_allclose(torch.cat([p.detach().reshape(-1) for p in params]), [*tree["a"], *tree["b"].ravel()])
    np.testing.assert_allclose([ours.threshold, sharpness(ours)], [other.threshold, sharpness(other)], rtol=1e-6)
    assert (ours.optimizer, ours.formula, ours.why) == (other.optimizer, other.formula, other.why)
    if other.second_moment is not None:
        np.testing.assert_allclose(ours.second_moment, other.second_moment, rtol=1e-6)


def test_parameters_that_the_optimiser_does_not_hold_rest():
    params = parameters()
    found = edge(optim.SGD(params[1:], lr=0.1), params)
    np.testing.assert_array_equal(found.preconditioner, [np.inf] * 3 + [1.0] * 4)
    assert found.threshold == pytest.approx(20)


def test_the_order_is_that_of_the_parameters_given():
    params = parameters()
    optimizer = optim.SGD([dict(params=params[:1], lr=0.1), dict(params=params[1:], lr=0.2)], lr=1.0)
    found = edge(optimizer, params[::-1])
    assert found.learning_rate == 0.2
    np.testing.assert_allclose(found.preconditioner, [1.0] * 4 + [2.0] * 3)
    assert found.why == ", the threshold of the first group, in a metric common to all groups,"


def test_frozen_parameters_and_those_without_a_gradient_rest():
    params = [*parameters(), torch.ones(2, dtype=torch.float64, requires_grad=True)]
    params[0].requires_grad_(False)
    optimizer = optim.Adam(params, lr=0.1)
    params[1].grad = torch.ones_like(params[1])
    optimizer.step()
    np.testing.assert_array_equal(edge(optimizer).preconditioner.isinf(), [True] * 3 + [False] * 4 + [True] * 2)


@pytest.mark.parametrize("kind", [optim.RMSprop, optim.Adam, optim.AdamW, optim.NAdam])
def test_before_the_first_step_there_is_no_threshold_yet(kind):
    found = edge(kind(parameters(), lr=0.1))
    assert found.starting
    assert found.unknown == f"{kind.__name__.lower()} has taken no step yet, so it is not known how long its steps are"
    assert np.isnan(found.threshold)
    assert found.learning_rate == pytest.approx(0.1)


def test_nadams_filter_is_that_of_its_step():
    params = parameters()
    optimizer = optim.NAdam(params, lr=0.1)
    stepped(optimizer, params, np.random.default_rng(0).standard_normal((3, 7)))
    before = [p.detach().clone() for p in params]
    average = [optimizer.state[p]["exp_avg"].clone() for p in params]
    gradient = np.random.default_rng(1).standard_normal(7)
    stepped(optimizer, params, [gradient])
    found = edge(optimizer)
    now, later = found.part.filter.numerator
    kept = (later + 0.9 * now) / 0.1  # of the average before the step, as the filter has it
    g, v = torch.as_tensor(gradient), torch.cat([a.reshape(-1) for a in average])
    step = torch.cat([(p.detach() - b).reshape(-1) for p, b in zip(params, before, strict=True)])
    np.testing.assert_allclose(step, -0.1 * (now * g + kept * v) / found.preconditioner, rtol=1e-10)


def test_dal_is_descent_at_the_rate_of_its_last_step():
    x = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
    optimizer = DAL([x], factor=1.0, momentum=0.5)
    assert edge(optimizer).starting
    optimizer.step(lambda: 2 * x @ x)
    assert edge(optimizer).threshold == pytest.approx(2 * 1.5 / 0.25)
    assert edge(DAL([x], per_parameter=True)).unknown.endswith("DAL with a rate for each parameter can't be read")


@pytest.mark.parametrize(
    ("base", "gain"),
    [
        (lambda x: optim.SGD(x, lr=1.0), 1),
        (lambda x: optim.SGD(x, lr=0.5, momentum=0.9), 1.9 / 0.5),
        (lambda x: optim.Adam(x, lr=1.0), 19),
    ],
)
def test_cdat_is_its_base_at_the_rate_of_its_last_step(base, gain):
    x = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
    optimizer = CDAT(base([x]), scale=1.0)
    assert edge(optimizer).starting
    optimizer.step(lambda: 2 * x @ x)
    assert edge(optimizer).threshold == pytest.approx(2 * gain / optimizer.param_groups[0]["lr"])


class Other(optim.SGD):
    """Derived from a known one, and free to take other steps."""


@pytest.mark.parametrize(
    "kind", [optim.LBFGS, optim.Adagrad, optim.Adadelta, optim.Adamax, optim.RAdam, optim.ASGD, optim.Rprop, Other]
)
def test_others_are_unknown_by_name(kind):
    found = edge(kind(parameters(), lr=0.1))
    assert found.unknown == f"no threshold is known for this optimizer: {kind.__name__} can't be read"
    assert not found.starting
    assert np.isnan(found.threshold)
    assert found.regime(1.0) == "unknown"


@pytest.mark.parametrize("kind", [optim.SGD, optim.Adam, optim.RMSprop])
def test_maximising_has_no_threshold(kind):
    params = parameters()
    optimizer = kind(params, lr=0.1, maximize=True)
    stepped(optimizer, params, [np.ones(7)])
    assert "maximises" in edge(optimizer).unknown


def test_weight_decay_that_is_unstable_by_itself_is_said_so():
    params = parameters()
    optimizer = optim.AdamW(params, lr=1.0, weight_decay=2.0)
    stepped(optimizer, params, [np.ones(7)])
    assert "the weight decay is unstable by itself" in edge(optimizer).unknown


def test_a_state_that_is_not_finite_has_no_threshold():
    params = parameters()
    optimizer = optim.Adam(params, lr=0.1)
    stepped(optimizer, params, [np.full(7, np.nan)])
    assert edge(optimizer).unknown.endswith("some entries of adam's metric aren't above 0")


@pytest.mark.parametrize(
    ("dtype", "given"),
    [(torch.float32, torch.float32), (torch.float64, torch.float64), (torch.bfloat16, torch.float32)],
)
def test_the_metric_is_in_single_or_double_precision(dtype, given):
    params = parameters(dtype)
    optimizer = optim.Adam(params, lr=0.1)
    stepped(optimizer, params, [np.ones(7)])
    assert edge(optimizer).preconditioner.dtype == edge(optimizer).second_moment.dtype == given


def test_a_wrapper_that_passes_steps_on_is_seen_through():
    class AcceleratedOptimizer(optim.Optimizer):
        def __init__(self, optimizer):
            self.optimizer = optimizer

    assert edge(AcceleratedOptimizer(optim.SGD(parameters(), lr=0.1))).threshold == pytest.approx(20)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("adam",), "optimizer must be a torch.optim.Optimizer, got 'adam'"),
        ((optim.SGD(parameters(), lr=0.1), [1.0]), "params must be a list of tensors"),
        ((optim.SGD(parameters(), lr=0.1), []), "params must be a list of tensors, at least one"),
        ((optim.SGD(parameters(), lr=0.1), torch.ones(3)), "params must be a list of tensors"),
    ],
)
def test_bad_input_is_refused(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        edge(*arguments)


def test_an_optimiser_of_other_parameters_is_unknown():
    assert edge(optim.SGD(parameters(), lr=0.1), parameters()).unknown.endswith("SGD holds none of these parameters")


@pytest.mark.slow
def test_importing_it_loads_no_solver_of_differential_equations():
    code = "import sys, principalflow.torch; sys.exit('diffrax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
