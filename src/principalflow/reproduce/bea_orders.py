"""Backward error analysis of every order: a flow of order n misses one step of descent by O(h^(n+2)) (theorem 3.1)."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas
from matplotlib.figure import Figure

from principalflow._lab import PROFILES, Claim, Tables
from principalflow.flows import IGR, BackwardError, ThirdOrder, integrate
from principalflow.functions import banana

# Of the solver: a little above rounding.
_FINEST = 1e-14

NAMED = {1: ("IGR flow", IGR), 2: ("third-order flow", ThirdOrder)}


@dataclass(frozen=True)
class Config:
    """Orders, and rates small enough for the leading power of h and large enough for rounding to stay below it."""

    orders: tuple[int, ...] = (0, 1, 2, 3, 4, 5)
    start: tuple[float, float] = (1.3, 1.5)
    rates: tuple[float, ...] = (1.5e-5, 2.4e-5, 3.8e-5, 6e-5)


def run(config: Config) -> Tables:
    objective, theta = banana(), jnp.array(config.start)
    errors, differences = [], []
    for h in config.rates:
        step = theta - h * objective.gradient(theta)
        for order in config.orders:
            flow = BackwardError(h, order=order)
            end = integrate(flow, objective, theta, h, rtol=_FINEST, atol=0, solver="dopri8").thetas[-1]
            errors.append((order, h, float(np.linalg.norm(end - step))))
        for order, (name, kind) in NAMED.items():
            gap = BackwardError(h, order=order).field(objective, theta) - kind(h).field(objective, theta)
            differences.append((order, name, h, float(jnp.linalg.norm(gap))))
    return {
        "errors": pandas.DataFrame(errors, columns=["order", "h", "error"]),
        "differences": pandas.DataFrame(differences, columns=["order", "flow", "h", "difference"]),
    }


def claims(config: Config, tables: Tables) -> list[Claim]:
    found = []
    for order, rows in tables["errors"].groupby("order"):
        sentence = f"Order {order}: the error of one step falls with h to the power {order + 2}; the power is off by"
        found.append(Claim.below(sentence, abs(_slope(rows["h"], rows["error"]) - (order + 2)), 0.25))
    for (order, flow), rows in tables["differences"].groupby(["order", "flow"]):
        sentence = f"Order {order} is the {flow} up to a field of h to the power {order + 1}; the power is off by"
        found.append(Claim.below(sentence, abs(_slope(rows["h"], rows["difference"]) - (order + 1)), 0.25))
    return found


def draw(config: Config, tables: Tables) -> Figure:
    figure = Figure(figsize=(12, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    for order, rows in tables["errors"].groupby("order"):
        label = f"order {order}: slope {_slope(rows['h'], rows['error']):.2f}"
        left.loglog(rows["h"], rows["error"], "o-", color=f"C{order}", label=label)
    for (order, flow), rows in tables["differences"].groupby(["order", "flow"]):
        label = f"order {order} and {flow}: slope {_slope(rows['h'], rows['difference']):.2f}"
        right.loglog(rows["h"], rows["difference"], "o-", color=f"C{order}", label=label)
    left.set(title="one step on the banana function", xlabel=r"learning rate $h$", ylabel=r"$\|\theta_1 - \theta(h)\|$")
    right.set(title="how the fields differ", xlabel=r"learning rate $h$", ylabel="norm of the difference")
    for ax in (left, right):
        ax.legend()
    return figure


def _slope(rates: Any, errors: Any) -> float:
    return float(np.polyfit(np.log(rates), np.log(errors), 1)[0])


SETTINGS = dict.fromkeys(PROFILES, Config())
