import numpy as np
import pytest

import principalflow as pf

STRAIGHT = np.linspace([0.0, 0.0], [1.0, 1.0], 5)


def test_trajectories_draw_one_labelled_line_per_path_descent_and_start():
    ax = pf.plot.trajectories(pf.functions.banana(), {"flow": STRAIGHT + 1j}, descent=STRAIGHT[:2])
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["flow", "gradient descent", "start"]
    np.testing.assert_allclose(ax.lines[0].get_xydata(), STRAIGHT)


def test_the_contours_cover_all_paths():
    ax = pf.plot.trajectories(pf.functions.banana(), {"flow": STRAIGHT})
    box = ax.collections[0].get_datalim(ax.transData)
    assert box.x0 < 0 < 1 < box.x1
    assert box.y0 < 0 < 1 < box.y1


def test_errors_draw_the_chosen_kind_on_a_logarithmic_axis():
    table = {
        "flow": np.array(["a", "a", "b", "b"]),
        "kind": np.array(["local", "global", "local", "global"]),
        "step": np.array([1, 1, 1, 1]),
        "error": np.array([0.1, 0.2, 0.3, 0.4]),
        "relative_error": np.array([1.0, 2.0, 3.0, 4.0]),
    }
    ax = pf.plot.errors(table, kind="global", relative=True)
    assert [line.get_ydata()[0] for line in ax.lines] == [2.0, 4.0]
    assert ax.get_yscale() == "log"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pf.plot.trajectories(pf.functions.banana(), {}), "something to draw"),
        (lambda: pf.plot.trajectories(pf.functions.cosine_valley(), {"f": STRAIGHT}), "must have 2 parameters"),
        (lambda: pf.plot.trajectories(pf.functions.banana(), {"f": STRAIGHT[:, :1]}), r"paths\['f'\] must have shape"),
        (lambda: pf.plot.errors({}, kind="both"), "kind must be one of 'local', 'global', got 'both'"),
        (lambda: pf.plot.errors({"kind": []}), "table must be the table of principalflow.compare; it has no column"),
        (lambda: pf.plot.errors(None), "table must be the table of principalflow.compare"),
        (lambda: pf.plot.trajectories(None, {"f": STRAIGHT}), "objective must be a principalflow.Objective"),
        (lambda: pf.plot.trajectories(pf.functions.banana(), [STRAIGHT]), "paths must be a mapping from labels"),
        (lambda: pf.plot.trajectories(pf.functions.banana(), {"f": np.nan * STRAIGHT}), r"paths\['f'\] must be finite"),
        (lambda: pf.plot.trajectories(pf.functions.banana(), {"f": "ab"}), r"paths\['f'\] must be an array of numbers"),
        (
            lambda: pf.plot.trajectories(pf.functions.banana(), {"f": STRAIGHT}, colours={"f": "nope"}),
            r"colours\['f'\] must be a colour of matplotlib, got 'nope'",
        ),
        (
            lambda: pf.plot.trajectories(pf.functions.banana(), {"f": STRAIGHT}, ax="ax"),
            "ax must be axes of matplotlib",
        ),
        (lambda: pf.plot.landscape(None), "found must be what principalflow.landscape.evaluate returned"),
        (lambda: pf.plot.stability({"step": [0]}), "records must be the table of a principalflow.Record"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_stability_draws_every_direction_against_the_thresholds():
    path = pf.descend(pf.functions.banana(), [1.3, 1.5], h=0.001, steps=4, record=pf.Record())
    figure = pf.plot.stability(path)
    eigenvalues = figure.axes[1]
    labels = [text.get_text() for text in eigenvalues.get_legend().get_texts()]
    assert labels == [r"$\lambda_0$", r"$\lambda_1$", "$2/h$", "$1/h$"]
    np.testing.assert_allclose(eigenvalues.lines[0].get_ydata(), path.records["eigenvalue_0"])


def test_stability_draws_the_threshold_that_was_recorded():
    path = pf.descend(pf.functions.banana(), [1.3, 1.5], h=0.001, steps=4, momentum=0.5, record=pf.Record())
    eigenvalues = pf.plot.stability(path.records.assign(threshold=3000.0)).axes[1]
    labels = [text.get_text() for text in eigenvalues.get_legend().get_texts()]
    assert labels == [r"$\lambda_0$", r"$\lambda_1$", "threshold"]
    assert set(eigenvalues.lines[-1].get_ydata()) == {3000}


def test_stability_takes_columns_without_pandas():
    path = pf.descend(pf.functions.banana(), [1.3, 1.5], h=0.001, steps=2, record=pf.Record())
    columns = {name: np.asarray(path.records[name]) for name in path.records}
    assert len(pf.plot.stability(columns).axes) == 6


def test_every_rise_of_the_loss_is_shaded():
    path = pf.descend(pf.functions.quadratic([[1.0]]), [1.0], h=2.1, steps=4, record=pf.Record(every=2))
    shades = pf.plot.stability(path).axes[0].collections[0].get_paths()
    assert len(shades) == 3


def test_a_run_without_records_is_refused():
    path = pf.descend(pf.functions.banana(), [1.3, 1.5], h=0.001, steps=2)
    with pytest.raises(ValueError, match="records must be recorded"):
        pf.plot.stability(path)


def test_a_landscape_over_a_plane_has_contours_and_its_points():
    path = pf.descend(pf.functions.banana(), [1.3, 1.5], h=0.001, steps=5).thetas
    plane = pf.landscape.through(path, origin=path[-1])
    ax = pf.plot.landscape(pf.landscape.evaluate(pf.functions.banana(), plane, points=9))
    np.testing.assert_allclose(ax.lines[0].get_xydata(), plane.points)


def test_a_landscape_over_a_plane_can_be_a_surface():
    bowl = pf.functions.quadratic([[1.0, 0.0], [0.0, 2.0]])
    ax = pf.plot.landscape(pf.landscape.evaluate(bowl, pf.landscape.random(bowl, [1.0, 1.0]), points=5), surface=True)
    assert ax.name == "3d"


def test_a_landscape_over_a_line_is_a_curve():
    bowl = pf.functions.quadratic([[2.0]])
    found = pf.landscape.evaluate(bowl, pf.landscape.random(bowl, [1.0], dimensions=1), points=5)
    np.testing.assert_allclose(pf.plot.landscape(found).lines[0].get_ydata(), found.losses)
    with pytest.raises(ValueError, match="surface"):
        pf.plot.landscape(found, surface=True)


@pytest.mark.parametrize("surface", [False, True])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_losses_that_are_not_finite_are_left_out_of_a_landscape(value, surface):
    bowl = pf.functions.quadratic([[1.0, 0.0], [0.0, 2.0]])
    found = pf.landscape.evaluate(bowl, pf.landscape.random(bowl, [1.0, 1.0]), points=5)
    losses = found.losses.copy()
    losses[[0, 2], [1, 3]] = value
    pf.plot.landscape(found._replace(losses=losses), surface=surface).figure.canvas.draw()


def test_a_landscape_without_a_finite_loss_is_refused():
    bowl = pf.functions.quadratic([[1.0, 0.0], [0.0, 2.0]])
    found = pf.landscape.evaluate(bowl, pf.landscape.random(bowl, [1.0, 1.0]), points=5)
    with pytest.raises(ValueError, match="a finite loss somewhere"):
        pf.plot.landscape(found._replace(losses=np.full_like(found.losses, np.nan)))


def test_the_same_loss_everywhere_has_no_contours():
    bowl = pf.functions.quadratic(np.zeros((2, 2)))
    ax = pf.plot.landscape(pf.landscape.evaluate(bowl, pf.landscape.random(bowl, [1.0, 1.0]), points=5))
    assert not ax.collections


def watch(**options):
    """A monitor with steps at each row, and the curvature at every other."""
    bowl = pf.functions.quadratic([[1.0, 0.0], [0.0, 3.0]])
    monitor, theta = pf.Monitor(bowl, k=1, every=2, **options), np.ones(2)
    for step in range(1, 6):
        gradient = np.asarray(bowl.gradient(theta))
        loss, theta = bowl.value(theta), theta - 0.1 * gradient
        monitor.observe(step, theta, 0.1, updates=-0.1 * gradient, gradient=gradient, loss=loss)
    return monitor


def watched(**options):
    return watch(**options).table()


def labels(ax):
    return [line.get_label() for line in ax.lines if not line.get_label().startswith("_")]


def test_a_monitors_steps_and_curvature_are_drawn():
    loss, edge, realised, sizes = pf.plot.monitor(watched()).axes
    assert [len(line.get_xdata()) for line in loss.lines] == [5, 3]
    np.testing.assert_allclose(edge.lines[0].get_ydata(), 3 / 20)
    assert len(realised.lines[0].get_xdata()) == 5
    assert [line.get_label() for line in sizes.lines] == ["update", "gradient"]


def test_what_a_monitor_did_not_measure_is_left_out():
    axes = pf.plot.monitor(watched(measure="cheap")).axes
    assert [ax.get_title() for ax in axes] == ["loss", "steps, above 1 the loss rose", "sizes"]


def test_spikes_are_marked():
    table = watched()
    table["events"] = ["", "", "a spike", "", ""]
    assert pf.plot.monitor(table).axes[0].lines[-1].get_xdata() == [3, 3]


def test_a_monitors_spikes_are_drawn_where_they_began_with_their_causes():
    monitor = watch()
    monitor.events = [
        pf.Event("spike", 3, 1.0, 0.1, "the loss spiked", cause="rate"),
        pf.Event("above", 2, 3.0, 2.0, "lambda_0 crossed 2/h"),
    ]
    loss, edge, *_ = pf.plot.monitor(monitor).axes
    assert [line.get_xdata() for line in loss.lines[-2:]] == [[2, 2], [3, 3]]
    assert [text.get_text() for text in loss.texts] == ["spike: rate"]
    assert labels(edge)[-1] == "got above the edge"


def test_the_edge_of_small_batches_is_drawn_where_it_is_another():
    assert labels(pf.plot.monitor(watched(momentum=0.5)).axes[1])[2:] == [
        "edge, of large batches",
        "edge, of small batches",
    ]
    assert labels(pf.plot.monitor(watched()).axes[1])[2:] == ["edge"]


@pytest.mark.parametrize(("late", "scale"), [(0.5, "log"), (-0.5, "symlog")])
def test_wild_curvature_of_the_first_steps_does_not_set_the_scale(late, scale):
    table = {"step": [1, 30, 31], "events": ["", "", ""], "edge": [3e6, 2.0, late], "loss": [1.0, 1.0, 1.0]}
    ax = pf.plot.monitor(table).axes[1]
    assert ax.get_yscale() == scale
    low, high = ax.get_ylim()
    assert -10 < low < min(late, 1)
    assert 2 < high < 10
    assert late < 0 or low > 0.1 * late  # a logarithmic axis goes no further down than the curve


def test_a_surprise_is_held_against_1():
    table = {"step": [1, 2], "events": ["", ""], "batch_loss": [1.0, 0.9], "surprise": [0.9, 4.0]}
    np.testing.assert_array_equal(pf.plot.monitor(table).axes[-1].lines[-1].get_ydata(), 1)


def test_a_monitor_that_measured_nothing_says_so():
    with pytest.raises(ValueError, match="nothing was measured"):
        pf.plot.monitor(pf.Monitor(pf.functions.quadratic([[1.0]])))


def test_a_monitors_rows_without_curvature_are_no_gaps_in_its_curves():
    axes = pf.plot.stability(watched()).axes
    assert len(axes[1].lines[0].get_xdata()) == 3


def test_a_table_of_something_else_is_refused():
    with pytest.raises(ValueError, match="table must"):
        pf.plot.monitor({"step": [1]})
