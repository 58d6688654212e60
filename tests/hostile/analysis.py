"""Calls of spectra, stability, drift, landscapes and pictures."""

from dataclasses import replace

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from hostile.call import AT, PLACE, SELECTS, Call
from hostile.values import (
    BLOCKS,
    COMPARISON,
    CUBIC,
    FEW_FLOWS,
    FLOWS,
    FUNCTIONS,
    GUESSES,
    LANDSCAPE,
    LARGE_EIGENPAIRS,
    MATRICES,
    NOTHINGS,
    NUMBERS,
    OBJECTIVES,
    PARAMETERS,
    PLANE,
    RECORDS,
    THETA,
    VECTORS,
    WATCHED,
    WORDS,
    large_product,
)

import principalflow as pf

_PLANES = (
    PLANE,
    PLANE._replace(origin=np.ones(2)),
    PLANE._replace(origin=np.full(3, np.nan)),
    PLANE._replace(directions=np.ones((2, 2))),
    PLANE._replace(directions=np.ones(3)),
    PLANE._replace(directions=np.full((3, 2), np.nan)),
    PLANE._replace(directions=np.array([["a"] * 2] * 3)),
    PLANE._replace(directions=None),
    PLANE._replace(points=np.ones((2, 1))),
    PLANE._replace(points=np.full((2, 2), np.nan)),
    PLANE._replace(points=None),
    tuple(PLANE),
    *NOTHINGS,
)

_METRIC = dict(preconditioner=None, decay=0.0)
_METRICS = dict(preconditioner=(*VECTORS, *PARAMETERS), decay=(*NUMBERS, *VECTORS, *PARAMETERS))

ANALYSIS = [
    Call(
        "spectrum.top_eigenpairs",
        pf.spectrum.top_eigenpairs,
        dict(AT, k=1, guess=None, tol=1e-3, which="largest", cover=None, select=None, max_products=100, **_METRIC),
        dict(
            PLACE,
            k=NUMBERS,
            guess=(*BLOCKS, *GUESSES),
            tol=NUMBERS,
            which=WORDS,
            cover=NUMBERS,
            select=SELECTS,
            max_products=NUMBERS,
            **_METRICS,
        ),
    ),
    Call(
        "spectrum.eigenpairs_and_gradient",
        pf.spectrum.eigenpairs_and_gradient,
        dict(AT, k=1, guess=None, tol=1e-3, **_METRIC),
        dict(PLACE, k=NUMBERS, guess=(*BLOCKS, *GUESSES), tol=NUMBERS, **_METRICS),
    ),
    Call(
        "spectrum.sharpness",
        lambda **given: [value for value in pf.spectrum.sharpness(**given) if not np.isnan(value)],
        dict(objective=CUBIC, thetas=[THETA], tol=1e-2),
        dict(objective=OBJECTIVES, thetas=[[vector] for vector in VECTORS], tol=NUMBERS),
        ("theta",),
    ),
    Call(
        "spectrum.block_eigenpairs",
        pf.spectrum.block_eigenpairs,
        dict(product=lambda V: 2 * V, guess=np.eye(3), k=1, tol=1e-3, which="largest", cover=None, max_products=100),
        dict(
            product=(*FUNCTIONS, lambda V: V * np.nan, lambda V: V[:2], lambda V: V.tolist(), lambda V: np.triu(V)),
            guess=(*BLOCKS, *GUESSES),
            k=NUMBERS,
            tol=NUMBERS,
            which=WORDS,
            cover=NUMBERS,
            max_products=NUMBERS,
        ),
    ),
    Call(
        "spectrum.block_eigenpairs (again)",
        lambda **arguments: replace(pf.spectrum.block_eigenpairs(**arguments), trail=None),
        dict(product=large_product, guess=LARGE_EIGENPAIRS, k=1, which="largest", max_products=100),
        dict(
            product=(
                *FUNCTIONS,
                lambda V: large_product(V, np.nan),
                lambda V: large_product(V, -1),
                lambda V: large_product(V, 1e300),
            ),
            guess=GUESSES,
            k=NUMBERS,
            which=WORDS,
            max_products=NUMBERS,
        ),
    ),
    Call(
        "spectrum.density",
        pf.spectrum.density,
        dict(AT, probes=2, steps=2, points=10, width=None, select=None, seed=0),
        dict(PLACE, probes=NUMBERS, steps=NUMBERS, points=NUMBERS, width=NUMBERS, select=SELECTS, seed=NUMBERS),
    ),
    Call(
        "spectrum.trace",
        pf.spectrum.trace,
        dict(AT, products=4, select=None, seed=0),
        dict(PLACE, products=NUMBERS, select=SELECTS, seed=NUMBERS),
    ),
    Call(
        "spectrum.basis_memory",
        pf.spectrum.basis_memory,
        dict(k=1, size=100, itemsize=4),
        dict(k=NUMBERS, size=NUMBERS, itemsize=NUMBERS),
    ),
    Call(
        "spectrum.apply",
        pf.spectrum.apply,
        dict(AT, f=jnp.exp, v=THETA, rtol=1e-8, max_products=10),
        dict(PLACE, f=FUNCTIONS, v=BLOCKS, rtol=NUMBERS, max_products=NUMBERS),
    ),
    Call(
        "stability.analyse",
        pf.stability.analyse,
        dict(AT, h=0.1, k=2, guess=None, tol=1e-3),
        dict(PLACE, h=NUMBERS, k=NUMBERS, guess=(*BLOCKS, *GUESSES), tol=NUMBERS),
    ),
    Call(
        "stability.batch_sharpness",
        pf.stability.batch_sharpness,
        dict(AT, batch_size=2, batches=4, seed=0),
        dict(PLACE, batch_size=NUMBERS, batches=NUMBERS, seed=NUMBERS),
        is_formula=True,
    ),
    Call(
        "stability.batch_thresholds",
        pf.stability.batch_thresholds,
        dict(h=0.1, momentum=0.9),
        dict(h=NUMBERS, momentum=NUMBERS),
    ),
    Call(
        "stability.predict_projection",
        pf.stability.predict_projection,
        dict(flow=pf.flows.IGR(0.1), lambdas=THETA, projection=THETA, time=0.1),
        dict(flow=FLOWS, lambdas=VECTORS, projection=VECTORS, time=NUMBERS),
        is_formula=True,
    ),
    Call(
        "stability.critical_point",
        pf.stability.critical_point,
        dict(flow=pf.flows.IGR(0.1), lambdas=THETA),
        dict(flow=FLOWS, lambdas=VECTORS),
        is_formula=True,
    ),
    Call(
        "stability.relative_progress",
        pf.stability.relative_progress,
        dict(AT, h=0.1),
        dict(PLACE, h=NUMBERS),
        is_formula=True,
    ),
    Call(
        "drift.per_iteration",
        pf.drift.per_iteration,
        dict(objective=CUBIC, theta=THETA, h=0.1, flow=None, rtol=1e-4),
        dict(PLACE, h=NUMBERS, flow=FEW_FLOWS, rtol=NUMBERS),
    ),
    Call(
        "drift.global_drift",
        pf.drift.global_drift,
        dict(objective=CUBIC, theta=THETA, h=0.1, steps=2, flow=None, rtol=1e-4),
        dict(PLACE, h=NUMBERS, steps=NUMBERS, flow=FEW_FLOWS, rtol=NUMBERS),
    ),
    Call(
        "drift.estimate",
        pf.drift.estimate,
        dict(AT, h=0.1, curvature="hvp"),
        dict(PLACE, h=NUMBERS, curvature=(*WORDS, "finite_difference")),
    ),
    Call(
        "drift.momentum",
        pf.drift.momentum,
        dict(AT, velocity=THETA, h=0.1, momentum=0.9, curvature="hvp"),
        dict(PLACE, velocity=VECTORS, h=NUMBERS, momentum=NUMBERS, curvature=(*WORDS, "finite_difference")),
    ),
    Call(
        "landscape.random",
        pf.landscape.random,
        dict(AT, dimensions=2, seed=0),
        dict(PLACE, dimensions=NUMBERS, seed=NUMBERS),
    ),
    Call(
        "landscape.through",
        pf.landscape.through,
        dict(thetas=np.eye(3), origin=None, dimensions=1),
        dict(thetas=MATRICES, origin=VECTORS, dimensions=NUMBERS),
    ),
    Call(
        "landscape.evaluate",
        pf.landscape.evaluate,
        dict(objective=CUBIC, plane=PLANE, reach=None, points=3, at_once=8),
        dict(objective=OBJECTIVES, plane=_PLANES, reach=NUMBERS, points=NUMBERS, at_once=NUMBERS),
        is_formula=True,
    ),
]


