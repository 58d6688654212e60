"""The paper's networks and losses, as equinox modules that take whole batches."""

from principalflow.models._build import NAMES, build
from principalflow.models._layers import ACTIVATIONS, NORMALIZATIONS, POOLINGS, BatchNorm, Conv, GroupNorm, Linear
from principalflow.models._losses import LOSSES, accuracy, cross_entropy, loss, mean_square
from principalflow.models._mlp import MLP
from principalflow.models._resnet import STEMS, ResNet
from principalflow.models._vgg import VGG

__all__ = [
    "ACTIVATIONS",
    "LOSSES",
    "MLP",
    "NAMES",
    "NORMALIZATIONS",
    "POOLINGS",
    "STEMS",
    "VGG",
    "BatchNorm",
    "Conv",
    "GroupNorm",
    "Linear",
    "ResNet",
    "accuracy",
    "build",
    "cross_entropy",
    "loss",
    "mean_square",
]
