import jax.numpy as jnp
import numpy as np
import pytest
from monitor.cases import BOWL, watch_bowl

import principalflow as pf
from principalflow.monitor import Monitor


def test_rows_go_to_a_function():
    rows = []
    assert watch_bowl([0.1, 0.2], to=rows.append).rows == rows


class Writer:
    def __init__(self):
        self.scalars, self.texts = {}, {}

    def add_scalar(self, tag, value, step):
        self.scalars[tag, step] = value

    def add_text(self, tag, text, step):
        self.texts[tag, step] = text


def test_numbers_and_events_go_to_a_writer():
    writer = Writer()
    monitor = watch_bowl([0.1, 0.6], to=writer)
    monitor.observe(2, jnp.full(2, np.nan), 0.1)
    assert writer.scalars["principalflow/eigenvalue_0", 1] == 4
    assert ("principalflow/step", 1) not in writer.scalars
    assert ("principalflow/regime_0", 1) not in writer.scalars
    assert ("principalflow/loss", 2) not in writer.scalars  # it is NaN
    assert writer.texts["principalflow/events", 1].startswith("lambda_0 crossed 2/h")


def test_a_real_writer_takes_rows(tmp_path):
    tensorboard = pytest.importorskip("tensorboardX")
    with tensorboard.SummaryWriter(str(tmp_path)) as writer:
        watch_bowl([0.1, 0.6], to=writer)
    assert list(tmp_path.iterdir())


def test_rows_go_to_a_run_directory(tmp_path):
    with watch_bowl([0.1, 0.2], to=tmp_path) as monitor:
        pass
    frame = pf.runs.load(tmp_path)
    assert frame.attrs["config"] == dict(every=1, budget=None, k=1, tol=1e-2, momentum=0.0, parameters=2)
    assert frame["eigenvalue_0"].tolist() == [row["eigenvalue_0"] for row in monitor.rows]
    assert (frame.attrs["status"], frame.attrs["message"]) == ("completed", monitor.summary())
    monitor.close()


def test_events_are_sentences_in_a_run_directory(tmp_path):
    with watch_bowl([0.1, 0.6], to=tmp_path) as monitor:
        pass
    assert pf.runs.load(tmp_path)["events"].tolist() == [None, [str(event) for event in monitor.events]]


@pytest.mark.parametrize("error", [KeyError, KeyboardInterrupt])
def test_a_loop_that_ends_by_an_error_leaves_it_in_the_run_directory(tmp_path, error):
    with pytest.raises(error), Monitor(BOWL, to=str(tmp_path)):
        raise error("x")
    status = pf.runs.load(tmp_path).attrs
    assert status["status"] == "interrupted"
    assert error.__name__ in status["message"]
