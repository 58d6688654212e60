from dataclasses import replace

import pytest

from principalflow.reproduce import PROFILES
from principalflow.reproduce._dal_settings import Config, both, stand_ins
from principalflow.reproduce._sweeps import Sweep
from principalflow.training import Options

MLP = Options(data="mnist", samples=2000, width=0.5, steps=1000)
VGG = Options(data="cifar10", model="vgg11", width=0.0625, normalization="group", steps=50)


def stand_in(*sweeps):
    return stand_ins({"cpu": Config(sweeps)})["cpu"]


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
    found = stand_ins({name: Config((Sweep(replace(MLP, steps=n)),)) for n, name in enumerate(PROFILES, 1)})
    assert [f"{steps} steps" in found[profile] for steps, profile in enumerate(PROFILES, 1)] == [True] * 3
