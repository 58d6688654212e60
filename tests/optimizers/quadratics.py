"""Quadratics on which an optimiser decays just below its threshold and grows just above it."""

import numpy as np
from scipy.optimize import brentq

SIZES = {"a": (3,), "b": (2, 2)}
ENTRIES = 7
STEPS = 600
# So many steps, and averages that forget so slowly, that the metric stands still.
LONG_AGO, SLOW = 2_000_000_000, 1 - 1e-8


def _curvature():
    random = np.random.default_rng(0)
    basis, _ = np.linalg.qr(random.standard_normal((ENTRIES, ENTRIES)))
    return (basis * np.linspace(0.3, 1, ENTRIES)) @ basis.T


CURVATURE = _curvature()
SQUARES = np.random.default_rng(1).uniform(0.3, 3.0, ENTRIES)  # what nu stands at


def metric(edge):
    """P^-1/2 of an edge, and W."""
    P = np.ones(ENTRIES) if edge.preconditioner is None else np.asarray(edge.preconditioner)
    return 1 / np.sqrt(P), np.broadcast_to(np.asarray(edge.decay, float), ENTRIES)


def eigenpairs(edge, scale=1.0):
    """Of P^-1/2 (H + W) P^-1/2 with H a multiple of the curvature."""
    root, W = metric(edge)
    return np.linalg.eigh(root[:, None] * (scale * CURVATURE + np.diag(W)) * root)


def sharpness(edge, scale=1.0):
    return eigenpairs(edge, scale)[0][-1]


def scale_for(edge, share):
    """The multiple of the curvature at which the sharpness is this share of the threshold."""
    return brentq(lambda s: sharpness(edge, s) - share * edge.threshold, 0, 1e3 * edge.threshold, xtol=1e-12)


def start(edge, scale):
    """Parameters along the direction of largest curvature, and some more."""
    root, _ = metric(edge)
    return 1e-3 * root * (eigenpairs(edge, scale)[1][:, -1] + 0.1)


def decays_below_and_grows_above(edge, run):
    """Whether it does 1% below and above the threshold; `run(scale, theta)` gives the path from theta."""
    below, above = (run(scale, start(edge, scale)) for scale in (scale_for(edge, 0.99), scale_for(edge, 1.01)))
    below, above = (np.linalg.norm(path, axis=1) / np.linalg.norm(path[0]) for path in (below, above))
    # Far away from where it started the squares of the gradients change the metric, and may hold it again.
    return below[-1] < 1e-2 and np.max(above) > 1e2
