"""Networks, layers and losses given what can't work: each is refused by name before anything is allocated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import principalflow as pf
from principalflow import _checks, models

KEY = jax.random.key(0)
NO_SIZES = [-1, 0, True, 1.5, float("nan"), "3", None, 2**31, 2**63, 10**30, 10**5000]
NO_NUMBERS = [-1.0, 0, True, float("nan"), float("inf"), "1", None, 10**400, 1e300]
MAKE = {
    "MLP": (models.MLP, dict(inputs=4, hidden=(3,), outputs=2, key=KEY)),
    "VGG": (models.VGG, dict(input_shape=(4, 4, 1), outputs=2, key=KEY, width=0.02)),
    "ResNet": (models.ResNet, dict(input_shape=(4, 4, 1), outputs=2, key=KEY, width=0.02)),
    "Conv": (models.Conv, dict(inputs=2, outputs=2, size=3, key=KEY)),
    "Linear": (models.Linear, dict(inputs=2, outputs=2, key=KEY)),
    "BatchNorm": (models.BatchNorm, dict(channels=3)),
    "GroupNorm": (models.GroupNorm, dict(channels=3)),
    "mlp": (models.build, dict(name="mlp", input_shape=(4,), outputs=2)),
    "vgg11": (models.build, dict(name="vgg11", input_shape=(4, 4, 1), outputs=2)),
}


def of(*names, **values):
    """The kinds, each with the argument that is hostile and the values that it is given."""
    return [(kind, name, value) for kind in names for name, given in values.items() for value in given]


def label(value):
    return _checks.shown(value)[:30]


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        *of("Linear", "Conv", inputs=NO_SIZES, outputs=NO_SIZES, gain=NO_NUMBERS),
        *of("Conv", size=[*NO_SIZES, 2], stride=NO_SIZES, bias=["no", None, 1]),
        *of("BatchNorm", "GroupNorm", channels=NO_SIZES),
        *of("MLP", inputs=NO_SIZES, outputs=NO_SIZES, gain=NO_NUMBERS),
        *of("MLP", "mlp", hidden=[5, "55", None, [3, [4]], [0], [2**31], [10**30], np.array(3), jnp.array(3)]),
        *of("VGG", "ResNet", outputs=NO_SIZES, gain=NO_NUMBERS, depth=[19, "11", None, 11.0, [11]]),
        *of("VGG", "ResNet", "mlp", "vgg11", width=[*NO_NUMBERS, 2**63]),
        *of("VGG", "ResNet", "vgg11", input_shape=[(4,), 4, None, (4, 4, 0), (4, 4, 10**30), (4, 4, 1.0), ((4, 4), 1)]),
        *of("ResNet", "mlp", input_shape=[np.array(4), jnp.array(4)]),
        *of("MLP", "VGG", "ResNet", "Conv", "Linear", key=[0, "key", jnp.ones(2), jax.random.split(KEY)]),
        *of("MLP", "VGG", "Conv", "BatchNorm", dtype=["float99", int, 5, jnp.ones(2), "9" * 5000]),
        *of("MLP", "VGG", "ResNet", activation=["sigmoid", None, 5, ["elu"], jnp.ones(2)]),
        *of("mlp", name=["lstm", None, 5, ["mlp"]]),
    ],
    ids=label,
)
def test_an_argument_that_cannot_work_is_named(kind, name, value):
    make, arguments = MAKE[kind]
    with pytest.raises(ValueError, match=rf"^{name}\b"):
        make(**{**arguments, name: value})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: models.MLP(4, (2**31 - 1,) * 3, 2, KEY), r"hidden=\(2147483647, .* asks for a network of 9,223,372,0"),
        (lambda: models.build("mlp", (4,), 2, hidden=(10**6,), width=2000), r"hidden=\(2000000000,\).* parameters"),
        (lambda: models.VGG((4, 4, 1), 2, KEY, width=10**6), r"width=1000000, .* asks for a network of 9,2"),
        (lambda: models.ResNet((4, 4, 1), 2, KEY, width=10**6), r"width=1000000, .* parameters or more"),
        (lambda: models.ResNet((4, 4, 2**31 - 1), 2, KEY), r"input_shape=\(4, 4, 2147483647\)"),
        (lambda: models.VGG((4, 4, 1), 2**31 - 1, KEY), "outputs=2147483647"),
        (
            lambda: models.Linear(2**31 - 1, 2**31 - 1, KEY),
            "inputs=2147483647, outputs=2147483647 asks for a network of",
        ),
        (lambda: models.Conv(1, 1, 2**31 - 1, KEY), "size=2147483647, .* parameters or more"),
    ],
)
def test_a_network_beyond_memory_is_refused_by_its_parameters(make, message, monkeypatch):
    monkeypatch.setattr(_checks, "_available_memory", lambda: 2**34)
    with pytest.raises(ValueError, match=message + r".* GiB of memory where 16 GiB are available"):
        make()


def test_the_memory_that_counts_is_that_of_the_dtype(monkeypatch):
    side = 1000
    monkeypatch.setattr(_checks, "_available_memory", lambda: 4 * side**2)
    monkeypatch.setattr(_checks, "_SMALL_ALLOCATION", 0)
    models.Linear(side, side, KEY, dtype=jnp.float32)
    with pytest.raises(ValueError, match="a network of 1,000,000 parameters"):
        models.Linear(side, side, KEY, dtype=jnp.float64)


@pytest.mark.parametrize("kind", ["MLP", "VGG", "ResNet"])
def test_a_network_asks_for_its_memory_once(kind, monkeypatch):
    asked = []
    monkeypatch.setattr(_checks, "fits", lambda name, size, what: asked.append(size))
    make, arguments = MAKE[kind]
    parameters = sum(leaf.nbytes for leaf in jax.tree.leaves(make(**arguments)))
    assert len(asked) == 1
    assert asked[0] <= parameters


@pytest.mark.parametrize("x", [1.0, jnp.array(1.0)])
def test_a_number_is_no_batch_of_a_network_of_one_input(x):
    with pytest.raises(ValueError, match=r"^x must be a batch of samples of 1 numbers each, got shape \(\)"):
        models.MLP(1, (2,), 1, KEY)(x)


@pytest.mark.parametrize("x", [None, "images", np.ones(3), np.ones((2, 5)), np.ones((0, 4)), [[10**30] * 4], object()])
@pytest.mark.parametrize("kind", ["MLP", "VGG", "ResNet", "Conv", "BatchNorm", "GroupNorm"])
def test_a_batch_that_does_not_fit_is_named(kind, x):
    make, arguments = MAKE[kind]
    with pytest.raises(ValueError, match=r"^x must"):
        make(**arguments)(x)


@pytest.mark.parametrize("x", [None, "rows", 1.0, np.ones((2, 5)), jnp.ones((2, 2), jnp.float8_e4m3fn)])
def test_rows_that_do_not_fit_a_linear_layer_are_named(x):
    with pytest.raises(ValueError, match=r"^x must"):
        models.Linear(2, 2, KEY)(x)


@pytest.mark.parametrize(("function", "name"), [(models.cross_entropy, "logits"), (models.mean_square, "outputs")])
@pytest.mark.parametrize("value", [None, "x", 1.0, [1.0, 2.0], np.ones((0, 3)), [[10**30, 1]], np.ones((2, 3, 1))])
def test_outputs_that_are_no_rows_are_named(function, name, value):
    with pytest.raises(ValueError, match=f"^{name} must"):
        function(value, np.zeros(2, int))


@pytest.mark.parametrize(
    ("function", "name"),
    [(models.cross_entropy, "labels"), (models.mean_square, "targets"), (models.accuracy, "labels")],
)
@pytest.mark.parametrize("value", [None, "x", 1, [1], [0, 1, 2], np.ones((2, 4)), [[10**30] * 3] * 2])
def test_labels_that_do_not_fit_are_named(function, name, value):
    with pytest.raises(ValueError, match=f"^{name} must"):
        function(np.ones((2, 3)), value)


@pytest.mark.parametrize("name", ["hinge", None, 5, ["mean-square"], np.ones(2), "x" * 10**6])
def test_a_loss_that_there_is_not_is_named_in_short(name):
    with pytest.raises(ValueError, match=r"^name must be one of 'cross-entropy', 'mean-square', got") as caught:
        pf.models.loss(name)
    assert len(str(caught.value)) < 500
