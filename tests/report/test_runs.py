"""What the page says and holds."""

import json
import os
import re
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from principalflow import report
from principalflow.report import _plots, _summary
from principalflow.report._points import points, thin
from principalflow.report._run import read


@pytest.fixture
def page(tmp_path):
    def written(runs, title=None):
        return report.write(runs, tmp_path / "report.html", title=title).read_text(encoding="utf-8")

    return written


def embedded(page):
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)[1])


def words(frame):
    return " ".join(_summary.sentences(read("run", frame)))


def without_records(frame):
    return frame[["step", "loss"]]


def test_the_summary_tells_status_steps_loss_sharpness_and_rises(frame):
    assert words(frame) == (
        "The run completed 9 steps. "
        "The run has 10 rows, from step 0 to step 9, and 5 measurements of the curvature, from step 0 to step 8. "
        "The loss fell from 2 at step 0 to 0.7 at step 9; its smallest value was 0.5, at step 7. "
        "3 of 9 steps raised the loss. "
        "λ₀ first passed 2/h at step 4: 44 against 40. It was above 2/h in 2 of 5 measurements (40%). "
        "A step of plain gradient descent raises the loss at 2 of 5 measurements; λ₀ was above 2/h at 1 of these."
    )


def test_one_row_is_told_in_the_singular(frame):
    assert words(frame[:1]) == (
        "The run completed 9 steps. "
        "The run has 1 row, at step 0, and 1 measurement of the curvature, at step 0. The loss was 2. "
        "λ₀ was above 2/h in none of 1 measurement; the largest h λ₀ was 0.5, at step 0. "
        "A step of plain gradient descent raises the loss at none of 1 measurement."
    )


def test_rises_are_counted_between_rows_one_step_apart(frame):
    assert "2 of 7 steps raised the loss" in words(without_records(frame).drop(index=4))


def test_a_loss_that_stops_being_finite_has_risen_once(frame):
    loss = frame["loss"].where(frame["step"] < 7, np.nan)
    assert "2 of 7 steps raised the loss" in words(without_records(frame).assign(loss=loss))


def test_losses_of_different_batches_neither_rise_nor_fall(frame):
    assert "raised the loss" not in words(without_records(frame).rename(columns={"loss": "batch_loss"}))


def test_a_changing_rate_moves_the_threshold(frame):
    halved = frame.assign(learning_rate=np.where(frame["step"] < 5, 0.05, 0.01))
    assert "It was above 2/h in 1 of 5 measurements (20%)" in words(halved)


def test_a_rate_of_zero_has_no_threshold(frame):
    assert "2/h" not in words(frame.assign(learning_rate=0.0))


@pytest.mark.parametrize(
    ("status", "message", "sentence"),
    [
        ("running", "", "The run is still going."),
        ("diverged", "diverged: step 3 left the finite numbers", "The run diverged: step 3 left the finite numbers."),
        ("interrupted", "interrupted at step 4 of 9", "The run was interrupted at step 4 of 9."),
        ("", "", "The run has 10 rows"),
    ],
)
def test_the_status_is_told_once(frame, status, message, sentence):
    frame.attrs |= {"status": status, "message": message}
    assert words(frame).startswith(sentence)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_diverged_end_is_said_in_words_and_is_null_in_the_data(frame, page, bad):
    diverged = frame.assign(loss=frame["loss"].where(frame["step"] < 8, bad))
    text = page({"run": diverged})
    assert "At step 8 the loss was no longer a finite number." in text
    assert "from 2 at step 0 to 0.5 at step 7" in text
    assert embedded(text)["plots"][0]["views"][0]["lines"][0]["y"][-3:] == [0.5, None, None]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_run_without_any_finite_loss_gives_a_page(frame, page, bad):
    assert "No loss is a finite number." in page({"run": without_records(frame).assign(loss=bad)})


def test_the_comparison_holds_options_that_differ_and_how_runs_ended(frame):
    other = without_records(frame).assign(loss=[*frame["loss"][:9], np.nan])
    other.attrs = {"config": {"rate": 0.1, "network": {"width": 32}}, "status": "diverged"}
    head, rows = _summary.comparison([read("a", frame), read("b", other)])
    assert head == ["run", "rate", "final loss", "smallest loss", "largest h λ₀", "status"]
    assert rows == [
        ["a", "0.05", "0.7", "0.5", "2.2", "completed"],
        ["b", "0.1", "not finite", "0.5", "none", "diverged"],
    ]


