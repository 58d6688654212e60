"""The bowl that tests of the monitor descend."""

import jax.numpy as jnp

import principalflow as pf

BOWL = pf.functions.quadratic(jnp.diag(jnp.array([1.0, 4.0])))


def watch_bowl(rates, **options):
    """A monitor of descent on the bowl, whose largest curvature is 4, at these rates."""
    theta, monitor = jnp.ones(2), pf.Monitor(BOWL, **{"k": 1, "every": 1, **options})
    for step, h in enumerate(rates):
        monitor.observe(step, theta, h)
        theta = theta - h * BOWL.gradient(theta)
    return monitor
