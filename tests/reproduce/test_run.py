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

import jax
import pytest
from matplotlib.figure import Figure
from reproduce.cases import TRAINING, Config, experiment

from principalflow import _steps, reproduce
from principalflow.reproduce import _dal, _run
from principalflow.reproduce._sweeps import Sweep
from principalflow.reproduce._trained import trained
from principalflow.training import Options


@pytest.fixture
def counting(monkeypatch):
    items = {name: experiment(name) for name in ("counting", "other")}
    monkeypatch.setattr(_run, "EXPERIMENTS", items)
    return items["counting"]


def run_all(out, ids=("counting",), **options):
    said = []
    results = reproduce.run_all(ids, "quick", out, say=said.append, **options)
    return results, " ".join(said)


def test_an_unknown_id_lists_the_valid_ones_with_a_guess():
    with pytest.raises(ValueError, match=r"id must be one of .*'banana'.* got 'bananas'. Did you mean 'banana'\?"):
        reproduce.run("bananas")


def test_an_unknown_profile_is_refused():
    with pytest.raises(ValueError, match="profile must be one of 'quick', 'cpu', 'paper', got 'quik'"):
        reproduce.run("banana", profile="quik")


def test_nothing_runs_before_all_ids_are_known(counting, tmp_path):
    with pytest.raises(ValueError, match="nothing"):
        run_all(tmp_path, ["counting", "nothing"])
    assert counting.run.runs == 0


def test_a_seed_replaces_that_of_the_settings(counting):
    assert reproduce.run("counting", seed=7).config == Config(seed=7)


def test_a_negative_seed_is_refused(counting):
    with pytest.raises(ValueError, match="seed must be a whole number of at least 0, got -1"):
        reproduce.run("counting", seed=-1)


def test_it_computes_in_double_precision_whatever_the_switch(counting):
    with jax.enable_x64(False):
        result = reproduce.run("counting")
    assert abs(result.tables["table"]["third"][0] - 1 / 3) < 1e-15


def test_without_a_folder_nothing_is_kept(counting):
    assert reproduce.run("counting").folder is None
    reproduce.run("counting")
    assert counting.run.runs == 2


def test_what_is_there_is_not_run_again(counting, tmp_path):
    for _ in range(2):
        reproduce.run("counting", out=tmp_path)
    _, said = run_all(tmp_path)
    assert counting.run.runs == 1
    assert "there already; 2 of 3 claims held" in said


def test_what_is_there_is_run_again_when_asked_for(counting, tmp_path):
    run_all(tmp_path)
    run_all(tmp_path, again=True)
    assert counting.run.runs == 2


def test_a_result_of_other_settings_is_not_taken_and_said(counting, tmp_path):
    run_all(tmp_path)
    _, said = run_all(tmp_path, seed=3)
    assert counting.run.runs == 2
    assert "what is saved has other settings, so it runs again" in said


def test_a_failure_stops_no_other_and_is_kept(counting, tmp_path):
    counting.run.fails = True
    (failed, other), said = run_all(tmp_path, ["counting", "other"])
    assert "the reactor is on fire" in failed.error
    assert not other.error
    assert "counting: 0.0 s; FAILED: RuntimeError: the reactor is on fire" in said


def test_a_failure_is_not_taken_for_a_result(counting, tmp_path):
    counting.run.fails = True
    run_all(tmp_path)
    counting.run.fails = False
    (result,), _ = run_all(tmp_path)
    assert not result.error


def test_a_figure_that_cannot_be_drawn_is_a_failure_that_keeps_the_tables(monkeypatch, tmp_path):
    def draw(config, tables):
        raise RuntimeError("out of ink")

    monkeypatch.setattr(_run, "EXPERIMENTS", {"inkless": experiment("inkless", draw=draw)})
    (result,), _ = run_all(tmp_path, ["inkless"])
    assert "out of ink" in result.error
    assert "table" in result.tables


