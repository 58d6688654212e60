"""The page of the paper's experiments: what it says, and how it looks in a browser."""

import dataclasses
import re
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go
import pytest
from matplotlib.figure import Figure

from principalflow import report
from principalflow.report._experiments import _number, _setting
from principalflow.reproduce import Claim, Experiment, Result

SHARP = "</script><b>A & B</b>"  # a page that doesn't escape its texts breaks here
# Frames come late in a browser without a window, and with them what is in view: here the test says when that is.
ARRIVALS = """<script>
    const arrivals = [];
    window.IntersectionObserver = class {
        constructor(callback) { this.callback = callback; }
        observe(target) { arrivals.push(() => this.callback([{ target, isIntersecting: true }])); }
        unobserve() {}
    };
</script>"""


@dataclass(frozen=True)
class Config:
    """What a run has."""

    rates: tuple[float, ...] = (0.5, 1e-5)
    starts: tuple[tuple[float, float], ...] = ((1.0, 2.0), (3.0, 4.5))
    adaptive: bool = False
    seed: int = 0


def draw(config, tables):
    figure = Figure(figsize=(4, 3))
    figure.subplots().plot(tables["losses"]["loss"])
    return figure


def explore(config, tables):
    flat = go.Figure(go.Scatter(y=[1, 2, 4], name=SHARP, line={"color": "#000000"}), {"height": 300, "width": 2000})
    solid = go.Figure(go.Scatter3d(x=[0, 1], y=[0, 1], z=[0, 1], mode="lines"))
    return {f"A line. {SHARP}": flat, "A line in space.": solid}


