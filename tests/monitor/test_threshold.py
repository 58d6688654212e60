import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from principalflow.monitor import Threshold


@pytest.mark.parametrize(("nesterov", "dampening"), [(False, 0.0), (True, 0.0), (False, 0.7)])
@given(momentum=st.floats(0.01, 0.99), h=st.floats(0.01, 1))
def test_the_thresholds_of_momentum_are_where_its_iteration_is_at_the_edge(nesterov, dampening, momentum, h):
    sharpness, m = Threshold.of(momentum, nesterov, dampening).times_h / h, momentum
    velocity = np.array([(1 - dampening) * sharpness, m])  # v <- m v + (1 - d) g
    direction = m * velocity + np.array([sharpness, 0.0]) if nesterov else velocity
    iteration = np.stack([np.array([1.0, 0.0]) - h * direction, velocity])
    np.testing.assert_allclose(np.max(np.abs(np.linalg.eigvals(iteration))), 1, rtol=1e-6)  # a double root may split
