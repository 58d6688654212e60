from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from reproduce.cases import TRAINING

from principalflow.reproduce import non_principal
from principalflow.reproduce._trained import trained


def test_the_term_is_that_of_dense_third_derivatives():
    config = replace(non_principal.SETTINGS["quick"], networks=(TRAINING,))
    with jax.enable_x64(True):
        rows = non_principal.run(config)["steps"]
        run = trained(TRAINING)
        theta = jnp.asarray(run.theta(2))
        g = run.objective.gradient(theta)
        dense = jax.jvp(run.objective.hessian, (theta,), (g,))[1] @ g
    np.testing.assert_array_equal(rows["step"], [0, 2, 4])
    np.testing.assert_allclose(rows["term"].iloc[1], 0.1**2 / 12 * np.linalg.norm(dense), rtol=1e-6)
