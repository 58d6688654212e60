"""The page of training runs in a browser, Chromium without a window."""

import pytest

from principalflow import report

pytestmark = pytest.mark.slow  # each test starts a browser

DARK = "--blink-settings=preferredColorScheme=0"
MOUSE = "--blink-settings=primaryHoverType=2,availableHoverTypes=2"
PLOTS = "document.querySelectorAll('.js-plotly-plot:has(svg.main-svg .scatterlayer path)').length"
RANGES = "figures.map(({ canvas }) => canvas.layout.xaxis.range)"


@pytest.fixture
def browse(tmp_path, look):
    """Opens the page of some runs, and returns what `script` evaluates to in it and what the console complains of."""

    def browsed(runs, script="null", *options, before="", width=1000):
        return look(report.write(runs, tmp_path / "report.html"), script, *options, before=before, width=width)

    return browsed


def test_all_plots_are_drawn_without_complaints(browse, frame):
    diverged = frame[["step", "loss"]][:1].assign(loss=float("inf"))
    assert browse({"a": frame, "b": diverged}, PLOTS) == (7, [])


def test_what_a_page_would_load_is_blocked_and_complained_of(browse, frame):
    _, complaints = browse({"a": frame}, before="<img src='https://example.org/a.png'>")
    assert "Content Security Policy" in complaints[0]


def test_dragging_zooms_all_plots_and_a_double_click_shows_all_again(browse, frame):
    drag = f"""(async () => {{
        const area = figures[2].canvas.querySelector(".nsewdrag");
        const {{ left, top }} = area.getBoundingClientRect();
        const mouse = (target, type, x) => {{
            const where = {{ clientX: left + x, clientY: top + 50 }};
            target.dispatchEvent(new MouseEvent(type, {{ ...where, bubbles: true, buttons: 1 }}));
        }};
        const pause = (time) => new Promise((resolve) => setTimeout(resolve, time));
        mouse(area, "mousedown", 100);
        mouse(document, "mousemove", 400);
        mouse(document, "mouseup", 400);
        await pause(1000);
        const zoomed = {RANGES};
        for (const click of [1, 2]) {{
            mouse(area, "mousedown", 200);
            mouse(document, "mouseup", 200);
            await pause(50);
        }}
        await pause(1000);
        return [zoomed, {RANGES}];
    }})()"""
    (zoomed, reset), complaints = browse({"a": frame}, drag, MOUSE)
    assert 0 < zoomed[0][0] < zoomed[0][1] < 9
    assert zoomed == [zoomed[0]] * 7
    assert reset == [[0, 9]] * 7
    assert not complaints


def test_switches_change_the_axis_and_the_lines(browse, frame):
    switch = """(() => {
        const [log, view] = [document.querySelector("#loss .log"), document.querySelector("#sharpness .view")];
        const loss = figures[0].canvas, sharpness = figures[1].canvas;
        const before = [loss.layout.yaxis.type, sharpness.data[0].customdata];
        log.click();
        view.value = "1";
        view.dispatchEvent(new Event("change"));
        return [before, [loss.layout.yaxis.type, sharpness.data[0].customdata]];
    })()"""
    (before, after), _ = browse({"a": frame}, switch)
    assert before == ["log", [10, 30, 44, 42, 36]]
    assert after == ["linear", [0.5, 1.5, 2.2, 2.1, 1.8]]


def test_a_diverged_run_leaves_the_scale_to_the_others_until_all_is_shown(browse, frame):
    script = """(() => {
        const [axis, note] = [() => figures[0].canvas._fullLayout.yaxis, document.querySelector("#loss .beyond")];
        const seen = () => [note.textContent, axis().range];
        const before = seen();
        showAll();
        return [before, seen()];
    })()"""
    blown = frame.assign(loss=[10.0**i for i in range(0, 27, 3)] + [float("inf")])
    ((note, focused), (no_note, whole)), complaints = browse({"a": frame, "b": blown}, script)
    assert note.startswith("Some values of b lie beyond this view")
    assert -1 < focused[0] < -0.3 < 0.3 < focused[1] < 1  # log10 of 0.5 and 2
    assert whole[1] > 24
    assert not no_note
    assert not complaints


def test_tables_break_no_words_and_scroll_in_their_own_box(browse, frame):
    runs = {f"run-{i}": frame.copy() for i in range(2)}
    for i, run in enumerate(runs.values()):
        run.attrs = {"config": {f"a_long_option_{j}": 1e-5 * (i + j + 1) for j in range(12)}}
    script = """[root.scrollWidth <= innerWidth, ...[...document.querySelectorAll(".comparison tbody :is(th, td)")]
        .map((cell) => cell.getClientRects().length === 1 && cell.offsetHeight < 45)]"""
    whole, _ = browse(runs, script)
    assert all(whole)
    assert len(whole) == 1 + 2 * 17


def test_a_name_with_markup_is_shown_as_text(browse, frame):
    name = "<b>a</b></script><img src=x onerror=alert(1)>"
    label, complaints = browse({name: frame, "b": frame}, "document.querySelector('#loss .legendtext').textContent")
    assert label == name[:39] + "…"
    assert not complaints


def test_a_phone_needs_no_scrolling_sideways(browse, frame):
    widths = "[innerWidth, root.scrollWidth, Math.max(...figures.map(({ canvas }) => canvas._fullLayout.width))]"
    (inner, scrolled, widest), _ = browse({"a" * 60: frame, "b": frame}, widths, width=375)
    assert scrolled <= inner == 375
    assert widest < 375


def test_dark_screens_get_dark_plots_and_printers_white_ones_that_fit(browse, frame):
    colours = """(() => {
        const paper = () => figures[0].canvas.layout.paper_bgcolor;
        const closed = () => document.querySelectorAll("details:not([open])").length;
        const width = () => figures[0].canvas._fullLayout.width;
        const screen = [paper(), closed(), width()];
        dispatchEvent(new Event("beforeprint"));
        const printed = [paper(), closed(), width()];
        dispatchEvent(new Event("afterprint"));
        return [screen, printed, [paper(), closed(), width()]];
    })()"""
    (screen, printed, after), _ = browse({"a": frame}, colours, DARK)
    assert screen == after == ["#15181c", 2, 944]
    assert printed == ["#ffffff", 0, 640]
