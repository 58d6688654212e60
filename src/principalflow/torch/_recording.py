"""Records of a PyTorch model, one after another: the columns of `principalflow.Record` in an optimiser's metric."""

# pyright: reportMissingImports=false

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from principalflow import _checks
from principalflow.optimizers import Edge
from principalflow.record import Record, Row, WarmStart, row_of
from principalflow.spectrum import block_eigenpairs_and_product
from principalflow.stability import Measured
from principalflow.torch._model import Here, ModelLoss

# Products may turn out to be differences of gradients within a search; these are symmetric to so much.
_ASYMMETRY = 0.02


class Recording(WarmStart):
    """Takes one record after another of a model, and leaves it as it was."""

    def __init__(self, of: ModelLoss, record: Record):
        self._of, self._record = of, record

    def __call__(self, edge: Edge) -> Row:
        """Returns one record in the metric of the optimiser's edge."""
        h, metric = edge.learning_rate, _Metric(edge, self._of.theta() if edge.has_decay else None)
        with self._of.here() as here:
            measured = self._measure(here, metric)
        del here  # with its graph
        step = -h * metric.scale * measured.gradient.to(self._of.params()[0].device)
        with self._of.here(moved=step) as there:
            next_loss, next_gradient = there.loss_and_gradient()
        next_gradient = metric.gradient(next_gradient, step).to(measured.gradient)
        row = row_of(h, measured, next_loss + metric.decay_of(step), next_gradient)
        products = self._of.products
        return row if products.is_exact else row | {"products_error": products.differences.error}

    def _measure(self, here: Here, metric: "_Metric") -> Measured:
        loss, plain = here.loss_and_gradient()
        if not math.isfinite(loss) or not bool(plain.isfinite().all()):
            raise _checks.NonFiniteError("the loss and its gradient must be finite, but they are not.")
        gradient = metric.gradient(plain)
        k, guess, place = min(self._record.k, gradient.numel()), self._eigenpairs, gradient
        if self._record.on_host:
            place = gradient.cpu()
        if guess is not None and guess.trail is not None and len(guess.trail.probed) == gradient.numel():
            guess = replace(guess, trail=guess.trail.map(lambda rows: rows.to(place)))
        else:  # the first time, or parameters were frozen or thawed
            random = torch.Generator().manual_seed(0)
            guess = torch.randn(gradient.numel(), k, generator=random, dtype=gradient.dtype).to(place.device)
        products = lambda block: metric.times(here, block.to(gradient)).to(place)  # noqa: E731
        options: dict[str, Any] = dict(tol=self._record.tol, also=place, error=_ASYMMETRY)
        eigenpairs, Hg = block_eigenpairs_and_product(products, guess, k, **options)
        # In one layout, so that what was stored and restored gives the same bits.
        trail = eigenpairs.trail and eigenpairs.trail.map(lambda rows: rows.contiguous())
        self._eigenpairs = replace(eigenpairs, trail=trail)
        norm = float(torch.linalg.vector_norm(plain))
        return Measured.of(loss, place, Hg, eigenpairs, torch.finfo(gradient.dtype).eps, norm)


class _Metric:
    """The metric P of an optimiser and its L2 weight decay W: the loss becomes E + theta.W theta / 2."""

    def __init__(self, edge: Edge, theta: Tensor | None):
        self.scale: Any = 1.0 if edge.preconditioner is None else edge.preconditioner**-0.5
        self._column = self.scale[:, None] if isinstance(self.scale, Tensor) else self.scale
        self._decay, self._theta = edge.decay, theta

    def gradient(self, plain: Tensor, moved: Any = 0.0) -> Tensor:
        """Returns P^-1/2 (g + W theta) from the gradient at theta plus `moved`."""
        return self.scale * (plain if self._theta is None else plain + self._decay * (self._theta + moved))

    def times(self, here: Here, block: Tensor) -> Tensor:
        """Returns P^-1/2 (H + W) P^-1/2 times a block."""
        scaled = self._column * block
        product = here.times(scaled)
        if self._theta is not None:
            product = product + (self._decay[:, None] if isinstance(self._decay, Tensor) else self._decay) * scaled
        return self._column * product

    def decay_of(self, moved: Tensor) -> float:
        """Returns what a step changes of theta.W theta / 2."""
        if self._theta is None:
            return 0.0
        ahead = self._theta + moved
        return float((ahead @ (self._decay * ahead) - self._theta @ (self._decay * self._theta)) / 2)