EXPERIMENT = Experiment(
    id="made-up",
    title=f"A title. {SHARP}",
    figure="Figure 7, section 3",
    paper_says=f"It falls. {SHARP}",
    paper_setting=f"A large network. {SHARP}",
    profiles={"quick": Config(), "cpu": Config()},
    run=lambda config: {},
    claims=lambda config, tables: [],
    draw=draw,
    explore=explore,
    stand_ins={"quick": "Digits stand in for CIFAR-10."},
)
RESULT = Result(
    EXPERIMENT,
    "quick",
    Config(),
    {"losses": pd.DataFrame({"loss": [3.0, 2.0, 1.0]})},
    [
        Claim(f"It is small. {SHARP}", 1.23456e-13, "<", 1e-8),
        Claim("It stays below.", 0.6000001, "<=", 0.6, note=f"Rounding. {SHARP}"),
        Claim("It is measured.", float("nan"), ">", 2),
    ],
    seconds=125.4,
)
FAILED = Result(
    dataclasses.replace(EXPERIMENT, id="failing", figure=""),
    "cpu",
    Config(seed=3),
    {},
    [],
    seconds=0.04,
    error=f"Traceback (most recent call last):\n  File a.py\nValueError: bad {SHARP}",
)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = report.write_experiments([RESULT, FAILED], tmp_path_factory.mktemp("report") / "report.html")
    path.write_text(path.read_text(encoding="utf-8").replace("<body>", f"<body>{ARRIVALS}"), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def seen(path, look):
    """What stands on the page, and the browser's complaints, of which those about software graphics don't count."""
    script = """(async () => {
        const texts = (selector) => [...document.querySelectorAll(selector)].map((item) => item.innerText.trim());
        for (const arrive of arrivals) arrive();
        await new Promise((resolve) => setTimeout(resolve, 1000));
        return {
            overview: texts(".overview tbody :is(th, td)"),
            claims: texts(".claims tbody :is(th, td)"),
            commands: texts(".experiment p > code"),
            settings: texts(".columns td"),
            text: document.body.innerText,
            traceback: document.querySelector("pre").textContent,
            images: [...document.images].map(({ naturalWidth, alt }) => [naturalWidth, alt]),
            drawn: document.querySelectorAll(".scatterlayer path, .gl-container canvas").length,
            legend: document.querySelector(".plot").data[0].name,
            loaded: performance.getEntriesByType("resource").map(({ name }) => name.slice(0, 5)),
            broken: [...document.querySelectorAll("main a")].filter(({ hash }) => !document.querySelector(hash)).length,
        };
    })()"""
    seen, complaints = look(path, script)
    return seen | {"complaints": [line for line in complaints if not re.search("WebGL|Canvas2D", line)]}


def test_the_browser_complains_of_nothing_and_loads_nothing(seen):
    assert seen["complaints"] == []
    assert set(seen["loaded"]) <= {"data:"}


def test_the_overview_has_a_row_for_each_result(seen):
    title = f"A title. {SHARP}"
    assert seen["overview"] == [
        *(f"{title}\nmade-up", "Figure 7, section 3", "1 held, 2 not held", "2 min 5 s", "quick"),
        "Digits stand in for CIFAR-10.",
        *(f"{title}\nfailing", "beyond the paper", "failed", "under 0.1 s", "cpu", "none"),
    ]
    assert seen["broken"] == 0


def test_claims_are_counted_and_failures_named(seen):
    assert "This page shows 2 experiments" in seen["text"]
    assert "1 of 3 claims held. 1 run failed, and its claims could not be checked." in seen["text"]


def test_claims_have_numbers_bounds_outcomes_and_notes(seen):
    assert seen["claims"] == [
        *(f"It is small. {SHARP}", "1.235e-13", "< 1e-8", "held"),
        *(f"It stays below.\n\nRounding. {SHARP}", "0.6000001", "≤ 0.6", "not held"),
        *("It is measured.", "could not be measured", "> 2", "not held"),
    ]


def test_a_failed_run_shows_why(seen):
    assert f"This run failed. ValueError: bad {SHARP}" in seen["text"]
    assert seen["traceback"] == FAILED.error


def test_settings_and_the_command_are_those_of_the_run(seen):
    assert seen["settings"][:4] == ["0.5, 1e-05", "(1, 2), (3, 4.5)", "no", "0"]
    assert seen["commands"] == [
        "principalflow reproduce made-up --profile quick --again",
        "principalflow reproduce failing --profile cpu --again --seed 3",
    ]


def test_the_figure_is_in_the_page_and_told_to_who_cannot_see_it(seen):
    ((width, alt),) = seen["images"]
    assert width == 600  # four inches
    assert alt.startswith(f"A title. {SHARP}: Figure 7, section 3")


def test_interactive_plots_are_drawn_on_the_plane_and_in_space(seen):
    assert seen["drawn"] >= 2
    assert seen["legend"] == SHARP


def test_a_dark_phone_draws_what_comes_into_view_and_prints_on_white(path, look):
    script = """(() => {
        const drawn = () => document.querySelectorAll(".js-plotly-plot").length;
        const plot = document.querySelector(".plot");
        const colours = () => [plot._fullLayout.paper_bgcolor, plot.data[0].line.color];
        const before = drawn();
        arrivals[0]();
        const [after, dark] = [drawn(), colours()];
        dispatchEvent(new Event("beforeprint"));
        const printed = [...colours(), document.querySelectorAll("details:not([open])").length];
        return { before, after, dark, printed, width: root.scrollWidth, plot: plot._fullLayout.width };
    })()"""
    seen, _ = look(path, script, "--blink-settings=preferredColorScheme=0", width=360)
    assert (seen["before"], seen["after"]) == (0, 1)
    assert seen["dark"] == ["#15181c", "#e6e8eb"]
    assert seen["printed"] == ["#ffffff", "#1d2126", 0]
    assert seen["width"] <= 360
    assert seen["plot"] < 360


def test_the_saved_figure_is_taken_as_it_is(tmp_path, monkeypatch):
    saved = RESULT.save(tmp_path)
    monkeypatch.setattr(Result, "draw", None)
    page = report.write_experiments([saved], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "could not be drawn" not in page


def test_a_plot_that_cannot_be_drawn_leaves_the_rest(tmp_path):
    broken = dataclasses.replace(EXPERIMENT, explore=lambda config, tables: tables["missing"])
    page = report.write_experiments([dataclasses.replace(RESULT, experiment=broken)], tmp_path / "report.html")
    text = page.read_text(encoding="utf-8")
    assert "The interactive plots could not be drawn.</strong> KeyError: &#39;missing&#39;" in text
    assert "data:image/png" in text


def test_settings_unlike_the_profiles_are_named(tmp_path):
    other = dataclasses.replace(RESULT, config=Config(adaptive=True))
    page = report.write_experiments([other], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "this run had other settings than the profile: adaptive" in page


def test_a_page_needs_results(tmp_path):
    with pytest.raises(ValueError, match="results must hold at least one result"):
        report.write_experiments([], tmp_path / "report.html")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(12345.6, "12,350"), (40000, "40,000"), (1 / 3, "0.3333"), (1e-13, "1e-13"), (2.5e9, "2.5e9"), (0, "0")],
)
def test_numbers_are_for_people(value, shown):
    assert _number(value) == shown


def test_settings_that_are_dataclasses_tell_what_is_not_the_default():
    made = (Config(adaptive=True), Config(seed=3))
    assert _setting(made) == "adaptive: yes; seed: 3"
