"""What the rows on DAL have in common."""

from dataclasses import replace

import numpy as np
import pandas
import pytest
from matplotlib.figure import Figure

from principalflow.reproduce import PROFILES, _dal
from principalflow.reproduce._dal import Config, both, colours, end_of_sweep, ratio
from principalflow.reproduce._sweeps import Sweep
from principalflow.training import Options

RATES = pandas.DataFrame({"rate": [0.1, 0.2, 0.4]})


@pytest.mark.parametrize(
    ("best", "words"),
    [
        (0, " It is the lowest rate of the sweep."),
        (1, ""),
        (2, " It is the highest rate of the sweep."),
    ],
)
def test_a_best_rate_at_an_end_of_the_sweep_is_told(best, words):
    assert end_of_sweep(RATES.iloc[best], RATES) == words


@pytest.mark.parametrize(("one", "other", "expected"), [(1.0, 2.0, 0.5), (0.0, 2.0, 0.0), (np.inf, 2.0, np.inf)])
def test_a_ratio_to_a_positive_number_is_told(one, other, expected):
    assert ratio(one, other) == expected


@pytest.mark.parametrize("one", [0.0, 1.0, np.inf])
@pytest.mark.parametrize("other", [0.0, np.inf, np.nan])
def test_a_ratio_to_nothing_or_to_what_diverged_says_nothing(one, other):
    assert np.isnan(ratio(one, other))


MLP = Options(data="mnist", samples=2000, width=0.5, steps=1000)
VGG = Options(data="cifar10", model="vgg11", width=0.0625, normalization="group", steps=50)


def stand_ins(*configs):
    words = dict.fromkeys(("id", "title", "figure", "paper_says", "paper_setting"), "made up")
    return _dal.experiment(*configs, **words, claims=lambda *_: [], draw=lambda *_: Figure()).stand_ins


def stand_in(*sweeps):
    return stand_ins(*[Config(sweeps)] * len(PROFILES))["cpu"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (MLP, "Here: an MLP of 3 x 50 units on 2,000 images of MNIST (full batch, 1,000 steps)."),
        (
            VGG,
            "Here: a VGG-11 of 1/16 of the channels with group normalisation on images of CIFAR-10 "
            "(full batch, 50 steps).",
        ),
        (
            Options(samples=128, model="resnet18", width=1.0, normalization="none", batch_size=64, steps=10),
            "Here: a ResNet-18 without normalisation on 128 digits of 8 x 8 pixels (batches of 64, 10 steps).",
        ),
    ],
    ids=["mlp", "vgg", "resnet"],
)
def test_stand_ins_name_network_data_batch_and_steps(options, words):
    assert stand_in(Sweep(options)) == words


def test_stand_ins_name_each_network_once_with_all_its_batches():
    words = stand_in(*both(MLP, replace(MLP, batch_size=64, steps=400), VGG))
    assert words.count("an MLP") == words.count("a VGG-11") == 1
    assert "(full batch, 1,000 steps; batches of 64, 400 steps); a VGG-11" in words


def test_each_profile_has_its_stand_in():
    found = stand_ins(*(Config((Sweep(replace(MLP, steps=steps)),)) for steps in (1, 2, 3)))
    assert [f"{steps} steps" in found[profile] for steps, profile in enumerate(PROFILES, 1)] == [True] * 3


CONTENDERS = ["h = 0.1", "h = 0.2", "DAL", "DAL-0.75", "momentum 0.9, h = 0.1", "Adam, h = 0.01", "Prodigy", "DoG"]


@pytest.mark.parametrize(("names", "is_inside"), [(CONTENDERS, True), ([*CONTENDERS, "DAL-0.5"], False)])
def test_a_legend_that_would_hide_curves_stands_below(names, is_inside):
    parts = [
        pandas.DataFrame({"setting": "here", "contender": name, "seed": 0, "step": [0, 1], "loss": [2.0, 1.0]})
        for name in names
    ]
    figure = Figure(layout="constrained")
    ax = figure.add_subplot()
    _dal.draw_losses(ax, pandas.concat(parts))
    figure.draw_without_rendering()
    legend = ax.get_legend().get_window_extent()
    assert (legend.y0 > ax.bbox.y0) == is_inside
    assert (legend.y1 < ax.bbox.y0) != is_inside


def test_contenders_have_colours_of_their_own():
    assert len({colours(CONTENDERS)[name] for name in CONTENDERS}) == len(CONTENDERS)


def test_a_contender_keeps_its_colour_where_others_are_missing():
    fewer = [name for name in CONTENDERS if not name.startswith("momentum")]
    assert {name: colours(fewer)[name] for name in fewer} == {name: colours(CONTENDERS)[name] for name in fewer}
