import jax
import numpy as np
import pytest

from principalflow.reproduce import iris_edge
from principalflow.reproduce.iris_edge import Config

pytestmark = pytest.mark.slow  # runs experiments in the quick profile

# Few units and a few starts: what is stated here needs no more.
CONFIG = Config(units=3, layers=3, training_steps=200, every=100, first_steps=10, window=2, euler_steps=10)


@pytest.fixture(scope="module")
def tables():
    with jax.enable_x64(True):
        return iris_edge.run(CONFIG)


def test_descents_loss_after_a_step_is_that_of_training(tables):
    training = tables["training"].set_index("training_step")["loss"]
    errors = tables["errors"]
    np.testing.assert_allclose(errors["descent_loss"], training[errors["training_step"] + 1], rtol=1e-12)


def test_the_negative_gradient_flow_always_predicts_a_decrease(tables):
    flow = tables["errors"].query("flow == 'NGF'")
    assert (flow["loss"] < flow["start_loss"]).all()


def test_the_spectrum_is_whole_and_begins_with_the_sharpness(tables):
    spectrum = tables["spectrum"].pivot(index="training_step", columns="index", values="eigenvalue")
    sharpness = tables["errors"].groupby("training_step")["sharpness"].first()
    assert spectrum.shape[1] == (4 + 1) * 3 + (3 + 1) * 3 + (3 + 1) * 3
    np.testing.assert_array_equal(spectrum[0], sharpness)
    assert (np.diff(spectrum, axis=1) <= 0).all()


def test_the_flows_are_in_the_order_of_their_order_in_stable_training(tables):
    errors = tables["errors"]
    stable = errors[errors["sharpness"] * CONFIG.h < 0.5].pivot(index="training_step", columns="flow", values="error")
    assert len(stable)
    assert (stable["PF"] < stable["NGF"]).all()


def test_the_figure_has_training_errors_losses_and_three_spectra(tables):
    assert len(iris_edge.draw(CONFIG, tables).axes) == 7  # with the axis of the eigenvalue


def test_the_spectrum_can_be_explored(tables):
    (figure,) = iris_edge.explore(CONFIG, tables).values()
    assert len(figure.data) > 1
