"""What the rows on drift and DAL claim and draw, on made-up runs."""

import json
from dataclasses import asdict, replace

import jax
import numpy as np
import pandas
import pytest
from reproduce.cases import TRAINING

from principalflow._lab.result import _typed
from principalflow.reproduce import (
    PROFILES,
    dal,
    dal_approximation,
    dal_batch_sizes,
    dal_half,
    dal_momentum,
    dal_mse,
    dal_per_parameter,
    dal_power,
    dal_quantities,
    drift,
    drift_generalisation,
    landscapes,
)
from principalflow.reproduce._edge import Config as Trainings
from principalflow.reproduce._edge import unrecorded
from principalflow.reproduce._sweeps import FIXED, WITH_MOMENTUM, Sweep, by_run, contender, over_seeds, setting
from principalflow.training import Options

ROWS = [
    dal,
    dal_quantities,
    dal_half,
    dal_power,
    drift_generalisation,
    dal_approximation,
    dal_mse,
    dal_momentum,
    dal_per_parameter,
    dal_batch_sizes,
    landscapes,
]
FULL, SMALL = "net on data, full batch", "net on data, batches of 8"
SEEDS = (0, 1, 2)
IRIS = Options(data="iris", hidden=(3,), steps=4, record_every=0, evaluate_every=4, seed=(0,))


def family(name):
    """What a contender of this name is compared as."""
    families = {"h = ": FIXED, "momentum": WITH_MOMENTUM}
    return next((family for start, family in families.items() if name.startswith(start)), name)


def of(name, losses, where=FULL, **columns):
    """The steps of a contender, alike in all seeds; the rate or the power is in its name."""
    alike = {
        "setting": where,
        "contender": name,
        "rate": float(name.rpartition("= ")[2]) if "h = " in name else np.nan,
        "power": float(name.split(",")[0].partition("-")[2] or 1) if name.startswith("DAL") else np.nan,
        "family": family(name),
        "full_batch": where == FULL,
        "status": "diverged" if np.isnan(losses[-1]) else "completed",
        "step": range(len(losses)),
        "loss": losses,
    }
    measured = {"learning_rate": 0.1, "update_norm": 0.1, "sharpness": 5.0, "drift": 0.1}
    measured |= {"measured_curvature": 20.0, "test_accuracy": 0.9, "train_accuracy": 0.9}
    return pandas.concat([pandas.DataFrame(alike | measured | {"seed": seed} | columns) for seed in SEEDS])


def in_one_seed(part, other):
    """The steps of a contender, with those of the other in the first seed."""
    return pandas.concat([other[other["seed"] == SEEDS[0]], part[part["seed"] != SEEDS[0]]])


def tables(*parts):
    steps = pandas.concat(parts, ignore_index=True)
    runs = by_run(steps)
    return {"steps": steps, "runs": runs, "contenders": over_seeds(runs)}


def drawn(figure):
    """The figure, once its axes were able to draw what they hold; their places, which take longest, don't matter."""
    figure.set_layout_engine("none")
    figure.draw_without_rendering()
    return figure


def held(row, made_up):
    return [claim.held for claim in row.claims(row.SETTINGS["quick"], made_up)]


def falling(last, rise=0.0):
    """Losses from 4 down to the last, with one rise, relative to the loss before."""
    return [4.0, 2.0, 2.0 * (1 + rise), last]


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([4.0, 3.0, 2.0, 2.2, 1.5, 1.0], [True, True, True, True]),
        ([4.0, 1.0, 4.0, 1.0, 4.0, 3.9], [True, False, False, False]),
        ([4.0, 1.0, 2.0, 3.0, 2.0, np.nan], [False, False, False, False]),
    ],
)
def test_dal_is_compared_with_the_rate_of_the_lowest_last_loss(losses, expected):
    rates = of("h = 0.1", [4.0, 3.5, 3.0, 2.5, 2.2, 2.0]), of("h = 0.2", [4.0, 2.0, 3.0, 2.0, 3.0, 1.2])
    assert held(dal, tables(*rates, of("DAL", losses))) == expected


