import contextlib
import dataclasses
import functools
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from reproduce.cases import TRAINING, experiment, replace_catalogue

from principalflow import _steps, reproduce
from principalflow._lab import processes
from principalflow.reproduce import _dal_settings
from principalflow.reproduce._sweeps import Sweep
from principalflow.reproduce._trained import trained
from principalflow.training import Options

THREADS = ("NPROC", "OPENBLAS_NUM_THREADS")


def in_two_processes(out, prepare, rates, say):
    """An experiment that trains at these rates and one without trainings, in two processes."""
    trains, other = (reproduce.EXPERIMENTS[name] for name in ("projection-prediction", "coefficients"))
    networks = tuple(dataclasses.replace(TRAINING, learning_rate=h) for h in rates)
    waiting = [
        (trains, dataclasses.replace(trains.profiles["quick"], networks=networks)),
        (other, other.profiles["quick"]),
    ]
    return {result.experiment.id: result for result in processes.results(waiting, "quick", out, 2, prepare, say)}


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    """Results, what was said, and the numbers of threads in one of the processes."""
    out, said = tmp_path_factory.mktemp("apart"), []
    with pytest.MonkeyPatch.context() as patch:
        for name in THREADS:
            patch.delenv(name, raising=False)
        results = in_two_processes(out, functools.partial(_note_threads, out / "threads"), (0.1, 0.2), said.append)
        assert not any(name in os.environ for name in THREADS)
    return results, said, json.loads((out / "threads").read_text())


def _note_threads(file):
    file.write_text(json.dumps({name: os.environ[name] for name in THREADS}))


@pytest.mark.slow
def test_two_processes_give_what_one_gives(apart):
    results, _, _ = apart
    assert list(results["coefficients"].claims) == list(reproduce.run("coefficients").claims)


@pytest.mark.slow
def test_trainings_of_one_experiment_are_made_side_by_side_and_told(apart):
    results, said, _ = apart
    assert results["projection-prediction"].error == ""
    assert sorted(sentence.split(": ")[0] for sentence in said) == ["mlp on digits, full batch"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("name", THREADS)
def test_experiments_that_run_together_share_the_cores(name, apart):
    _, _, threads = apart
    assert threads[name] == str(max(1, os.cpu_count() // 2))


def test_after_an_interruption_nothing_more_begins(tmp_path, monkeypatch):
    begun, said = [], []

    class Pool(ThreadPoolExecutor):
        def __init__(self, jobs, *_):
            super().__init__(jobs)

        def submit(self, function, training, *_):
            begun.append(training)
            return super().submit(lambda: 0.0)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(processes, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(processes, "wait", interrupted)
    trainings = [Sweep(dataclasses.replace(TRAINING, learning_rate=h)) for h in (0.1, 0.2, 0.3)]
    with pytest.raises(KeyboardInterrupt):
        list(processes._in_processes([], trainings, "quick", tmp_path, 2, None, said.append))
    assert begun == trainings[:2]
    assert said == ["Stopping at the next checkpoint."]


@pytest.mark.slow
def test_results_come_in_the_order_of_the_ids(tmp_path):
    ids = ["coefficients", "z-square"]
    results = reproduce.run_all(ids, "quick", tmp_path, jobs=2, say=lambda sentence: None)
    assert [result.experiment.id for result in results] == ids


@pytest.mark.slow
def test_a_killed_process_takes_no_experiment_with_it(tmp_path):
    results = in_two_processes(tmp_path, functools.partial(_die_once, tmp_path / "dead"), (0.1,), lambda sentence: None)
    assert (tmp_path / "dead").exists()
    assert {name: result.error for name, result in results.items()} == {"projection-prediction": "", "coefficients": ""}


def _die_once(marker):
    if not marker.exists():
        marker.touch()
        os._exit(1)


def test_a_training_that_was_made_is_taken_by_those_that_ask_for_it(tmp_path, monkeypatch):
    processes._train(Sweep(TRAINING), "quick", tmp_path)
    trained.cache_clear()
    monkeypatch.setattr(_steps, "advance", None)
    item = experiment("trained", run=lambda config: {"table": trained(TRAINING).records}, claims=lambda *_: [])
    item = dataclasses.replace(item, draw=lambda *_: Figure())
    replace_catalogue(monkeypatch, item)
    assert len(reproduce.run("trained", out=tmp_path, again=True).tables["table"]) == 5


def test_a_sweep_that_was_made_is_taken_by_those_that_ask_for_it(tmp_path, monkeypatch):
    options = Options(data="iris", hidden=(3,), learning_rate=(0.1, 0.2), steps=2, record_every=0, seed=(0,))
    sweep = Sweep(options)
    processes._train(pickle.loads(pickle.dumps(sweep)), "quick", tmp_path)  # as in another process
    monkeypatch.setattr(_steps, "advance", None)
    waiting = [(reproduce.EXPERIMENTS["dal-per-parameter"], _dal_settings.Config((sweep,)))]
    assert processes._trainings(2 * waiting) == [sweep]
    (result,) = processes.results(waiting, "quick", tmp_path, 2, None, lambda sentence: None)
    assert result.error == ""
    assert result.tables["contenders"]["contender"].tolist() == ["h = 0.1", "h = 0.2"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc, to see whether a process is there")
def test_processes_end_with_the_one_that_started_them():
    script = (
        "import os, signal, time\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from multiprocessing import get_context\n"
        "from principalflow._lab import processes\n"
        "if __name__ == '__main__':\n"
        "    pool = ProcessPoolExecutor(1, get_context('spawn'), processes._begin, (None,))\n"
        "    print(pool.submit(os.getpid).result(), flush=True)\n"
        "    pool.submit(time.sleep, 60)\n"
        "    time.sleep(0.5)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "killed.py"
        file.write_text(script)
        started = subprocess.run([sys.executable, file], capture_output=True, text=True)
    assert started.returncode == -signal.SIGKILL
    state = Path(f"/proc/{int(started.stdout)}/status")
    for _ in range(100):
        try:
            if "zombie" in state.read_text():
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.1)
    pytest.fail("the process is still there")


def test_an_interruption_that_a_solver_swallowed_ends_the_experiment():
    def run(config):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return {}

    item = experiment(run=run)
    with pytest.raises(KeyboardInterrupt):
        processes.attempt(item, item.profiles["quick"], "quick", None)