def test_runs_with_different_momentum_are_compared_by_their_own_thresholds(frame):
    runs = [read("a", frame), read("m", frame.assign(threshold=3.8 / 0.05))]
    sharpness = _plots.draw(runs)[1]
    relative = sharpness["views"][0]
    head, rows = _summary.comparison(runs)
    assert (relative["label"], relative["axis"], relative["level"]) == ("λ₀ / threshold", "λ / threshold", 1)
    assert [max(line["y"]) for line in relative["lines"]] == [1.1, 0.578947]
    assert "Above the dashed line, a run's own threshold for λ (2/h or 3.8/h with learning rate h)" in sharpness["text"]
    assert (head[-2], [row[-2] for row in rows]) == ("largest λ₀ / threshold", ["1.1", "0.5789"])


def test_momentum_that_runs_share_makes_sharpness_a_share_of_the_threshold(frame):
    runs = [read(name, frame.assign(threshold=3.8 / 0.05)) for name in "ab"]
    sharpness = _plots.draw([*runs, read("c", without_records(frame))])[1]
    assert (sharpness["views"][0]["label"], sharpness["views"][0]["level"]) == ("λ₀ / threshold", 1)
    assert "λ = 3.8/h with learning rate h (2/h for plain descent)" in sharpness["text"]


def test_what_was_measured_once_is_told_in_a_table_and_not_drawn(frame):
    once = frame.assign(**{name: frame[name].where(frame["step"] == 0) for name in frame.columns[3:-2]})
    plots = _plots.draw([read("run", once)])
    assert [plot["id"] for plot in _plots.curves(plots)] == ["loss", "rate", "others"]
    assert _plots.dots(plots)[:3] == [
        ("eigenvalue λ", "0", "λ₀: 10; λ₁: 5"),
        ("h λ", "0", "h λ₀: 0.5; h λ₁: 0.25"),
        ("Re sc", "0", "Re sc₀: -1; Re sc₁: -1"),
    ]


def test_a_run_of_one_row_gives_a_page_without_plots(frame, page):
    text = page({"run": frame[:1]})
    assert "Measured once" in text
    assert "<figure" not in text
    assert "Plotly.react" not in text


def test_a_run_without_rows_is_left_out_and_named(frame, page):
    text = page({"a": frame, "not begun": pd.DataFrame()})
    assert "<title>Training run a</title>" in text
    assert "Left out, having no rows: not begun." in text


@pytest.mark.parametrize(("count", "table_first"), [(3, False), (4, True)])
def test_the_table_comes_before_the_words_of_many_runs(frame, page, count, table_first):
    text = page({f"run {i}": frame for i in range(count)})
    assert (text.index("Side by side") < text.index("The run completed")) == table_first
    assert text.count("The run completed") == count


def test_the_mark_of_events_is_explained_where_there_are_events(frame, page):
    assert "▾ marks an event" in page({"run": frame})
    assert "▾ marks an event" not in page({"run": frame.drop(columns="events")})


def test_every_recorded_quantity_has_its_plot(frame):
    frame = frame.assign(test_accuracy=0.5)
    plots = [plot["id"] for plot in _plots.draw([read("run", frame)])]
    assert plots == ["loss", "sharpness", "coefficients", "loss-change", "drift", "rate", "accuracy", "others"]


def test_a_run_without_records_shows_loss_and_rate(frame):
    plots = _plots.draw([read("run", frame[["step", "loss", "learning_rate"]])])
    assert [plot["id"] for plot in plots] == ["loss", "rate"]


def test_unknown_numbers_are_offered_as_views_of_one_plot(frame):
    others = _plots.draw([read("run", frame)])[-1]
    assert [view["label"] for view in others["views"]] == ["products", "seconds"]


def test_the_threshold_is_drawn_with_the_eigenvalues_and_two_with_the_scaled(frame):
    plain, scaled = _plots.draw([read("run", frame)])[1]["views"]
    assert [line["name"] for line in plain["lines"]] == ["λ₀", "λ₁", "2/h"]
    assert set(plain["lines"][-1]["y"]) == {40}
    assert scaled["lines"][0]["y"] == [0.5, 1.5, 2.2, 2.1, 1.8]
    assert scaled["level"] == 2


def configured(frame, **options):
    """The frame of a run with these options."""
    frame = frame.copy()
    frame.attrs = frame.attrs | {"config": options}
    return frame


