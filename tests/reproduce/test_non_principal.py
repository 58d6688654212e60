from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from principalflow.reproduce import non_principal
from principalflow.reproduce._trained import Training, trained


def test_the_term_is_that_of_dense_third_derivatives():
    training = Training("digits", 20, "mlp", width=0.02, h=0.1, steps=4)
    config = replace(non_principal.EXPERIMENT.profiles["quick"], networks=(training,))
    with jax.enable_x64(True):
        rows = non_principal.run(config)["steps"]
        run = trained(training)
        theta = jnp.asarray(run.theta(2))
        g = run.objective.gradient(theta)
        dense = jax.jvp(run.objective.hessian, (theta,), (g,))[1] @ g
    np.testing.assert_array_equal(rows["step"], [0, 2, 4])
    np.testing.assert_allclose(rows["term"].iloc[1], 0.1**2 / 12 * np.linalg.norm(dense), rtol=1e-6)
