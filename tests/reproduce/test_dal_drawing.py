import pandas
import pytest
from matplotlib.figure import Figure

from principalflow.reproduce._dal_drawing import colours, draw_losses
from principalflow.reproduce._sweeps import FIXED, WITH_MOMENTUM

FAMILIES = {"h = ": FIXED, "momentum": WITH_MOMENTUM, "Adam": "adam"}
CONTENDERS = ["h = 0.1", "h = 0.2", "DAL", "DAL-0.75", "momentum 0.9, h = 0.1", "Adam, h = 0.01", "Prodigy", "DoG"]


def family(name):
    return next((family for start, family in FAMILIES.items() if name.startswith(start)), name)


@pytest.mark.parametrize(("names", "is_inside"), [(CONTENDERS, True), ([*CONTENDERS, "DAL-0.5"], False)])
def test_a_legend_that_would_hide_curves_stands_below(names, is_inside):
    curve = {"setting": "here", "seed": 0, "step": [0, 1], "loss": [2.0, 1.0]}
    parts = [pandas.DataFrame(curve | {"contender": name, "family": family(name)}) for name in names]
    figure = Figure(layout="constrained")
    ax = figure.add_subplot()
    draw_losses(ax, pandas.concat(parts))
    figure.draw_without_rendering()
    legend = ax.get_legend().get_window_extent()
    assert (legend.y0 > ax.bbox.y0) == is_inside
    assert (legend.y1 < ax.bbox.y0) != is_inside


def coloured(names):
    return colours(pandas.DataFrame({"contender": names, "family": [family(name) for name in names]}))


def test_contenders_have_colours_of_their_own():
    assert len({coloured(CONTENDERS)[name] for name in CONTENDERS}) == len(CONTENDERS)


def test_a_contender_keeps_its_colour_where_others_are_missing():
    fewer = [name for name in CONTENDERS if not name.startswith("momentum")]
    assert {name: coloured(fewer)[name] for name in fewer} == {name: coloured(CONTENDERS)[name] for name in fewer}
