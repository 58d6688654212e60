"""Models and data that the tests of PyTorch share."""

from itertools import pairwise

import numpy as np
import torch
from cases import network
from torch import nn

SMALL, LARGE = (3, 8, 2), (8, 30, 20, 3)  # 50 and 953 parameters: the dense method of eigenpairs, and the iteration


def tanh_network(sizes, dtype=torch.float64):
    """The network of `cases`, with its parameters."""
    layers = []
    for weights, bias in network(sizes):
        linear = nn.Linear(*weights.shape, dtype=dtype)
        linear.weight.data, linear.bias.data = (torch.tensor(np.asarray(x), dtype=dtype) for x in (weights.T, bias))
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


def numbers(sizes, samples=11):
    random = np.random.default_rng(0)
    return random.standard_normal((samples, sizes[0])), random.standard_normal((samples, sizes[-1]))


def tensors(sizes, dtype=torch.float64):
    return tuple(torch.tensor(x, dtype=dtype) for x in numbers(sizes))


def mean_square(out, targets):
    return ((out - targets) ** 2).sum(1).mean()


def order_in_torch(sizes):
    """Where each of PyTorch's parameters is among JAX's, whose weights are transposed."""
    places, start = [], 0
    for a, b in pairwise(sizes):
        places += [start + np.arange(a * b).reshape(a, b).T.ravel(), start + a * b + np.arange(b)]
        start += a * b + b
    return np.concatenate(places)


class Restless(nn.Module):
    """Batch norm, dropout, and a buffer that each forward pass replaces."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 2)).double()
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x):
        self.passes = self.passes + 1
        return self.layers(x)


class Transformer(nn.Module):
    """A language model of one block, with fused attention; given labels it computes its loss, as Hugging Face's do."""

    def __init__(self, words=7, width=4, heads=2, length=3):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(0.1 * torch.randn(length, width))
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.attention, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.further = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.head, self.heads = nn.Linear(width, words, bias=False), heads
        self.head.weight = self.words.weight  # tied

    def forward(self, input_ids, labels=None):
        x = self.words(input_ids) + self.places
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.attention(self.norms[0](x)).chunk(3, -1)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        logits = self.head(x + self.further(self.norms[1](x)))
        loss = None if labels is None else nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return Output(logits, loss)


class Output:
    """As a model of Hugging Face returns it."""

    def __init__(self, logits, loss):
        self.logits, self.loss = logits, loss


def sentences(samples=6, words=7, length=3):
    ids = torch.randint(0, words, (samples, length), generator=torch.Generator().manual_seed(0))
    return dict(input_ids=ids, labels=(3 * ids + 1) % words)


def transformer(dtype=torch.float64):
    torch.manual_seed(0)
    return Transformer().to(dtype)


def dense(model, loss):
    """The gradient and the whole Hessian of `loss(model)` by the trained parameters, from PyTorch's own functions."""
    params = {name: p for name, p in model.named_parameters() if p.requires_grad}
    sizes = [p.numel() for p in params.values()]

    def of(theta):
        parts = zip(params.items(), theta.split(sizes), strict=True)
        values = {name: part.reshape(p.shape) for (name, p), part in parts}
        return torch.func.functional_call(Whole(model, loss), {f"model.{name}": p for name, p in values.items()}, ())

    theta = torch.cat([p.detach().reshape(-1) for p in params.values()])
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return torch.autograd.functional.jacobian(of, theta), torch.autograd.functional.hessian(of, theta)


class Whole(nn.Module):
    """A model and its loss as one."""

    def __init__(self, model, loss):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self):
        return self.loss(self.model)
