from dataclasses import replace

import jax
import numpy as np
import pandas
import pytest

from principalflow.reproduce import edge_adaptive
from principalflow.reproduce._flows import stack
from principalflow.reproduce.edge_adaptive import label

QUICK = edge_adaptive.SETTINGS["quick"]
RISES = [0.3, *8 * [1.02]]


def tables(rescaled=RISES, plain=0.1, on_batches=0.95, smaller=0.6):
    """Made-up tables: sharpness over its threshold, and that of the Hessian itself over 2/h."""
    steps = {
        label(o): pandas.DataFrame(
            {
                "step": range(9),
                "loss": 1.0,
                "h": o.learning_rate,
                "threshold": 7.0,
                "sharpness": 7 * np.array(rescaled),
                "plain": 2 * plain / o.learning_rate,
            }
        )
        for o in QUICK.rescaled
    }
    batches = {
        label(o): pandas.DataFrame(
            {
                "step": range(9),
                "loss": 1.0,
                "threshold": 3.0,
                "batch_sharpness": 3 * on_batches,
                "standard_error": 0.1,
                "sharpness": 3 * (smaller if o.batch_size < 64 else 1.0),
            }
        )
        for o in QUICK.on_batches
    }
    return {"steps": stack(steps, "optimizer"), "batches": stack(batches, "optimizer")}


def held(**made_up):
    return [claim.held for claim in edge_adaptive.claims(QUICK, tables(**made_up))]


def test_sharpness_that_rises_to_its_threshold_and_stays_holds_all_claims():
    assert held() == [True] * 16


@pytest.mark.parametrize(
    ("rescaled", "expected"),
    [
        ([0.3, *8 * [0.7]], [False, False]),
        ([0.3, *5 * [1.1], *3 * [0.7]], [True, False]),
        ([1.1, *8 * [1.0]], [False, True]),
    ],
    ids=["stays below", "falls again", "begins above"],
)
def test_sharpness_that_does_not_rise_or_stay_is_told(rescaled, expected):
    assert held(rescaled=rescaled)[:2] == expected


def test_a_hessian_at_2_over_h_would_show_the_edge_too():
    assert not held(plain=1.05)[2]


def test_batch_sharpness_off_its_threshold_is_told():
    assert held(on_batches=0.8)[12:15] == [False] * 3


def test_a_smaller_batch_with_a_sharper_loss_is_told():
    assert not held(smaller=1.2)[15]


def test_the_figure_has_a_line_for_each_training():
    figure = edge_adaptive.draw(QUICK, tables())
    assert [len(ax.get_legend().get_texts()) for ax in (figure.axes[0], figure.axes[3])] == [4, 3]
    assert [len(ax.lines) for ax in figure.axes] == [4, 5, 5, 3, 4, 4]  # with the dashed ones


def ran(rescaled, on_batches, **changes):
    """The tables of some of the trainings, on few samples and for a few steps."""
    few = dict(samples=80, width=0.02, steps=6, record_every=2, keep_every=2) | changes
    parts = (tuple(replace(o, **few) for o in options) for options in (rescaled, on_batches))
    with jax.enable_x64(True):
        return edge_adaptive.run(edge_adaptive.Config(*parts, drawn=4))


@pytest.mark.slow
def test_trainings_give_sharpness_in_the_metric_and_of_the_hessian_itself_and_that_of_batches():
    found = ran(QUICK.rescaled[:1], QUICK.on_batches[::2])
    assert found["steps"]["step"].tolist() == [2, 4, 6]  # before the first step there is no metric
    assert found["batches"]["step"].tolist() == [0, 2, 4, 6] * 2
    assert all(np.isfinite(table.select_dtypes("number")).all(axis=None) for table in found.values())
    thresholds = found["batches"].groupby("optimizer", sort=False)["threshold"].first()
    np.testing.assert_allclose(thresholds, [2 / 0.3, 0.2 / 0.02])


@pytest.mark.slow
def test_a_run_that_diverges_ends_there():
    diverging = replace(QUICK.on_batches[0], learning_rate=1e6)
    found = ran(QUICK.rescaled[:1], [diverging], steps=20)["batches"]
    assert 0 < len(found) < 11


@pytest.mark.slow
def test_adam_settles_at_38_over_h_and_rmsprop_at_2_over_h():
    with jax.enable_x64(True):
        for o in QUICK.rescaled:
            rows = edge_adaptive.trained(o).records
            assert rows["edge"].iloc[-30:].median() == pytest.approx(1, abs=0.15), label(o)
            times_h = {"adam": 38, "adamw": 38, "nadam": 38 / 2.8, "rmsprop": 2}[o.optimizer]
            assert rows["threshold"].iloc[-1] * o.learning_rate == pytest.approx(times_h, rel=1e-3)
