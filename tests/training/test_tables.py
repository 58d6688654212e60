import numpy as np
import pandas
import pytest

from principalflow.training import measures

STEPS = pandas.DataFrame({"step": [0, 1, 2], "loss": [3.0, 1.0, 2.0], "seed": 0, "status": "completed"}).assign(
    rate=np.nan, power=1.0, drift=0.1, sharpness=5.0, test_accuracy=0.5, train_accuracy=0.6
)


def test_runs_without_a_rate_are_not_left_out():
    table = measures(pandas.concat([STEPS, STEPS.assign(rate=0.1, power=np.nan)]), by=["rate", "power"])
    assert len(table) == 2


def test_a_run_of_which_no_loss_was_recorded_has_none():
    (row,) = measures(STEPS.assign(loss=np.nan), by=["seed"]).to_dict("records")
    assert np.isnan(row["last_loss"])
    assert not row["diverged"]


def test_what_is_no_column_is_refused():
    with pytest.raises(ValueError, match="by must be columns of steps"):
        measures(STEPS, by=["run"])
