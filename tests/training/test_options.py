"""Options: sweeps, config files, and what is refused."""

import json
import os

import numpy as np
import pytest
from cases import REAL_OPTIONS, WHOLE_OPTIONS, WORD_OPTIONS

from principalflow import _checks
from principalflow.training import Options
from principalflow.training._problem import problem
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


def test_numbers_of_numpy_name_the_same_run_as_pythons():
    options = Options(learning_rate=np.float64(0.1), tolerance=np.float64(0.1))
    options.check()
    assert options.config() == Options(learning_rate=0.1, tolerance=0.1).config()


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
        ("", "must hold keys and values, got none"),
        ("steps = 1\nsteps = 2", "can't be read: Cannot overwrite a value"),
        ("seed = " + "9" * 5000, "can't be read: Exceeds the limit"),
        ("learning_rate = " + 100_000 * "[", "can't be read: it is nested too deeply"),
        ("# " + 2**20 * "x", "can't be read: it must have at most 1048576 bytes, got 1048578"),
        ("[options]\nsteps = 1", "unknown key 'options'. Did you mean"),
        ("steps = 'many'", "steps must be int, got 'many'"),
        ("precision = 'float16'", "precision must be one of"),
        ("hidden = [3, [4]]", r"hidden must be tuple\[int"),
    ],
    ids=range(13),
)
def test_bad_config_files_are_refused(tmp_path, text, message):
    path = tmp_path / "run.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=f"^config .*run.toml.*{message}"):
        Options.from_file(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "can't be read: Expecting value"),
        ("null", "can't be read: it must be a JSON object, got a NoneType"),
        ("[1, 2]", "can't be read: it must be a JSON object, got a list"),
        ("{}", "must hold keys and values, got none"),
        ('{"steps": 1, "steps": 2}', "can't be read: it has the key 'steps' twice"),
        ('{"learning_rate": ' + 100_000 * "[" + 100_000 * "]" + "}", "can't be read: it is nested too deeply"),
        ('{"learning_rate": ' + 900 * "[" + 900 * "]" + "}", "learning_rate must be float .* characters"),
        ('{"seed": null}', "seed must be int"),
    ],
    ids=range(8),
)
def test_bad_configs_of_runs_are_refused(tmp_path, text, message):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"^config .*config.json.*{message}"):
        Options.from_file(path)


def test_a_config_that_is_no_regular_file_is_refused_unread(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "folder.toml").mkdir()
    (tmp_path / "device.toml").symlink_to("/dev/zero")
    for name, kind in (("pipe", "a pipe or a device"), ("folder", "a folder"), ("device", "a pipe or a device")):
        with pytest.raises(
            ValueError, match=f"^config .*{name}.toml can't be read: it must be a file.*, which is {kind}"
        ):
            Options.from_file(tmp_path / f"{name}.toml")


def test_a_config_that_is_not_utf_8_is_refused(tmp_path):
    (tmp_path / "run.toml").write_bytes(b"steps = 1 # \xff")
    with pytest.raises(ValueError, match=r"^config .*run.toml can't be read: 'utf-8' codec can't decode byte 0xff"):
        Options.from_file(tmp_path / "run.toml")


@pytest.mark.parametrize("path", [None, 5, b"run.toml", "", "a\0b", ["run.toml"]])
def test_what_is_no_path_of_a_config_is_named(path):
    with pytest.raises(ValueError, match=r"^config must be the path of a file"):
        Options.from_file(path)