def test_optimisers_besides_fixed_rates_are_no_part_of_dals_sweep():
    rates = of("h = 0.1", [4.0, 5.0, 4.5, 5.0, 2.0]), of("h = 0.2", [4.0, 5.0, 4.5, 5.0, 2.5])
    peers = [of(name, [4.0, 3.0, 2.0, 1.0, 0.1]) for name in ("Adam, h = 0.01", "momentum 0.9, h = 0.1", "Prodigy")]
    assert held(dal, tables(*rates, *peers, of("DAL", [4.0, 3.0, 2.0, 1.5, 1.8]))) == [True] * 4


def test_dals_largest_rise_is_that_of_the_worst_seed():
    calm, wild = (of("DAL", [4.0, 2.0, 2.0 * (1 + rise), 1.0]) for rise in (0.1, 0.9))
    rate = of("h = 0.1", [4.0, 3.0, 4.5, 2.0])
    assert held(dal, tables(rate, calm)) == [True, True, False, True]  # one rise each is not less often
    assert held(dal, tables(rate, in_one_seed(calm, wild))) == [True, False, False, True]


def test_where_all_rates_diverge_dal_is_compared_with_none():
    worse = [4.0, 1.0, 3.0, 5.0]  # finite, but it ends above its start
    assert held(dal, tables(of("h = 0.1", worse), of("DAL", falling(1.0)))) == [True, False, False, True]


RATE = np.concatenate([np.linspace(5, 1, 10), np.linspace(1, 3, 10)])  # falls and grows
SHORTER, LONGER = np.linspace(2, 1, 20), np.linspace(1, 2, 20)
UNSTEADY = np.tile([1.0, 2.0], 10)


@pytest.mark.parametrize(
    ("rate", "update", "curvature", "expected"),
    [
        (RATE, SHORTER, 10.0, [True, True, True, True, True]),
        (np.append([1.0, 1.0], np.linspace(1, 3, 18)), SHORTER, 10.0, [False, True, True, True, True]),
        (np.linspace(3, 1, 20), SHORTER, 10.0, [True, False, True, True, True]),
        (RATE, LONGER, 10.0, [True, True, False, False, True]),
        (RATE, np.append(SHORTER[:-1], 3.0), 10.0, [True, True, True, False, True]),
        (RATE, np.linspace(1, 1.5, 20), 10.0, [True, True, False, True, True]),
        (RATE, SHORTER, 1.0, [True, True, True, True, False]),
    ],
    ids=[
        "as claimed",
        "does not fall",
        "does not grow",
        "longer updates",
        "one long update",
        "a bit longer",
        "far from the rate",
    ],
)
def test_dals_rate_falls_and_grows_and_its_updates_become_shorter(rate, update, curvature, expected):
    losses = np.linspace(4, 1, 20)
    fixed = of("h = 0.1", losses, update_norm=UNSTEADY, measured_curvature=curvature)
    assert held(dal_quantities, tables(fixed, of("DAL", losses, learning_rate=rate, update_norm=update))) == expected


@pytest.mark.parametrize(
    ("columns", "claim"),
    [
        ({"learning_rate": np.linspace(1, 3, 20)}, 0),
        ({"learning_rate": np.linspace(3, 1, 20)}, 1),
        ({"update_norm": LONGER}, 2),
        ({"update_norm": np.append(SHORTER[:-1], 3.0)}, 3),
    ],
)
def test_what_one_seed_of_dal_does_not_do_is_not_held(columns, claim):
    losses, usual = np.linspace(4, 1, 20), {"learning_rate": RATE, "update_norm": SHORTER}
    fixed = of("h = 0.1", losses, update_norm=UNSTEADY)
    ours = in_one_seed(of("DAL", losses, **usual), of("DAL", losses, **usual | columns))
    assert not held(dal_quantities, tables(fixed, ours))[claim]


def test_where_all_rates_diverge_there_is_no_rate_to_compare_dals_with():
    losses = np.linspace(4, 1, 20)
    ours = of("DAL", losses, learning_rate=RATE, update_norm=SHORTER)
    made_up = tables(of("h = 0.1", losses[::-1], update_norm=UNSTEADY), ours)
    assert held(dal_quantities, made_up) == [True, True, True, False, False]


def test_a_single_low_rate_is_no_fall_and_no_growth():
    losses, rate = np.linspace(4, 1, 40), np.where(np.arange(40) == 20, 0.1, 1.0)
    fixed = of("h = 0.1", losses, update_norm=np.tile(UNSTEADY, 2))
    made_up = tables(fixed, of("DAL", losses, learning_rate=rate, update_norm=np.tile(UNSTEADY, 2)))
    assert held(dal_quantities, made_up)[:2] == [False, False]