def test_two_processes_give_what_one_gives(tmp_path):
    ids = ["coefficients", "z-square"]
    apart, _ = run_all(tmp_path, ids, jobs=2)
    assert [result.experiment.id for result in apart] == ids
    assert list(apart[0].claims) == list(reproduce.run("coefficients").claims)


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

    monkeypatch.setattr(_run, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(_run, "wait", interrupted)
    trainings = [Sweep(dataclasses.replace(TRAINING, learning_rate=h)) for h in (0.1, 0.2, 0.3)]
    with pytest.raises(KeyboardInterrupt):
        list(_run._in_processes([], trainings, "quick", tmp_path, 2, None, said.append))
    assert begun == trainings[:2]
    assert said == ["Stopping at the next checkpoint."]


def test_a_killed_process_takes_no_other_experiment_with_it(tmp_path):
    prepare = functools.partial(_die_once, tmp_path / "dead")
    results = reproduce.run_all(["coefficients", "z-square"], "quick", tmp_path, jobs=2, prepare=prepare)
    assert (tmp_path / "dead").exists()
    assert [result.error for result in results] == ["", ""]


def test_a_killed_process_takes_no_experiment_with_it_that_waits_for_a_training(tmp_path):
    item = reproduce.EXPERIMENTS["projection-prediction"]
    trains = item, dataclasses.replace(item.profiles["quick"], networks=(TRAINING,))
    other = reproduce.EXPERIMENTS["coefficients"]
    waiting = [trains, (other, other.profiles["quick"])]
    prepare = functools.partial(_die_once, tmp_path / "dead")
    results = _run._results(waiting, "quick", tmp_path, 2, prepare, lambda sentence: None)
    assert {result.experiment.id: result.error for result in results} == {
        "projection-prediction": "",
        "coefficients": "",
    }


@pytest.mark.parametrize("name", ["NPROC", "OPENBLAS_NUM_THREADS"])
def test_experiments_that_run_together_share_the_cores(name, tmp_path, monkeypatch):
    monkeypatch.delenv(name, raising=False)
    prepare = functools.partial(_note_threads, tmp_path / "threads", name)
    run_all(tmp_path, ["coefficients", "z-square"], jobs=2, prepare=prepare)
    assert (tmp_path / "threads").read_text() == str(max(1, os.cpu_count() // 2))
    assert name not in os.environ


def _die_once(marker):
    if not marker.exists():
        marker.touch()
        os._exit(1)


def _note_threads(file, name):
    file.write_text(os.environ[name])


def test_a_training_that_was_made_is_taken_by_those_that_ask_for_it(tmp_path, monkeypatch):
    _run._train(Sweep(TRAINING), "quick", tmp_path)
    trained.cache_clear()
    monkeypatch.setattr(_steps, "advance", None)
    item = experiment("trained", run=lambda config: {"table": trained(TRAINING).records}, claims=lambda *_: [])
    item = dataclasses.replace(item, draw=lambda *_: Figure())
    monkeypatch.setattr(_run, "EXPERIMENTS", {"trained": item})
    assert len(reproduce.run("trained", out=tmp_path, again=True).tables["table"]) == 5


def test_trainings_of_one_experiment_are_made_side_by_side_and_told(tmp_path):
    networks = tuple(dataclasses.replace(TRAINING, learning_rate=h) for h in (0.1, 0.2))
    item, said = reproduce.EXPERIMENTS["projection-prediction"], []
    config = dataclasses.replace(item.profiles["quick"], networks=networks)
    (result,) = _run._results([(item, config)], "quick", tmp_path, 2, None, said.append)
    assert result.error == ""
    assert sorted(sentence.split(": ")[0] for sentence in said) == ["mlp on digits, full batch"] * 2


def test_a_sweep_that_was_made_is_taken_by_those_that_ask_for_it(tmp_path, monkeypatch):
    options = Options(data="iris", hidden=(3,), learning_rate=(0.1, 0.2), steps=2, record_every=0, seed=(0,))
    sweep = Sweep(options)
    _run._train(pickle.loads(pickle.dumps(sweep)), "quick", tmp_path)  # as in another process
    monkeypatch.setattr(_steps, "advance", None)
    waiting = [(reproduce.EXPERIMENTS["dal-per-parameter"], _dal.Config((sweep,)))]
    assert _run._trainings(2 * waiting) == [sweep]
    (result,) = _run._results(waiting, "quick", tmp_path, 2, None, lambda sentence: None)
    assert result.error == ""
    assert result.tables["contenders"]["contender"].tolist() == ["h = 0.1", "h = 0.2"]


def test_an_experiment_named_twice_runs_once(counting, tmp_path):
    run_all(tmp_path, ["counting", "counting"])
    assert counting.run.runs == 1


def test_a_single_experiment_raises_its_error(counting):
    counting.run.fails = True
    with pytest.raises(RuntimeError, match="on fire"):
        reproduce.run("counting")


def test_claims_are_listed_for_programs(counting, tmp_path):
    run_all(tmp_path, ["counting", "other"])
    listed = json.loads((tmp_path / "claims.json").read_text())
    assert [row["experiment"] for row in listed] == ["counting"] * 3 + ["other"] * 3
    first, infinite = listed[0], listed[2]
    assert set(first) == {"experiment", "claim", "measured", "bound", "held", "note", "profile", "seconds"}
    assert (first["measured"], first["bound"], first["held"], first["profile"]) == (2.0, "< 10", True, "quick")
    assert (infinite["measured"], infinite["held"]) == ("inf", True)


def test_results_that_were_there_stay_in_the_list(counting, tmp_path):
    run_all(tmp_path, ["other"])
    results, _ = run_all(tmp_path, ["counting"])
    assert [result.experiment.id for result in results] == ["counting", "other"]


def test_a_result_of_other_code_is_left_out_and_said(counting, tmp_path):
    run_all(tmp_path, ["other"])
    file = tmp_path / "quick" / "other" / "result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": "0.0.1"}))
    results, said = run_all(tmp_path, ["counting"])
    assert [result.experiment.id for result in results] == ["counting"]
    assert "Left out of the report, since what is saved was made by another version" in said


def test_redrawing_runs_nothing(counting, tmp_path):
    run_all(tmp_path)
    figure = tmp_path / "quick" / "counting" / "figure.png"
    figure.unlink()
    run_all(tmp_path, redraw=True)
    assert figure.exists()
    assert counting.run.runs == 1


def test_redrawing_without_names_draws_what_is_there(counting, tmp_path):
    run_all(tmp_path)
    _, said = run_all(tmp_path, (), redraw=True)
    assert "counting: drawn again" in said
    assert "other" not in said


def test_a_seed_that_makes_no_difference_is_said(tmp_path):
    _, said = run_all(tmp_path, ["coefficients"], seed=3)
    assert "The seed makes no difference to coefficients." in said


def test_redrawing_needs_something_to_draw(counting, tmp_path):
    with pytest.raises(ValueError, match=r"redraw needs a finished counting in .*: there is none"):
        run_all(tmp_path, redraw=True)


def test_a_file_in_place_of_the_folder_is_refused_before_anything_runs(counting, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="out must be a folder that can be written to"):
        run_all(tmp_path / "file")
    assert counting.run.runs == 0


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc, to see whether a process is there")
def test_processes_end_with_the_one_that_started_them():
    script = (
        "import os, signal, time\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from multiprocessing import get_context\n"
        "from principalflow.reproduce import _run\n"
        "if __name__ == '__main__':\n"
        "    pool = ProcessPoolExecutor(1, get_context('spawn'), _run._begin, (None,))\n"
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
