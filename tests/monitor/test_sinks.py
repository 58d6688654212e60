import json

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


def test_a_run_directory_that_was_reopened_goes_on(tmp_path):
    watch_bowl([0.1, 0.2], to=tmp_path / "run").close()
    with watch_bowl([0.3], to=pf.runs.reopen(tmp_path / "run")):
        pass
    loaded = pf.runs.load(tmp_path / "run")
    assert loaded["learning_rate"].tolist() == [0.1, 0.2, 0.3]
    assert loaded.attrs["status"] == "completed"


class Run:
    """As much of a Weights & Biases run as a monitor sees: it drops what is logged at a step before its own."""

    def __init__(self):
        self.step, self.history, self.axes = 0, {}, {}

    def define_metric(self, name, step_metric=None):
        self.axes[name] = step_metric

    def log(self, data, step=None):
        at = self.step if step is None else step
        if at >= self.step:
            self.history.setdefault(at, {}).update(data)
            self.step = at + (step is None)

    def column(self, name):
        return [data[name] for data in self.history.values() if name in data]


def test_numbers_and_events_go_to_a_wandb_run():
    run = Run()
    monitor = watch_bowl([0.1, 0.6], to=run)
    assert run.axes == {"principalflow/step": None, "principalflow/*": "principalflow/step"}
    assert run.column("principalflow/step") == [0, 1]
    assert run.column("principalflow/eigenvalue_0") == [4, 4]
    assert run.column("principalflow/events") == ["; ".join(map(str, monitor.events))]
    assert run.column("principalflow/regime_0") == []


def logging_loop(run, log, steps=4, every=1):
    """A loop that logs something of its own after each step."""
    monitor = Monitor(BOWL, k=1, every=every, to=run)
    for step in range(steps):
        monitor.observe(step, jnp.ones(2), 0.1)
        log(step)


def test_a_loop_that_logs_by_step_keeps_its_own_values_in_a_wandb_run():
    run = Run()
    logging_loop(run, lambda step: run.log({"mine": step}, step=step), every=2)
    assert (run.column("mine"), run.column("principalflow/step")) == ([0, 1, 2, 3], [0, 2])


def log_twice(run):
    """Logs twice without a step, so that the run gets ahead of a loop."""
    for _ in range(2):
        run.log({"mine": 1})


def test_rows_are_kept_in_a_wandb_run_that_is_ahead_of_the_loop():
    run = Run()
    logging_loop(run, lambda step: log_twice(run))
    assert run.column("principalflow/step") == [0, 1, 2, 3]


@pytest.mark.slow
def test_a_real_wandb_run_takes_rows_offline(tmp_path):
    wandb = pytest.importorskip("wandb")
    with wandb.init(mode="offline", dir=tmp_path, settings=wandb.Settings(silent=True)) as run:
        logging_loop(run, lambda step: log_twice(run))
    wandb.teardown()  # only then is all of it in the file
    (file,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    items = history(file)
    assert [value for name, value in items if name == "principalflow/step"] == [0, 1, 2, 3]
    assert [value for name, value in items if name == "principalflow/eigenvalue_0"] == [4] * 4


def history(file):
    """What the file of an offline run has: names with values."""
    from wandb.proto.wandb_internal_pb2 import Record
    from wandb.sdk.internal.datastore import DataStore

    store = DataStore()
    store.open_for_scan(str(file))
    records = [Record.FromString(data) for data in iter(store.scan_data, None)]
    store.close()
    items = (item for record in records for item in record.history.item)
    return [(item.key or "/".join(item.nested_key), json.loads(item.value_json)) for item in items]


def test_rows_go_to_several_places(tmp_path):
    rows, writer = [], Writer()
    with watch_bowl([0.1, 0.2], to=[rows.append, writer, tmp_path, None]) as monitor:
        pass
    assert monitor.rows == rows
    assert writer.scalars["principalflow/eigenvalue_0", 1] == 4
    assert pf.runs.load(tmp_path).attrs["status"] == "completed"


@pytest.mark.parametrize("to", [3, [print, 3]])
def test_what_takes_no_rows_is_refused(to):
    with pytest.raises(ValueError, match=r"to must be a function of a row.*or a list of these, got a int"):
        Monitor(BOWL, to=to)


def test_rows_go_to_a_run_directory(tmp_path):
    with watch_bowl([0.1, 0.2], to=tmp_path) as monitor:
        pass
    frame = pf.runs.load(tmp_path)
    options = dict(every=1, budget=None, k=1, tol=1e-2, measure="sharpness", momentum=0.0, parameters=2)
    assert frame.attrs["config"] == options
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