def test_a_curvature_that_was_never_measured_holds_no_claim_on_dals_rate():
    losses = np.linspace(4, 1, 20)
    fixed = of("h = 0.1", losses, update_norm=UNSTEADY, measured_curvature=np.nan)
    made_up = tables(fixed, of("DAL", losses, learning_rate=RATE, update_norm=SHORTER))
    assert held(dal_quantities, made_up) == [True, True, True, True, False]


@pytest.mark.parametrize(
    ("half", "accuracy", "expected"),
    [
        (falling(0.5, rise=0.5), 0.95, [True, True, True, True]),
        (falling(1.8, rise=0.01), 0.85, [False, False, False, False]),
        ([4.0, 2.0, np.nan], 0.95, [False, False, False, True]),
    ],
)
def test_dal_half_is_compared_with_the_best_of_the_sweep_and_with_dal(half, accuracy, expected):
    rates = of("h = 0.1", falling(2.0), test_accuracy=0.9), of("h = 0.2", falling(1.5), test_accuracy=0.8)
    ours = of("DAL", falling(1.0, rise=0.1)), of("DAL-0.5", half, test_accuracy=accuracy)
    assert held(dal_half, tables(*rates, *ours)) == expected


@pytest.mark.parametrize("lower_is_more", [True, False])
def test_powers_go_with_drift_rises_and_accuracy(lower_is_more):
    grows = [0.1, 0.2, 0.3] if lower_is_more else [0.3, 0.2, 0.1]
    parts = [
        of(name, falling(1.0, rise=much), where, drift=much, test_accuracy=much)
        for where in (FULL, SMALL)
        for name, much in zip(("DAL", "DAL-0.75", "DAL-0.5"), grows, strict=True)
    ]
    assert held(dal_power, tables(*parts)) == [lower_is_more] * 5


def test_powers_that_diverged_are_left_out_and_told():
    parts = [
        of(name, falling(1.0, rise=much), drift=much, test_accuracy=much)
        for name, much in (("DAL", 0.1), ("DAL-0.75", 0.2))
    ]
    made_up = tables(*parts, of("DAL-0.5", [4.0, 2.0, np.nan], drift=0.0, test_accuracy=0.0))
    assert held(dal_power, made_up) == [True] * 3
    assert "3 of three runs of DAL-0.5 diverged" in dal_power.claims(None, made_up)[0].note


@pytest.mark.parametrize("as_claimed", [True, False])
def test_drift_goes_with_accuracy_and_against_sharpness(as_claimed):
    sign, least = (1, 1.0) if as_claimed else (-1, 9.0)
    names = ("h = 0.1", "h = 0.2", "h = 0.4"), ("DAL", "DAL-0.75", "DAL-0.5")
    parts = [
        of(name, falling(1.0), drift=much, test_accuracy=0.5 + sign * much, sharpness=lowest - sign * much)
        for sweep, lowest in zip(names, (4.0, least), strict=True)
        for name, much in zip(sweep, (0.1, 0.2, 0.3), strict=True)
    ]
    assert held(drift_generalisation, tables(*parts)) == [as_claimed] * 5


def by_products_and_differences(lost, ratio, where):
    """DAL and DAL-0.5; finite differences lose so much accuracy, and multiply the last losses by so much."""
    return tables(
        *(of(name, falling(1.0), where) for name in ("DAL", "DAL-0.5")),
        of("DAL, finite difference", falling(ratio["DAL"]), where, test_accuracy=0.9 - lost),
        of("DAL-0.5, finite difference", falling(ratio["DAL-0.5"]), where, test_accuracy=0.9 - lost),
    )


@pytest.mark.parametrize(
    ("lost", "where", "expected"),
    [(0.0, FULL, True), (0.01, FULL, False), (0.01, SMALL, True), (0.03, SMALL, False)],
)
def test_how_much_accuracy_may_be_lost_depends_on_the_batch(lost, where, expected):
    made_up = by_products_and_differences(lost, {"DAL": 1.0, "DAL-0.5": 1.1}, where)
    assert held(dal_approximation, made_up) == [expected, True, expected, True, True]


