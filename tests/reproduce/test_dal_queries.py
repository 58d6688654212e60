import numpy as np
import pandas
import pytest

from principalflow.reproduce._dal_queries import end_of_sweep, ratio

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