def test_the_path_of_a_config_may_be_a_string(tmp_path):
    (tmp_path / "run.toml").write_text("steps = 5")
    assert Options.from_file(str(tmp_path / "run.toml")).steps == 5


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
        (dict(learning_rate=0.1, batch_size=5), "^batch_size must be None for gd, .* got 5"),
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
        (dict(learning_rate=0.1, beta1=0.5), "beta1 is an option that gd doesn't have"),
        (dict(learning_rate=0.1, beta1=0.5, optimizer="rmsprop"), "beta1 is an option that rmsprop doesn't have"),
        (dict(beta2=0.5, optimizer="dog"), "beta2 is an option that dog doesn't have"),
        (dict(eps=1e-6, optimizer="dal"), "eps is an option that dal doesn't have"),
        (dict(learning_rate=0.1, weight_decay=0.1, optimizer="adam"), "weight_decay is an option that adam doesn't"),
        (dict(learning_rate=0.1, beta2=1, optimizer="adam"), "beta2 must be a number of at least 0 and below 1"),
        (dict(learning_rate=0.1, eps=0, optimizer="adam"), "eps must be a finite number above 0"),
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
        (dict(learning_rate=0.1, seed=(1, 1)), "seed must have some values, all different"),
        (dict(optimizer="dal", power=()), "power must have some values, all different"),
        (dict(optimizer="dal", warmup=5), "dal computes its rate: it takes .* no learning_rate, schedule or warmup"),
        (dict(learning_rate=1e-40), "learning_rate must be from 1.2e-38 to 3.4e[+]38 in float32, got 1e-40"),
        (dict(learning_rate=1e39), "learning_rate must be from 1.2e-38 to 3.4e[+]38 in float32, got 1e[+]39"),
        (dict(optimizer="dal", factor=1e300), "factor must be from"),
        (dict(optimizer="dal", max_learning_rate=1e-300), "max_learning_rate must be from"),
        (dict(optimizer="dal", power=1e39), "power must be from"),
        (dict(learning_rate=0.1, tolerance=1), "tolerance must be a number above 0 and below 1, got 1.0"),
        (dict(learning_rate=0.1, data="a\0b"), "data must be the path of a file or folder"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        Options(**options).check()


OF_DAL = ("power", "factor", "max_learning_rate", "per_parameter", "curvature", "curvature_every", "average")


def test_every_option_is_among_those_given_hostile_values():
    assert {*WHOLE_OPTIONS, *REAL_OPTIONS, *WORD_OPTIONS, "per_parameter"} == {*Options().config()}


def of(names, *values):
    return [(name, value) for name in names for value in values]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *of(WHOLE_OPTIONS, -1, 2**32, 10**30, 10**5000, 1.5, float("nan"), True, "5", [1, [2]], {}, b"5"),
        *of(REAL_OPTIONS, -1, float("nan"), float("inf"), 10**400, 10**5000, 1e308, True, "1", [0.1, [0.2]], {}, 1j),
        *of(WORD_OPTIONS, 5, True, [], {}, 10**5000),
        *of(["per_parameter"], 0, 1, "no", None, []),
        *of([*REAL_OPTIONS, *WHOLE_OPTIONS], np.ones(2)),
    ],
    ids=_checks.shown,
)
def test_an_option_that_cannot_work_is_named_in_short(name, value):
    options = dict(optimizer="dal") if name in OF_DAL else dict(learning_rate=0.1)
    options |= dict(optimizer="adamw") if name in ("beta1", "beta2", "eps", "weight_decay") else {}
    options |= dict(model="resnet18") if name in ("normalization", "pooling", "stem") else {}
    value = [value] if name == "hidden" else value
    with pytest.raises(ValueError, match=rf"^{name} must be ") as caught:
        Options(**{**options, name: value}).check()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["factor", "max_learning_rate", "gain", "learning_rate"])
def test_whole_numbers_beyond_32_bits_are_taken_as_floats(name):
    options = Options(**{name: 2**31})
    assert getattr(options, name) == 2.0**31
    assert isinstance(getattr(options, name), float)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(data="nosuch"), "^data must be one of 'iris', .* got 'nosuch'"),
        (dict(data="nosuch.csv"), "^data must be a file, and there is none at 'nosuch.csv'"),
        (dict(image_size=8), "^image_size is for a folder of images, got 8 for 'iris'"),
        (dict(label="kind"), "^label is for a .csv file"),
        (dict(samples=121), "^samples must be at most 120"),
        (dict(test_samples=31), "^test_samples must be at most 30"),
        (
            dict(model="vgg11"),
            "^model must be mlp for iris, whose samples aren't images .height, width, channels., got vgg11",
        ),
        (dict(width=2.0**63), "^width must be at most 1000000"),
        (dict(gain=1e35), "^gain must be between"),
        (dict(hidden=(2**31 - 1, 2**31 - 1)), r"^hidden=\(2147483647, 2147483647\), .* GiB of memory"),
        (dict(optimizer="sgd", batch_size=121), "^batch_size must be at most the 120 samples"),
    ],
)
def test_what_data_and_network_do_not_take_is_named_as_the_option(options, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        problem(Options(**{"data": "iris", "learning_rate": 0.1, **options}), None)


def test_directions_beyond_memory_are_refused(monkeypatch):
    monkeypatch.setattr(_checks, "_available_memory", lambda: 2**28)
    options = Options(data="iris", learning_rate=0.1, hidden=(100, 100), directions=2**31 - 1)
    with pytest.raises(ValueError, match=r"^directions asks for 92716 vectors of 10903 numbers, which take"):
        problem(options, None)


def test_a_network_that_fits_but_can_not_be_trained_is_refused(monkeypatch):
    monkeypatch.setattr(_checks, "_SMALL_ALLOCATION", 0)
    parameters = 4 * (4 * 100 + 100 + 100 * 3 + 3)  # in single precision
    monkeypatch.setattr(_checks, "_available_memory", lambda: 2 * parameters)
    options = Options(data="iris", learning_rate=0.1, hidden=(100,))
    with pytest.raises(ValueError, match=r"^model asks for a gradient, an update and a Hessian product of 803 param"):
        problem(options, None)


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
