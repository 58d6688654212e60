"""The command line, in this process; what it computes is tested with the modules that it calls."""

import json
import subprocess
import sys
import warnings

import pytest
from reproduce.cases import experiment, replace_catalogue

import principalflow as pf
from principalflow import cli


@pytest.fixture(autouse=True)
def as_it_was(monkeypatch):
    """The process keeps its own precision, cache and memory."""
    monkeypatch.setattr(cli, "_prepare", lambda precision: None)


def train(out, *arguments):
    command = ["train", "--data", "iris", "--hidden", "5", "--steps", "4", "--out", str(out), *arguments]
    return cli.main(command)


def test_train_writes_a_run_and_says_how_it_ended(tmp_path, capsys):
    assert train(tmp_path / "run", "--learning-rate", "0.1") == 0
    assert pf.runs.load(tmp_path / "run")["step"].tolist() == [0, 1, 2, 3, 4]
    assert "is completed: 4 steps" in capsys.readouterr().err


def test_several_values_make_a_sweep(tmp_path):
    assert train(tmp_path, "--learning-rate", "0.1", "0.2", "--seed", "0", "1") == 0
    assert len(pf.runs.find(tmp_path)) == 4


def test_the_command_line_overrides_the_config_file(tmp_path):
    (tmp_path / "run.toml").write_text("learning_rate = 0.1\nmomentum = 0.5\nsteps = 100\n")
    assert train(tmp_path / "run", "--config", str(tmp_path / "run.toml")) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["learning_rate"], config["momentum"], config["steps"]) == (0.1, 0.5, 4)


def test_the_last_of_several_config_files_counts(tmp_path):
    for steps in (100, 200):
        (tmp_path / f"{steps}.toml").write_text(f"learning_rate = 0.{steps}\n")
    assert train(tmp_path / "run", "--config", str(tmp_path / "100.toml"), f"--config={tmp_path / '200.toml'}") == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["learning_rate"] == 0.2


def test_a_factor_beyond_32_bits_trains(tmp_path):
    assert train(tmp_path / "run", "--optimizer", "dal", "--factor", str(2**31)) == 0


def test_a_diverged_run_is_told_by_the_exit_code(tmp_path):
    assert train(tmp_path / "run", "--learning-rate", "1e30", "--loss", "mean-square") == 1


def test_the_help_of_train_names_every_option(capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["train", "--help"])
    text = capsys.readouterr().out
    for option in (*pf.training.Options().config(), "out", "config"):
        assert f"--{option.replace('_', '-')} " in text


def test_a_report_compares_runs(tmp_path, capsys):
    train(tmp_path / "sweep", "--learning-rate", "0.1", "0.2")
    assert cli.main(["report", str(tmp_path / "sweep"), "--out", str(tmp_path / "report.html")]) == 0
    page = (tmp_path / "report.html").read_text()
    assert "learning_rate=0.1" in page
    assert "report.html" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_names_the_option(tmp_path, capsys):
    train(tmp_path / "run", "--learning-rate", "0.1")
    assert cli.main(["report", str(tmp_path / "run"), "--out", str(tmp_path)]) == 2
    assert "out must be that of a file to write, got the folder" in capsys.readouterr().err


def test_runs_of_the_same_name_are_told_apart(tmp_path):
    for folder in ("a", "b"):
        train(tmp_path / folder / "run", "--learning-rate", "0.1")
    names = cli._loaded((tmp_path / "a" / "run", tmp_path / "b" / "run"))
    assert list(names) == [str(tmp_path / "a" / "run"), str(tmp_path / "b" / "run")]


def test_export_writes_a_table(tmp_path):
    train(tmp_path / "run", "--learning-rate", "0.1")
    assert cli.main(["export", str(tmp_path / "run"), "--to", str(tmp_path / "metrics.csv")]) == 0
    assert (tmp_path / "metrics.csv").read_text().startswith("step,")


