"""Options: sweeps, config files, and what is refused."""

import json

import numpy as np
import pytest

from principalflow.training import Options
from principalflow.training._schedule import rates


def test_lists_make_a_sweep_of_all_combinations():
    options = Options(learning_rate=(0.1, 0.2), seed=(0, 1))
    runs = options.runs()
    assert list(runs) == [
        "learning_rate=0.1,seed=0",
        "learning_rate=0.1,seed=1",
        "learning_rate=0.2,seed=0",
        "learning_rate=0.2,seed=1",
    ]
    assert runs["learning_rate=0.2,seed=1"] == Options(learning_rate=0.2, seed=1)


def test_whole_numbers_name_the_same_run_as_others():
    assert list(Options(learning_rate=(1, 0.5)).runs()) == list(Options(learning_rate=(1.0, 0.5)).runs())


def test_a_single_run_has_no_name():
    assert list(Options(learning_rate=0.1).runs()) == [""]


def test_a_config_file_gives_options(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text('model = "vgg11"\nlearning_rate = [0.1, 0.2]\nhidden = [5]\n')
    assert Options.from_file(path) == Options(model="vgg11", learning_rate=(0.1, 0.2), hidden=(5,))


def test_the_config_of_a_run_gives_its_options(tmp_path):
    options = Options(optimizer="dal", power=0.5, batch_size=64, hidden=(7, 8))
    (tmp_path / "config.json").write_text(json.dumps(options.config()))
    assert Options.from_file(tmp_path / "config.json") == options


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("learning_rat = 0.1", "unknown key 'learning_rat'. Did you mean 'learning_rate'"),
        ("learning_rate == 0.1", "can't be read"),
        ("5", "can't be read"),
        (None, "can't be read: No such file"),
    ],
)
def test_bad_config_files_are_refused(tmp_path, text, message):
    path = tmp_path / "run.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=message):
        Options.from_file(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(), "learning_rate must be given for gd"),
        (dict(learning_rate=-0.1), "learning_rate must be a finite number above 0"),
        (dict(learning_rate=(0.1, 0.1)), "all different"),
        (dict(learning_rate=()), "must have some"),
        (dict(learning_rate=0.1, power=0.5), "power is an option that is of dal alone"),
        (dict(learning_rate=0.1, normalization="group"), "normalization is an option that a model 'mlp' doesn't have"),
        (dict(learning_rate=0.1, hidden=(3,), model="vgg11"), "hidden is an option that a model 'vgg11' doesn't have"),
        (dict(learning_rate=0.1, pooling="mox"), "Did you mean 'max'"),
        (dict(learning_rate=0.1, hidden=5), r"hidden must be tuple\[int"),
        (dict(learning_rate=0.1, schedule=5), "schedule must be str"),
        (dict(learning_rate=0.1, per_parameter="no"), "per_parameter must be bool"),
        (dict(learning_rate=0.1, seed=((1,),)), "seed must be int"),
        (dict(learning_rate=0.1, batch_size=5), "batch_size is for the others"),
        (dict(learning_rate=0.1, optimizer="sgd"), "batch_size must be given for sgd"),
        (dict(learning_rate=0.1, optimizer="dal"), "dal computes its rate"),
        (dict(learning_rate=0.1, optimizer="adm"), "optimizer must be one of 'gd', .* Did you mean 'adam'"),
        (dict(optimizer="adam"), "learning_rate must be given for adam"),
        (dict(learning_rate=0.1, optimizer="prodigy"), "prodigy computes its rate: it takes no learning_rate"),
        (dict(schedule="cosine", optimizer="dog"), "dog computes its rate"),
        (dict(learning_rate=0.1, momentum=0.9, optimizer="adam"), "momentum is an option that adam doesn't have"),
        (dict(momentum=0.9, optimizer="prodigy"), "momentum is an option that prodigy doesn't have"),
        (dict(momentum=0.9, optimizer="dog"), "momentum is an option that dog doesn't have"),
        (dict(learning_rate=0.1, power=0.5, optimizer="adam"), "power is an option that is of dal alone"),
        (dict(learning_rate=0.1, stem="small"), "stem is an option that a model 'mlp' doesn't have"),
        (dict(learning_rate=0.1, stem="smal", model="resnet18"), "Did you mean 'small'"),
        (dict(learning_rate=0.1, model="mpl"), "Did you mean 'mlp'"),
        (dict(learning_rate=0.1, steps="many"), "steps must be int"),
        (dict(learning_rate=0.1, steps=1.5), "steps must be int"),
        (dict(learning_rate=0.1, momentum=1), "momentum must be"),
        (dict(learning_rate=0.1, seed=-1), "seed must be"),
        (dict(learning_rate=0.1, hidden=(3, 0)), "hidden must be"),
        (dict(learning_rate=0.1, precision="float16"), "precision must be one of"),
        (dict(learning_rate=0.1, schedule="cosin"), "Did you mean 'cosine'"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Options(**options).check()


@pytest.mark.parametrize("options", [dict(optimizer="adam", learning_rate=0.1), dict(optimizer="prodigy")])
@pytest.mark.parametrize("batch_size", [None, 5])
def test_what_is_compared_with_takes_batches_or_all_samples(options, batch_size):
    Options(batch_size=batch_size, **options).check()


def test_schedules_start_at_the_rate_and_end_at_zero():
    for schedule in ("linear", "cosine"):
        rate = rates(0.5, schedule, warmup=0, steps=10)
        assert (rate[0], rate[5], rate[10]) == pytest.approx((0.5, 0.25, 0.0))
    np.testing.assert_array_equal(rates(0.5, "constant", 0, 3), 0.5)


def test_rates_change_at_the_steps_that_are_named():
    np.testing.assert_array_equal(rates(0.5, "2:0.1,4:0.2", 0, 5), [0.5, 0.5, 0.1, 0.1, 0.2, 0.2])


def test_a_warmup_rises_linearly_and_then_leaves_the_schedule_alone():
    np.testing.assert_allclose(rates(1.0, "constant", 3, 5), [0.25, 0.5, 0.75, 1, 1, 1])


@pytest.mark.parametrize("schedule", ["4:0.1,2:0.2", "2:0.1,2:0.2", "2:-0.1", "2", "-1:0.1"])
def test_bad_schedules_are_refused(schedule):
    with pytest.raises(ValueError, match="schedule must"):
        rates(0.1, schedule, 0, 10)
