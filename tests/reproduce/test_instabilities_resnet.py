import dataclasses

import jax
import pytest

from principalflow.reproduce import instabilities_resnet
from principalflow.reproduce._edge import RESNET

pytestmark = pytest.mark.slow  # runs experiments in the quick profile

SMALL = dict(samples=20, width=0.016, steps=12, precision="float64")
TRAINING = dataclasses.replace(RESNET["quick"][0], learning_rate=0.5, **SMALL)


@pytest.fixture(scope="module")
def tables():
    config = dataclasses.replace(instabilities_resnet.SETTINGS["quick"], networks=(TRAINING,), window=2, rises=2)
    with jax.enable_x64(True):
        return config, instabilities_resnet.run(config)


def test_flows_start_at_rises_of_the_loss(tables):
    _, found = tables
    steps = found["steps"].iloc[:-1]
    rises = steps[(steps["loss_change"] > 0) & (steps["h_lambda"] > 2)]["step"].head(2)
    assert len(rises)
    assert set(rises) <= set(found["changes"]["step"])


def test_claims_and_figure_can_be_made(tables):
    config, found = tables
    assert len(instabilities_resnet.claims(config, found)) == 5
    assert len(instabilities_resnet.draw(config, found).axes) == 3
