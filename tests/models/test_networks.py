"""The networks: shapes, sizes, starting values, and what complex parameters need."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import principalflow as pf
from principalflow._holomorphic import require_holomorphic
from principalflow.models._layers import pool
from principalflow.models._resnet import _Block

KEY = jax.random.key(0)
CONVOLUTIONAL = ("vgg11", "vgg16", "resnet18", "resnet50")


def count(model):
    return sum(leaf.size for leaf in jax.tree.leaves(model) if hasattr(leaf, "size"))


def small(name, **options):
    width = {} if name == "mlp" else {"width": 1 / 32}
    return pf.models.build(name, (8, 8, 1), 3, KEY, hidden=(5, 4), **width, **options)


def shapes(name, **options):
    return jax.eval_shape(lambda: pf.models.build(name, (32, 32, 3), 10, KEY, **options))


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        # Weights, biases and the linear layer of 512 x 10 + 10, by hand from the tables of the papers.
        ("vgg11", 9_217_728 + 2_752 + 5_130),
        ("vgg16", 14_710_464 + 4_224 + 5_130),
    ],
)
def test_vggs_have_the_published_number_of_parameters(model, parameters):
    assert count(shapes(model)) == parameters


@pytest.mark.parametrize(("model", "parameters"), [("resnet18", 11_689_512), ("resnet50", 25_557_032)])
def test_resnets_have_the_published_number_of_parameters(model, parameters):
    """Those of the common implementations for ImageNet, whose layout is the same."""
    network = jax.eval_shape(lambda: pf.models.build(model, (224, 224, 3), 1000, KEY))
    assert count(network) == parameters


@pytest.mark.parametrize("name", CONVOLUTIONAL)
@pytest.mark.parametrize("shape", [(32, 32, 3), (28, 28, 1), (8, 8, 1), (97, 65, 3), (1, 1, 2)])
def test_any_input_size_works(name, shape):
    outputs = jax.eval_shape(
        lambda: pf.models.build(name, shape, 10, KEY, width=1 / 16)(jnp.zeros((2, *shape)))  # pyright: ignore
    )
    assert outputs.shape == (2, 10)


def test_the_stem_for_imagenet_shrinks_images_by_four():
    model = pf.models.ResNet((64, 64, 3), 10, KEY, width=1 / 16)
    stem = jax.eval_shape(lambda x: model.stem(x), jnp.zeros((1, 64, 64, 3)))
    assert stem.shape[1] == 32
    assert model.stem_pooling == "average"
    assert pf.models.ResNet((64, 64, 3), 10, KEY, width=1 / 16, stem="small").stem_pooling is None


@pytest.mark.parametrize("name", CONVOLUTIONAL)
def test_the_width_multiplies_channels(name):
    assert count(shapes(name, width=0.5)) / count(shapes(name)) == pytest.approx(0.25, rel=0.02)


class Small(eqx.Module):
    """One of each layer: a residual block with a stride and a shortcut, normalised; pooling; and a linear layer."""

    block: _Block
    head: pf.models.Linear

    def __init__(self, activation, normalization):
        self.block = _Block((1, 4, 4), KEY, 2, activation, 1, normalization, 1.0, float)
        self.head = pf.models.Linear(4, 3, KEY)

    def __call__(self, x):
        return self.head(pool(self.block(x), "average").mean((1, 2)))


def objective_of(model):
    data = (np.random.default_rng(0).standard_normal((3, 8, 8, 1)), np.array([0, 2, 1]))
    return pf.Objective(pf.models.loss(), model, data)


@pytest.mark.parametrize("activation", ["tanh", "softplus", "gelu"])
@pytest.mark.parametrize("normalization", ["none", "batch", "group"])
def test_layers_with_smooth_activations_are_holomorphic(activation, normalization):
    """At complex parameters the derivative along i is i times that along 1, for network and loss together."""
    objective, random = objective_of(Small(activation, normalization)), np.random.default_rng(0)
    theta = objective.theta + 0.05j * random.standard_normal(objective.theta.size)
    along = jax.jit(lambda direction: jax.jvp(objective.value, (theta,), (direction,))[1])
    direction = jnp.asarray(random.standard_normal(theta.size), complex)
    np.testing.assert_allclose(along(1j * direction), 1j * along(direction), rtol=1e-10)


def test_complex_flows_accept_layers_with_smooth_activations():
    """Their check refuses what is not holomorphic, whatever JAX's derivatives say of it."""
    objective = objective_of(Small("tanh", "group"))
    require_holomorphic(objective, objective.theta)


def test_the_principal_flow_takes_a_network():
    random = np.random.default_rng(0)
    data = (random.standard_normal((4, 8, 8, 1)), np.array([0, 2, 1, 0]))
    objective = pf.Objective(pf.models.loss(), small("mlp", activation="tanh"), data)
    velocity = pf.flows.Principal(1e-6).field(objective, objective.theta)
    # Far below the edge the principal flow is the gradient flow, up to h lambda.
    gradient = objective.gradient(objective.theta)
    assert float(jnp.linalg.norm(velocity.real + gradient) / jnp.linalg.norm(gradient)) < 0.01


@pytest.mark.parametrize("name", ["vgg11", "resnet18"])
def test_batch_normalisation_is_refused_with_chunks(name):
    data = (np.zeros((4, 8, 8, 1)), np.zeros(4, int))
    model = small(name, normalization="batch")
    with pytest.raises(ValueError, match="whole batch"):
        pf.Objective(pf.models.loss(), model, data, chunk=2)
    pf.Objective(pf.models.loss(), model, data, chunk=4)


@pytest.mark.parametrize("normalization", ["none", "batch", "group"])
def test_resnets_start_with_outputs_of_order_one(normalization):
    model = pf.models.ResNet((16, 16, 3), 10, KEY, width=0.25, normalization=normalization)
    outputs = eqx.filter_jit(lambda m, x: m(x))(
        model, jnp.asarray(np.random.default_rng(0).standard_normal((8, 16, 16, 3)))
    )
    assert 0.1 < float(jnp.std(outputs)) < 3


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("vgg", {}, "Did you mean 'vgg"),
        ("mlp", {"activation": "thanh"}, "Did you mean 'tanh'"),
        ("mlp", {"normalization": "batch"}, "no option 'normalization'"),
        ("vgg11", {"stem": "small"}, "no option 'stem'"),
        ("vgg11", {"normalization": "layer"}, "normalization must be one of"),
        ("resnet18", {"width": 0}, "width must be a finite number above 0"),
        ("resnet18", {"pooling": "min"}, "pooling must be one of"),
    ],
)
def test_bad_options_are_named(name, options, message):
    with pytest.raises(ValueError, match=message):
        pf.models.build(name, (8, 8, 1), 3, KEY, **options)


def test_tables_are_refused_by_convolutions():
    with pytest.raises(ValueError, match=r"\(height, width, channels\).*MLP"):
        pf.models.build("vgg11", (4,), 3, KEY)