def adam_run(frame):
    return configured(frame.assign(threshold=38 / 0.05, edge=frame["eigenvalue_0"] / 760), optimizer="adam")


def test_adam_is_drawn_against_its_own_threshold_and_its_metric_is_told(frame):
    run = read("run", adam_run(frame))
    sharpness = _plots.draw([run])[1]
    plain, relative = sharpness["views"]
    assert [line["name"] for line in plain["lines"]] == ["λ₀", "λ₁", "38/h"]
    assert set(plain["lines"][-1]["y"]) == {760}
    assert (relative["label"], relative["level"], max(relative["lines"][0]["y"])) == ("λ / threshold", 1, 0.0578947)
    assert "λ = 38/h with learning rate h (2/h for plain descent)" in sharpness["text"]
    assert "For adam, λ is the curvature in the metric in which steps are taken" in sharpness["text"]
    assert "λ₀ in adam's metric was above 38/h in none of 5 measurements; the largest λ₀ over it was 0.05789" in words(
        adam_run(frame)
    )


def test_the_share_of_the_threshold_is_not_offered_twice(frame):
    views = _plots.draw([read("run", adam_run(frame))])[-1]["views"]
    assert [view["label"] for view in views] == ["products", "seconds"]


def test_what_is_told_of_a_step_down_the_gradient_is_not_told_of_momentum(frame):
    told = "raises the loss at"
    assert told in words(frame)
    assert told not in words(frame.assign(threshold=3.8 / 0.05))
    plain, adam = (_plots.draw([read("run", frame)]) for frame in (frame, adam_run(frame)))
    assert not any("Momentum has no part" in plot["text"] for plot in plain)
    assert sum("Momentum has no part" in plot["text"] for plot in adam) == 3


@pytest.mark.parametrize(
    "options",
    [dict(optimizer="adam"), dict(optimizer="prodigy"), dict(optimizer="dal", per_parameter=True)],
    ids=["adam, as earlier versions recorded it", "prodigy", "dal"],
)
def test_without_a_known_threshold_none_is_drawn_and_that_is_told(frame, options):
    frame = configured(frame, **options)
    sharpness = _plots.draw([read("run", frame)])[1]
    assert [[line["name"] for line in view["lines"]] for view in sharpness["views"]] == [["λ₀", "λ₁"]]
    name = options["optimizer"]
    assert f"No threshold is known for {name}, so none is drawn there." in sharpness["text"]
    assert "dashed line" not in sharpness["text"]
    assert f"The largest λ₀ was 44, at step 4; no threshold is known for {name}." in words(frame)


def test_what_a_monitor_could_not_read_has_no_threshold(frame):
    of_rate = [name for name in frame if name.startswith(("regime", "coefficient", "loss_change", "drift"))]
    run = read("mine", frame.drop(columns=of_rate).assign(residual_0=0.1))
    assert run.unknown
    assert "no threshold is known for mine" in " ".join(_summary.sentences(run))


def test_runs_with_and_without_a_threshold_are_compared(frame):
    runs = [read("a", frame), read("b", configured(frame, optimizer="prodigy"))]
    relative, plain = _plots.draw(runs)[1]["views"][:2]
    assert [line["name"] for line in relative["lines"]] == ["a"]
    assert [line["name"] for line in plain["lines"]] == ["a: λ₀", "a: 2/h", "b: λ₀"]
    assert [row[-2] for row in _summary.comparison(runs)[1]] == ["2.2", "none"]


def test_a_threshold_without_one_formula_is_told_in_words(frame):
    run = read("run", frame.assign(threshold=np.linspace(40, 80, 10)))
    assert run.edge == "the optimiser's threshold"
    assert "λ₀ was above the optimiser's threshold in none" in " ".join(_summary.sentences(run))


def test_colours_tell_directions_of_one_run_and_runs_of_several(frame):
    run = read("a", frame)
    directions = _plots.draw([run])[2]["views"][0]["lines"]
    several = _plots.draw([run, read("b", frame)])[2]["views"][0]["lines"]
    assert [(line["name"], line["colour"]) for line in directions] == [("Re sc₀", 0), ("Re sc₁", 1)]
    assert [(line["name"], line["colour"]) for line in several] == [("a", 0), ("b", 1)]


def test_many_events_are_listed_whole_and_marked_by_few_ticks(page):
    events = [[f"event {step}."] for step in range(1000)]
    text = page({"run": pd.DataFrame({"step": range(1000), "loss": 1.0, "events": events})})
    ticks = embedded(text)["events"][0]
    assert len(ticks["x"]) == len(ticks["text"]) == 59  # 17 events each
    assert ticks["text"][0] == "event 0. (and 16 more)"
    assert text.count("<td>event ") == 1000