def test_losses_further_apart_at_the_higher_power_speak_against_finite_differences():
    made_up = by_products_and_differences(0.0, {"DAL": 1.5, "DAL-0.5": 1.4}, FULL)
    assert held(dal_approximation, made_up) == [True, False, True, False, False]


@pytest.mark.parametrize(
    ("losses", "accuracy", "expected"),
    [
        ([4.0, 2.0, 1.0, 0.5], 0.895, [True, True]),
        ([4.0, 3.0, 2.5, 2.0], 0.88, [False, False]),
        ([4.0, 3.0, 2.0, 1.5], 0.9, [False, True]),  # no sooner than at the last step
    ],
)
def test_with_a_square_loss_dal_gets_sooner_to_the_last_loss_of_the_best_rate(losses, accuracy, expected):
    rates = of("h = 0.1", falling(2.0)), of("h = 0.2", falling(1.5))
    ours = [of(name, losses, test_accuracy=accuracy) for name in ("DAL", "DAL-0.5")]
    assert held(dal_mse, tables(*rates, *ours)) == expected * 2


def test_with_a_square_loss_each_seed_is_compared_with_its_own_at_the_best_rate():
    parts = of("h = 0.1", falling(1.5)), *(of(name, [4.0, 2.0, 1.45, 1.4]) for name in ("DAL", "DAL-0.5"))
    by_seed = [part.assign(loss=part["loss"] * (1 + part["seed"])) for part in parts]  # up to 4.2; the mean level is 3
    assert held(dal_mse, tables(*by_seed)) == [True] * 4


def test_with_a_square_loss_the_worst_seed_counts():
    quick, slow = of("DAL", [4.0, 1.0, 0.9, 0.8]), of("DAL", [4.0, 3.9, 3.8, 3.7])
    rate, half = of("h = 0.1", falling(1.5)), of("DAL-0.5", [4.0, 1.0, 0.9, 0.8])
    assert held(dal_mse, tables(rate, quick, half))[0]
    assert not held(dal_mse, tables(rate, in_one_seed(quick, slow), half))[0]


def test_with_a_square_loss_a_contender_that_ends_above_its_start_is_not_quicker():
    ours = of("DAL", [4.0, 1.0, 2.0, 4.5]), of("DAL-0.5", [4.0, 1.0, 0.9, 0.8])
    assert held(dal_mse, tables(of("h = 0.1", falling(1.5)), *ours)) == [False, False, True, True]


def test_with_a_square_loss_nothing_is_quicker_than_rates_that_all_diverge():
    ours = [of(name, falling(1.0)) for name in ("DAL", "DAL-0.5")]
    assert held(dal_mse, tables(of("h = 0.1", [4.0, 1.0, 3.0, 5.0]), *ours)) == [False] * 4


def with_momentum(last, rise, where):
    return (
        of("DAL", falling(2.0), where),
        of(dal_momentum.PRINTED, falling(last, rise), where),
        of(dal_momentum.WHOLE, [4.0, 2.0, np.nan], where),
        of("momentum 0.9, h = 0.1", falling(1.5, 0.3), where),
        of("momentum 0.9, h = 0.2", falling(3.0, 0.01), where),
    )


@pytest.mark.parametrize(
    ("full", "small", "expected"),
    [
        ((0.5, 0.1), (1.0, 0.1), [True] * 7),
        ((3.0, 0.5), (2.5, 0.5), [False] * 7),
        ((1.6, 0.1), (1.0, 0.1), [True, False, True, True, True, True, False]),
        ((0.5, 0.1), (1.0, 0.5), [True, True, True, True, True, False, True]),
    ],
)
def test_dal_with_momentum_is_compared_with_dal_and_with_fixed_rates(full, small, expected):
    made_up = tables(*with_momentum(*full, FULL), *with_momentum(*small, SMALL))
    assert held(dal_momentum, made_up) == expected


def test_momentum_that_diverges_on_small_batches_holds_no_claim_there():
    made_up = tables(*with_momentum(0.5, 0.1, FULL), *with_momentum(np.nan, 0.1, SMALL))
    assert held(dal_momentum, made_up) == [True, True, True, False, False, False, False]


