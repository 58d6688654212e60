"""Momentum as a filter, and the threshold that comes from what it makes of a gradient whose sign flips."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import principalflow as pf
from principalflow.optimizers import Edge, Filter, Group, Part, UnknownError, combined

decays = st.floats(0, 0.999)
rates = st.floats(1e-4, 10)
shares_of_two = st.floats(0, 1.9)  # rate times weight decay
KINDS = {
    "heavy ball": Filter.heavy_ball,
    "dampened": lambda b: Filter.heavy_ball(b, dampening=0.7),
    "nesterov": lambda b: Filter.heavy_ball(b, nesterov=True),
    "average": Filter.average,
    "nadam": lambda b: Filter.average(b, nesterov=True),
    "nadam at its start": lambda b: Filter.of_average(b, 1 - b, 0.7 * b, 1 - b, ("", ""), ()),
    "nadam's schedule": lambda b: Filter.of_average(b, 1 - b, 0.6 * b, 1 - 0.6 * b, ("", ""), ()),
}


@pytest.mark.parametrize(
    ("options", "threshold"),
    [
        ({}, 20.0),
        (dict(momentum=0.9), 38.0),
        (dict(momentum=0.9, nesterov=True), 38 / 2.8),
        (dict(beta1=0.9), 380.0),
        (dict(beta1=0.9, weight_decay=1.0), 19 * 1.9 / 0.1),
    ],
)
def test_an_edge_of_ones_own_is_made_from_the_rate_and_the_momentum(options, threshold):
    edge = Edge.of("mine", 0.1, **options, preconditioner=np.ones(2))
    assert edge.threshold == pytest.approx(threshold)
    assert edge.why.startswith(", mine's threshold")


def test_an_edge_has_one_kind_of_momentum():
    with pytest.raises(ValueError, match="momentum or beta1 must be 0"):
        Edge.of("mine", 0.1, momentum=0.9, beta1=0.9)


@pytest.mark.parametrize("kind", KINDS)
@given(b=decays, h=rates, hw=shares_of_two, share=st.floats(0.001, 0.999))
def test_the_largest_multiplier_passes_one_at_the_threshold_and_not_before(kind, b, h, hw, share):
    part = Part(learning_rate=h, filter=KINDS[kind](b), weight_decay=hw / h)
    assert np.max(np.abs(part.multipliers(share * part.threshold))) < 1 + 1e-9
    assert np.max(np.abs(part.multipliers(1.001 * part.threshold))) > 1
    assert part.leaves_by_flipping


@pytest.mark.parametrize("kind", KINDS)
@given(b=decays)
def test_a_filter_is_what_its_recursion_makes_of_alternating_gradients(kind, b):
    q = KINDS[kind](min(b, 0.9))
    v, out = 0.0, 0.0
    for t in range(400):
        g = (-1.0) ** t
        last, v = v, -(*q.denominator, 0.0)[1] * v + g
        out = q.numerator[0] * v + (*q.numerator, 0.0)[1] * last
    assert out / g == pytest.approx(q.alternating_gain)


@pytest.mark.parametrize(
    ("part", "formula", "threshold"),
    [
        (Part(learning_rate=0.1), "2/h", 20),
        (Part(learning_rate=0.1, filter=Filter.heavy_ball(0.9)), "2(1+m)/h", 38),
        (Part(learning_rate=0.1, filter=Filter.heavy_ball(0.9, dampening=0.5)), "2(1+m)/((1-d)h)", 76),
        (Part(learning_rate=0.1, filter=Filter.heavy_ball(0.9, nesterov=True)), "2(1+m)/((1+2m)h)", 38 / 2.8),
        (Part(learning_rate=0.1, filter=Filter.average(0.9)), "2(1+b1)/((1-b1)h)", 380),
        (Part(learning_rate=0.1, filter=Filter.average(0.9, nesterov=True)), "2(1+b1)/((1-b1)(1+2b1)h)", 380 / 2.8),
        (Part(learning_rate=0.1, filter=Filter.average(0.9), weight_decay=1.0), "(2-hw)(1+b1)/((1-b1)h)", 361),
    ],
)
def test_thresholds_are_those_of_the_literature(part, formula, threshold):
    assert part.formula == formula
    assert part.threshold == pytest.approx(threshold)


def test_momentum_of_momentum_does_not_leave_by_flipping():
    twice = Part(learning_rate=0.1, filter=Filter.heavy_ball(0.9).then(Filter.average(0.9)))
    assert not twice.leaves_by_flipping
    assert np.max(np.abs(twice.multipliers(0.5 * twice.threshold))) > 1


def test_regimes_are_those_of_descent():
    edge = Edge.of_descent(0.1)
    assert [edge.regime(c) for c in (5, 15, 25)] == ["real stable", "complex stable", "unstable"]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_negative_curvature_has_the_regime_that_the_analysis_gives_it(momentum):
    analysis = pf.stability.analyse(pf.functions.quadratic([[-3.0]]), [1.0], 0.1, k=1)
    assert analysis.regimes == (Edge.of_descent(0.1, momentum=momentum).regime(-3.0),)


def test_at_rate_zero_nothing_is_unstable():
    edge = Edge.of_descent(0.0, momentum=0.9)
    assert edge.threshold == edge.part.small_batch_threshold == math.inf
    assert edge.regime(1e6) == "real stable"


def test_an_unknown_edge_has_neither_threshold_nor_regime():
    edge = Edge.of_unknown("lion", "lion is not known")
    assert np.isnan(edge.threshold)
    assert edge.regime(1.0) == "unknown"


def group(size=1, h=0.1, **options):
    return Group(size=size, optimizer="sgd", part=Part(learning_rate=h), **options)


def test_one_part_for_all_needs_no_metric():
    edge = combined([group(2), group(3)], np.full)
    assert edge.preconditioner is None
    assert edge.decay == 0.0
    assert edge.second_moment is None


def test_the_first_group_that_moves_gives_the_units():
    edge = combined([group(1, h=0.0), group(2, h=0.1), group(1, h=0.4)], np.full)
    assert edge.threshold == pytest.approx(20)
    np.testing.assert_allclose(edge.preconditioner, [np.inf, 1, 1, 0.25])


def test_where_nothing_moves_the_metric_stays():
    edge = combined([group(1, h=0.0, preconditioner=np.array([3.0])), group(1, h=0.0)], np.full)
    assert edge.threshold == math.inf
    np.testing.assert_array_equal(edge.preconditioner, [3.0, 1.0])


TWO_MOMENTA = [
    Group(size=1, optimizer="sgd", part=Part(learning_rate=0.1)),
    Group(size=1, optimizer="sgd", part=Part(learning_rate=1.5, filter=Filter.heavy_ball(0.9))),
]


def test_momentum_of_any_group_is_momentum():
    assert [combined(TWO_MOMENTA[i:], np.full).has_momentum for i in (0, 1)] == [True, True]
    assert not combined(TWO_MOMENTA[:1], np.full).has_momentum


def test_groups_of_several_kinds_are_only_known_to_be_stable_or_not():
    edge = combined(TWO_MOMENTA, np.full)
    assert [edge.regime(share * edge.threshold) for share in (0.1, 0.9, 1.1)] == ["stable", "stable", "unstable"]


def test_groups_that_differ_in_their_rates_alone_have_the_regimes_of_one():
    edge = combined([group(h=0.1), group(h=0.4)], np.full)
    assert [edge.regime(c) for c in (5, 15, 25)] == ["real stable", "complex stable", "unstable"]


@pytest.mark.parametrize(("decay", "regime"), [(0.01, "real stable"), (1.0, "stable")])
def test_a_little_weight_decay_on_some_leaves_regimes_as_they_are(decay, regime):
    decayed = Group(size=1, optimizer="sgd", part=Part(learning_rate=0.1, weight_decay=decay))
    assert combined([group(), decayed], np.full).regime(5) == regime


def test_that_several_groups_share_a_metric_is_said():
    edge = combined(TWO_MOMENTA, np.full)
    assert edge.why == ", the threshold of the first group, in a metric common to all groups,"


def test_an_edge_of_ones_own_tells_its_formula():
    edge = Edge(optimizer="mine", part=Part(learning_rate=0.5, filter=Filter.heavy_ball(0.2)))
    assert edge.formula == "2(1+m)/h"
    assert Edge.of_unknown("lion", "it can't be read").formula == ""


def test_edges_with_vectors_can_be_compared():
    edges = [Edge(optimizer="adam", part=Part(learning_rate=0.5), preconditioner=np.ones(2)) for _ in range(2)]
    assert edges[0] == edges[0] != edges[1]


@given(b=decays, h=rates, hw=shares_of_two, curvature=st.floats(1e-3, 1e3))
def test_at_the_stable_rate_the_curvature_is_the_threshold(b, h, hw, curvature):
    part = Part(learning_rate=h, filter=Filter.average(b), weight_decay=hw / h)
    moved = replace(part, learning_rate=part.stable_rate(curvature))
    gain = part.filter.alternating_gain
    lost = 4e-16 * (1 + part.weight_decay / (curvature * gain))  # in 2 - hw, where the decay is nearly all
    assert moved.threshold == pytest.approx(curvature, rel=max(1e-12, 10 * lost))


def test_no_curvature_limits_no_rate():
    assert Part(learning_rate=0.1).stable_rate(0.0) == Part(learning_rate=0.1).stable_rate(-1.0) == math.inf


def test_an_average_that_keeps_nothing_is_no_momentum():
    assert Filter.heavy_ball(0.0) == Filter.average(0.0, nesterov=True) == Filter()


def test_decays_and_second_moments_are_joined():
    edge = combined([group(2, decay=0.5, second_moment=np.ones(2)), group(1, decay=0.25)], np.full)
    np.testing.assert_array_equal(edge.decay, [0.5, 0.5, 0.25])
    np.testing.assert_array_equal(edge.second_moment, [1, 1, np.inf])


@pytest.mark.parametrize("P", [0.0, -1.0, np.nan])
def test_a_metric_must_be_positive(P):
    with pytest.raises(UnknownError, match="some entries of sgd's metric aren't above 0"):
        combined([group(2, preconditioner=np.array([1.0, P]))], np.full)