def test_data_without_a_name_lists_what_there_is(capsys):
    assert cli.main(["data"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in pf.data.names())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "no command 'trian'. Did you mean 'train'"),
        (["train"], "learning_rate must be given"),
        (["train", "--learning-rate", "0.1", "--model", "vgg"], "Did you mean 'vgg"),
        (["train", "--learning-rate", "0.1", "--data", "minst"], "Did you mean 'mnist'"),
        (["train", "--config", "nowhere.toml"], "config nowhere.toml can't be read"),
        (["train", "--config", "/dev/zero"], "config /dev/zero can't be read: it must be a file"),
        (["train", "--learning-rate", "0.1", "--data", "nosuch"], "data must be one of 'iris'"),
        (["train", "--learning-rate", "0.1", "--data", "nosuch.csv"], "data must be a file, and there is none at"),
        (["train", "--learning-rate", "0.1", "--image-size", "8"], "image_size is for a folder of images"),
        (["train", "--learning-rate", "0.1", "--seed", "1" + 30 * "0"], "seed must be a whole number of at most"),
        (["train", "--learning-rate", "0.1", "--warmup", "1" + 30 * "0"], "warmup must be a whole number of at most"),
        (["train", "--learning-rate", "0.1", "--hidden", "1" + 30 * "0"], "hidden must be a whole number of at most"),
        (["train", "--learning-rate", "0.1", "--width", str(2**63)], "width must be at most 1000000"),
        (["train", "--optimizer", "dal", "--warmup", "5"], "no learning_rate, schedule or warmup"),
        (["train", "--learning-rate", "0.1", "0.1"], "learning_rate must have some values, all different"),
        (["report"], "at least one run"),
        (["report", "nowhere"], "not a run directory"),
        (["data", "imagenet"], "must be one of"),
        (["reproduce", "bananna"], "Did you mean 'banana'?"),
    ],
)
def test_bad_input_is_named_and_told_by_the_exit_code(arguments, message, capsys):
    assert cli.main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_the_commands(arguments, capsys):
    assert cli.main(arguments) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("train", "report", "export", "data"))


def test_the_version_is_told(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == pf.__version__


@pytest.fixture
def counting(monkeypatch):
    item = experiment()
    replace_catalogue(monkeypatch, item)
    return item


def test_reproduce_prints_its_claims_and_where_the_report_is(counting, tmp_path, capsys):
    assert cli.main(["reproduce", "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "counting           quick  held               2 < 10        The largest number is below 10" in printed
    assert "NOT HELD" in printed
    assert f"the report in {tmp_path / 'report.html'}" in printed
    assert "Counting" in (tmp_path / "report.html").read_text()


def test_a_failed_experiment_is_told_by_the_exit_code(counting, tmp_path):
    counting.run.fails = True
    assert cli.main(["reproduce", "--out", str(tmp_path)]) == 1


def test_cleaning_runs_nothing_and_says_what_it_did(counting, tmp_path, capsys):
    assert cli.main(["reproduce", "--clean", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().err == "Nothing is outdated.\n"
    assert counting.run.runs == 0


def test_the_experiments_can_be_listed(capsys):
    assert cli.main(["reproduce", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(pf.reproduce.EXPERIMENTS)


def test_a_reader_that_has_enough_is_no_error():
    shell = f"{sys.executable} -m principalflow.cli reproduce --list | head -1"
    ended = subprocess.run(shell, shell=True, capture_output=True, text=True, check=True)
    assert ended.stdout.startswith("motivation")
    assert ended.stderr == ""


def test_a_warning_is_a_sentence_without_a_line_of_source(capsys):
    with warnings.catch_warnings(), cli._plain_warnings("train"):
        warnings.simplefilter("always")
        warnings.showwarning = lambda *warning: sys.stderr.write(warnings.formatwarning(*warning))
        warnings.warn("The run was damaged.", pf.runs.RunWarning, stacklevel=1)
    assert capsys.readouterr().err == "principalflow train: The run was damaged.\n"