def test_a_rate_for_each_parameter_trains_where_the_loss_is_halved():
    parts = (
        of("DAL, per parameter", [4.0, 2.0, np.nan]),
        of("DAL, factor 0.01, per parameter", falling(1.9)),
        of("DAL-0.5, factor 0.01, per parameter", falling(2.1)),
    )
    assert held(dal_per_parameter, tables(*parts)) == [False, True, False]


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ([(0.0, 1.0), (0.02, 1.5), (0.05, 2.0)], [True, True]),
        ([(0.05, 2.0), (0.02, 1.5), (0.0, 1.0)], [False, False]),
        ([(0.0, 1.0), (0.06, 1.5), (0.05, 2.0)], [False, True]),
        ([(0.0, 1.0), (0.02, 2.5), (0.05, 2.0)], [True, False]),
    ],
    ids=["as claimed", "the other way", "accuracy falls once", "loss falls once"],
)
def test_what_dal_gains_grows_from_each_size_of_batches_to_the_next(gains, expected):
    sizes = SMALL, "net on data, batches of 16", FULL
    parts = [
        of(name, falling(1.5 / times), where, test_accuracy=0.9 + more)
        for where, (more, times) in zip(sizes, gains, strict=True)
        for name in ("DAL", "DAL-0.5")
    ]
    rates = [of("h = 0.1", falling(1.5), where) for where in sizes]
    assert held(dal_batch_sizes, tables(*rates, *parts)) == expected * 2


def bowl(name, where, seed, reach, height, **columns):
    """A grid around what was learned, on which the loss rises by so much towards the reach."""
    x, y = (side.ravel() for side in np.meshgrid(*2 * [np.linspace(-reach, reach, 5)], indexing="ij"))
    place = {"setting": where, "kind": landscapes.RANDOM, "contender": name, "seed": seed, "reach": reach}
    return pandas.DataFrame(place | {"x": x, "y": y, "loss": 0.1 + height * np.hypot(x, y), "seconds": 1.0} | columns)


def bowls(heights, config):
    """Landscapes of these heights by setting and contender; planes through three solutions and along six iterates."""
    grids, points = [], []
    for where, of_setting in heights.items():
        grids += [
            bowl(name, where, seed, reach, height)
            for name, height in of_setting.items()
            for seed in SEEDS
            for reach in config.reaches
        ]
        for kind, count in ((landscapes.SOLUTIONS, 3), (landscapes.PATH, 6)):
            grids.append(bowl(None, where, None, 1.0, 1.0, kind=kind))
            line = {"x": np.linspace(-1, 1, count), "y": 0.0, "name": [str(i) for i in range(count)]}
            points.append(pandas.DataFrame(line | {"setting": where, "kind": kind, "explained": 0.9}))
    return {"grids": pandas.concat(grids), "points": pandas.concat(points)}


CONFIG = landscapes.SETTINGS["quick"]


def learned(height=1.0, at_the_end=4.0, at_the_same_loss=4.0, accuracy=0.91, last=0.5, where=FULL):
    """What was learned, best by h = 0.1, whose λ₀ is 5, and DAL-0.5, which gets to the loss of the first sooner."""
    rates = of("h = 0.1", falling(1.0), where), of("h = 0.2", falling(1.0), where, test_accuracy=0.8)
    ours = of("DAL", falling(1.0), where, test_accuracy=0.99), of("DAL-0.75", falling(1.0), where, test_accuracy=0.1)
    sharpness = [9.0, 9.0, at_the_same_loss, at_the_end]
    best = of("DAL-0.5", [4.0, 3.0, 2 * last, last], where, test_accuracy=accuracy, sharpness=sharpness)
    return tables(*rates, *ours, best) | bowls({where: {"h = 0.1": 2.0, "DAL-0.5": height}}, CONFIG)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [True, True, True, True]),
        ({"height": 3.0}, [False, True, True, True]),
        ({"at_the_end": 6.0}, [True, False, True, True]),
        ({"at_the_same_loss": 6.0}, [True, True, False, True]),
        ({"last": 1.2}, [True, True, False, True]),  # it never gets to that loss
        ({"accuracy": 0.95}, [True, True, True, True]),
        ({"accuracy": 0.89}, [True, True, True, False]),
        ({"where": SMALL}, [True, True, True, True]),
        ({"where": SMALL, "accuracy": 0.89}, [True, True, True, True]),
        ({"where": SMALL, "accuracy": 0.95}, [True, True, True, False]),
    ],
    ids=str,
)
def test_the_landscapes_of_the_best_rate_and_the_best_power_are_compared(changes, expected):
    flatter, *others = expected
    assert held(landscapes, learned(**changes)) == [*[flatter] * len(CONFIG.reaches), *others]


