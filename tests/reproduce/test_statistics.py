import numpy as np
import pytest
import scipy.stats

from principalflow.reproduce._statistics import area_under_curve, rank_correlation


def pairs(count, noise=1.0):
    random = np.random.default_rng(1)
    x = random.standard_normal(count)
    return x, x + noise * random.standard_normal(count)


def test_the_rank_correlation_is_spearmans():
    x, y = (column.round() for column in pairs(40))  # with ties
    found = rank_correlation(x, y)
    assert found.value == pytest.approx(scipy.stats.spearmanr(x, y).statistic, rel=1e-12)
    assert found.pairs == 40


def test_its_interval_contains_it_and_is_narrower_for_more_pairs():
    few, many = (rank_correlation(*pairs(count)) for count in (20, 200))
    assert few.low < few.value < few.high
    assert many.low < many.value < many.high
    assert many.high - many.low < few.high - few.low


def test_its_interval_is_that_of_another_bootstrap():
    x, y = pairs(60)
    found = rank_correlation(x, y)
    other = scipy.stats.bootstrap(
        (x, y),
        lambda x, y: scipy.stats.spearmanr(x, y).statistic,
        n_resamples=1000,
        paired=True,
        vectorized=False,
        method="percentile",
        random_state=0,
    ).confidence_interval
    # An end is a quantile of 1,000 draws: its own error is about a fiftieth of the interval.
    assert (found.low, found.high) == pytest.approx(tuple(other), abs=0.1 * (found.high - found.low))


def test_pairs_that_are_not_finite_are_left_out():
    x, y = pairs(30)
    with_gaps = np.append(x, [np.nan, 1.0, np.inf]), np.append(y, [1.0, np.nan, 1.0])
    assert rank_correlation(*with_gaps) == rank_correlation(x, y)


def test_a_constant_side_has_no_rank_correlation():
    found = rank_correlation(np.ones(10), np.arange(10))
    assert np.isnan(found[:3]).all()
    assert found.pairs == 10


def test_two_pairs_have_no_rank_correlation():
    assert np.isnan(rank_correlation([1.0, 2.0], [1.0, 2.0])[:3]).all()


def test_the_area_under_the_curve_is_the_share_of_ordered_pairs():
    random = np.random.default_rng(0)
    scores, happened = random.standard_normal(30), random.random(30) < 0.4
    pairs = [(a > b) + 0.5 * (a == b) for a in scores[happened] for b in scores[~happened]]
    assert area_under_curve(scores, happened) == pytest.approx(np.mean(pairs))


def test_ties_count_half():
    assert area_under_curve([1, 1, 1], [True, False, True]) == 0.5


def test_with_one_outcome_there_is_no_curve():
    assert np.isnan(area_under_curve([1, 2], [True, True]))
