import json

import jax
import pytest
from reproduce.cases import Config, experiment, replace_catalogue

from principalflow import reproduce


@pytest.fixture
def counting(monkeypatch):
    counting, other = experiment("counting"), experiment("other")
    replace_catalogue(monkeypatch, counting, other)
    return counting


def run_all(out, ids=("counting",), **options):
    said = []
    results = reproduce.run_all(ids, "quick", out, say=said.append, **options)
    return results, " ".join(said)


def test_an_unknown_id_is_refused_with_a_guess():
    with pytest.raises(ValueError, match=r"id must be an experiment's, got 'bananas'. Did you mean 'banana'\?"):
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

    replace_catalogue(monkeypatch, experiment("inkless", draw=draw))
    (result,), _ = run_all(tmp_path, ["inkless"])
    assert "out of ink" in result.error
    assert "table" in result.tables


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
    assert "Left out of the report, since what is saved was made by principalflow 0.0.1" in said


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