def test_sharpness_at_a_loss_is_between_that_of_the_records_around_it():
    steps = pandas.DataFrame({"loss": [1.0, 0.5, 0.01, 0.02], "sharpness": [9.0, np.nan, 1.0, 2.0]})
    assert landscapes._sharpness_at(steps, 1.0) == 9
    assert landscapes._sharpness_at(steps, 0.1) == pytest.approx(5)  # halfway, as the logarithm of the loss goes
    assert landscapes._sharpness_at(steps, 0.01) == 1
    assert np.isnan(landscapes._sharpness_at(steps, 0.001))


def test_the_rise_is_the_mean_over_the_disc_less_the_middle():
    grid = bowl("DAL-0.5", FULL, 0, reach=1.0, height=2.0)
    radii = [0.0, *[0.5] * 4, *[np.hypot(0.5, 0.5)] * 4, *[1.0] * 4]  # of a grid of 5 x 5, those within the reach
    assert landscapes._rise(grid) == pytest.approx(2 * np.mean(radii))


@pytest.mark.parametrize("loss", [np.inf, np.nan])
def test_a_loss_on_the_disc_that_is_not_finite_is_an_infinite_rise(loss):
    grid = bowl("DAL-0.5", FULL, 0, reach=1.0, height=2.0)
    grid.loc[7, "loss"] = loss
    assert landscapes._rise(grid) == np.inf


def test_exploring_shows_surfaces_beside_each_other_and_contours_with_their_points():
    plots = landscapes.explore(CONFIG, learned())
    kinds = [[trace.type for trace in figure.data] for figure in plots.values()]
    assert kinds == [["surface", "surface"], ["contour", "scatter"], ["contour", "scatter"]]
    *_, along_path = plots.values()
    assert len(along_path.data[1].x) == 6


def test_surfaces_are_cut_off_at_a_height_that_both_share():
    (surfaces, *_) = landscapes.explore(CONFIG, learned(height=100.0)).values()
    heights = [trace.z.max() for trace in surfaces.data]
    assert heights[0] < heights[1] == surfaces.data[0].cmax < 100


@pytest.fixture(scope="module")
def small():
    """A small run of the landscapes, and its settings."""
    fixed = Sweep(replace(IRIS, learning_rate=(0.1, 0.2)))
    config = landscapes.Config(
        (fixed, Sweep(replace(IRIS, optimizer="dal", power=(1.0, 0.5)))), reaches=(0.5,), points=5
    )
    with jax.enable_x64(True):
        return config, landscapes.run(config)


def test_in_the_middle_of_a_landscape_is_the_last_loss(small):
    _, tables = small
    grids = tables["grids"][tables["grids"]["kind"] == landscapes.RANDOM]
    middle = grids[(grids["x"] == 0) & (grids["y"] == 0)].set_index("contender")["loss"]
    assert len(middle) == 2
    last = tables["contenders"].set_index("contender")["last_loss"]
    single = np.finfo(np.float32).eps
    np.testing.assert_allclose(middle, last[middle.index], rtol=10 * single)


def test_planes_lead_through_three_solutions_and_along_descent(small):
    _, tables = small
    names = tables["points"].groupby("kind")["name"].agg(list)
    assert "DAL" in names[landscapes.SOLUTIONS]
    assert len(names[landscapes.SOLUTIONS]) == 3
    assert names[landscapes.PATH] == ["0", "1", "2", "3", "4"]


def test_what_small_sweeps_learned_is_drawn_and_explored(small):
    figure = drawn(landscapes.draw(*small))
    surfaces = [ax for ax in figure.axes if ax.name == "3d"]
    assert len(surfaces) == 2
    assert all(ax.has_data() for ax in surfaces)
    assert len(landscapes.explore(*small)) == 3