def _drawn(function):
    def call(**arguments):
        try:
            function(**arguments)
        finally:
            plt.close("all")

    return call


_BANANA = pf.functions.banana()

PICTURES = [
    Call(
        "plot.trajectories",
        _drawn(pf.plot.trajectories),
        dict(objective=_BANANA, paths={"a": np.ones((2, 2))}, descent=None, ax=None, colours=None),
        dict(
            objective=OBJECTIVES,
            paths=(
                {"a": np.full((2, 2), np.nan)},
                {"a": np.ones(2)},
                {"a": "x"},
                {"a": None},
                {1: np.ones((2, 2))},
                *NOTHINGS,
            ),
            descent=(np.full((2, 2), np.inf), *MATRICES),
            colours=({"a": "nope"}, {"a": 1}, *NOTHINGS),
            ax=NOTHINGS[1:6],
        ),
    ),
    Call(
        "plot.errors",
        _drawn(pf.plot.errors),
        dict(table=COMPARISON, kind="global", relative=False),
        dict(
            table=(COMPARISON[:0], COMPARISON.drop(columns="kind"), dict(COMPARISON), *NOTHINGS),
            kind=(*WORDS, "local"),
            relative=WORDS,
        ),
    ),
    Call(
        "plot.landscape",
        _drawn(pf.plot.landscape),
        dict(found=LANDSCAPE, surface=False),
        dict(
            found=(
                LANDSCAPE._replace(losses=LANDSCAPE.losses * np.nan),
                LANDSCAPE._replace(losses=np.ones(2)),
                tuple(LANDSCAPE),
                *NOTHINGS,
            ),
            surface=(True, *WORDS[:4]),
        ),
    ),
    Call(
        "plot.stability",
        _drawn(pf.plot.stability),
        dict(records=RECORDS),
        dict(records=(RECORDS, RECORDS[:0], RECORDS[["step"]], COMPARISON, *NOTHINGS)),
    ),
    Call(
        "plot.monitor",
        _drawn(pf.plot.monitor),
        dict(table=WATCHED),
        dict(table=(WATCHED, WATCHED[:0], WATCHED[["step"]], RECORDS, COMPARISON, *NOTHINGS)),
    ),
]