@given(st.lists(st.floats(-1e6, 1e6) | st.just(np.inf), min_size=1, max_size=200), st.integers(1, 20))
def test_thinning_keeps_ends_extremes_order_and_gaps(values, buckets):
    values = np.array(values)
    kept = thin(values, buckets)
    assert len(kept) <= 3 * buckets + 2
    assert np.all(np.diff(kept) > 0)
    assert kept[0] == 0
    assert kept[-1] == len(values) - 1
    finite = values[np.isfinite(values)]
    if len(finite):
        assert {finite.min(), finite.max()} <= set(values[kept])
    assert np.all(np.isfinite(values)) == np.all(np.isfinite(values[kept]))


def test_every_spike_of_a_long_run_survives():
    loss = np.linspace(2.0, 1.0, 100_000)
    spikes = np.arange(500, 100_000, 1000)
    loss[spikes] = 50.0
    drawn = points(np.arange(100_000), loss, buckets=2000)
    assert len(drawn["x"]) <= 4002
    assert [x for x, y in zip(drawn["x"], drawn["y"], strict=True) if y == 50] == spikes.tolist()


def test_numbers_are_rounded_to_six_digits_and_steps_stay_exact():
    drawn = points(np.array([1234567.0, 1234568.0]), np.array([1 / 3, -np.inf]), buckets=10)
    assert drawn == {"x": [1234567, 1234568], "y": [0.333333, None]}


def test_no_text_of_a_run_becomes_markup(frame, page):
    attack = "</script><script>alert(1)</script><!--"
    frame.attrs = {"config": {attack: attack}, "status": "completed", "message": attack}
    frame["events"] = [[attack]] * 10
    text = page({attack: frame, "b": frame.assign(**{attack: 1.0})}, title=attack)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    assert any(view["label"] == attack for view in embedded(text)["plots"][-1]["views"])


def test_the_page_names_nothing_to_load(frame, page):
    before_scripts = page({"run": frame}).split('<script id="data"')[0]
    assert re.findall(r'(?:src|href)="([^"]*)"|url\(', before_scripts) == ["data:,"]


def test_a_failed_write_leaves_the_page_as_it_was_and_no_other_file(frame, tmp_path, monkeypatch):
    path = report.write({"run": frame}, tmp_path / "report.html", title="old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        report.write({"run": frame}, path, title="new")
    assert "<title>old</title>" in path.read_text(encoding="utf-8")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ({}, "runs must hold at least one run"),
        (
            {"a": pd.DataFrame({"step": [1]})},
            r"runs\['a'\] must be a DataFrame .*; it has no loss",
        ),
        ({"a": [1, 2]}, r"runs\['a'\] must be a DataFrame"),
        ({"a": pd.DataFrame({"step": [], "loss": []})}, "at least one row, got none in 'a'"),
        ({"a": pd.DataFrame({"step": [1], "loss": ["x"]})}, r"runs\['a'\] must have numbers"),
        ({"a": pd.DataFrame({"step": [np.nan], "loss": [1.0]})}, r"runs\['a'\] must have .* all steps finite"),
    ],
)
def test_bad_runs_are_named(runs, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        report.write(runs, tmp_path / "report.html")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["jinja2", "plotly"])
def test_a_missing_package_is_named_with_the_extra(package, frame, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.offline", None)
    with pytest.raises(ImportError, match=rf"needs {package}.*principalflow\[reproduce\]"):
        report.write({"run": frame}, tmp_path / "report.html")


@pytest.mark.parametrize("path", [".", "", None, 5, "a\0b"])
def test_what_is_no_path_of_a_page_is_named(frame, path):
    with pytest.raises(ValueError, match=r"^path must be"):
        report.write({"run": frame}, path)


def test_the_folder_of_a_page_is_made(frame, tmp_path):
    assert report.write({"run": frame}, tmp_path / "new" / "report.html").is_file()


def test_a_link_in_the_place_of_the_unfinished_page_is_not_followed(frame, tmp_path):
    (tmp_path / "mine").write_text("kept")
    (tmp_path / f".report.html.{os.getpid()}").symlink_to(tmp_path / "mine")
    report.write({"run": frame}, tmp_path / "report.html")
    assert (tmp_path / "mine").read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "report.html"]