def as_in(config, broken=False):
    """Made-up runs of a row's contenders, in which DAL gets to lower losses than others.

    If broken, the last one of each sweep, the most daring, diverges.
    """
    random, parts = np.random.default_rng(0), []
    for sweep in config.sweeps:
        names = {contender(options): setting(options) for options in sweep.options.runs().values()}
        for name, where in names.items():
            gone = broken and name == list(names)[-1]
            last = random.random() + (not name.startswith("DAL"))
            losses = [4.0, 2.0, 2.0 + random.random(), np.nan if gone else last]
            columns = {name: random.random(4) for name in ("drift", "sharpness", "test_accuracy", "update_norm")}
            parts.append(of(name, losses, where, learning_rate=1 + random.random(4), **columns))
    made_up = tables(*parts)
    if not isinstance(config, landscapes.Config):
        return made_up
    best = {where: landscapes._best(rows) for where, rows in made_up["contenders"].groupby("setting", sort=False)}
    return made_up | bowls({where: {row["contender"]: 1.0 for row in pair} for where, pair in best.items()}, config)


each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__.rpartition(".")[2])


@each_row
@pytest.mark.parametrize("profile", PROFILES)
def test_the_sweeps_of_every_profile_can_be_run_and_have_what_the_claims_ask_for(row, profile):
    config = row.SETTINGS[profile]
    for sweep in config.sweeps:
        sweep.options.check()
    assert not [claim.sentence for claim in row.claims(config, as_in(config)) if np.isnan(claim.measured)]


@each_row
def test_contenders_that_diverged_take_no_claim_away(row):
    config = row.SETTINGS["quick"]
    with np.errstate(all="ignore"):
        assert len(row.claims(config, as_in(config, broken=True))) == len(row.claims(config, as_in(config)))


@each_row
def test_contenders_that_diverged_leave_no_panel_empty(row):
    config = row.SETTINGS["quick"]
    sweeps = [sweep for sweep in config.sweeps if setting(sweep.options) == setting(config.sweeps[0].options)]
    config = replace(config, sweeps=tuple(sweeps))
    figure = drawn(row.draw(config, as_in(config, broken=True)))
    assert all(ax.has_data() for ax in figure.axes)


@pytest.mark.parametrize("row", [drift, *ROWS], ids=lambda row: row.__name__.rpartition(".")[2])
def test_settings_come_back_from_json(row):
    for config in row.SETTINGS.values():
        assert _typed(type(config), json.loads(json.dumps(asdict(config)))) == config


NETWORKS = tuple(unrecorded(TRAINING, 2, learning_rate=h, steps=6) for h in (0.1, 0.2))


def test_the_drift_of_small_networks_is_measured_and_correlated():
    with jax.enable_x64(True):
        found = drift.run(Trainings(NETWORKS))
    assert found["steps"]["step"].tolist() == [0, 2, 4, 6] * 2
    assert found["correlations"].groupby("norm").size().to_dict() == {"curvature": 2, "gradient": 2, "product": 2}
    # They differ by what is of third order in h, but further on, where units of elu change their sides, by more.
    start = found["steps"][found["steps"]["step"] == 0]
    np.testing.assert_allclose(start["estimate"], start["drift"], rtol=0.1)


DRIFT = np.linspace(1, 2, 10)


def drifts(monkeypatch, **columns):
    """The tables of made-up steps in which norms and estimate are the drift, but for these columns."""

    def steps(training):
        alike = dict.fromkeys(("drift", "estimate", "product", "curvature", "gradient"), DRIFT)
        return pandas.DataFrame({"data": "made up", "h": training.learning_rate, "step": range(10)} | alike | columns)

    monkeypatch.setattr(drift, "_steps", steps)
    return drift.run(Trainings(NETWORKS))


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({}, [True, True, True, True]),
        ({"product": DRIFT[::-1]}, [False, True, True, True]),
        ({"estimate": DRIFT[::-1]}, [True, False, True, True]),
        ({"curvature": DRIFT[::-1]}, [True, True, False, True]),
        ({"estimate": 3 * DRIFT}, [True, True, True, False]),
    ],
    ids=["as claimed", "product", "estimate", "curvature", "size"],
)
def test_norms_that_fall_while_the_drift_grows_do_not_tell_it(monkeypatch, columns, expected):
    assert held(drift, drifts(monkeypatch, **columns)) == expected


def test_the_drift_is_drawn_where_a_correlation_is_not_known(monkeypatch):
    figure = drawn(drift.draw(None, drifts(monkeypatch, gradient=1.0)))
    assert all(ax.has_data() for ax in figure.axes)
