from dataclasses import replace

import jax
import pytest

from principalflow.reproduce import sharp_minima
from principalflow.reproduce.sharp_minima import HIGHER, LOWER


@pytest.fixture(scope="module")
def steps():
    config = sharp_minima.SETTINGS["quick"]
    network = replace(config.network, samples=50, width=0.02, steps=20)
    with jax.enable_x64(True):
        return sharp_minima.run(replace(config, network=network, steps=5))["steps"].set_index("part")


def test_the_rate_is_raised_to_the_curvature_that_was_asked_for(steps):
    first = steps.loc[HIGHER].iloc[0]
    assert first["h"] * first["sharpness"] == pytest.approx(2.2, rel=1e-2)


def test_both_rates_start_at_the_same_place(steps):
    lower, higher = (steps.loc[name].iloc[0] for name in (LOWER, HIGHER))
    assert lower["loss"] == higher["loss"]
    assert lower["moved"] == higher["moved"] == 0
