"""A network that tests of PyTorch's optimisers share, and what trains it."""

import cases
import numpy as np
import torch
from torch import nn

from principalflow.torch import CDAT, DAL

CURVATURES = ["hvp", "finite_difference"]
RANDOM = np.random.default_rng(0)
INPUTS, TARGETS = RANDOM.standard_normal((11, 2)), RANDOM.standard_normal((11, 1))
X, Y = torch.tensor(INPUTS), torch.tensor(TARGETS)


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


def cdat(params, base=torch.optim.AdamW, **options):
    """CDAT on a base of rate 1."""
    return CDAT(base(params, lr=1.0), **options)


def train(model, steps, curvature="hvp", optimizer=None, make=DAL, **options):
    """The optimiser after some steps, and the parameters after each."""
    optimizer = optimizer or make(model.parameters(), curvature=curvature, **options)
    path = []
    for _ in range(steps):
        optimizer.step(closure_of(optimizer, lambda: square_loss(model), curvature))
        path.append(flat(model))
    return optimizer, path


def flat(model):
    return torch.cat([p.detach().clone().ravel() for p in model.parameters()])
