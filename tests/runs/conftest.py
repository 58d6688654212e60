import numpy as np
import pytest

from principalflow import runs


@pytest.fixture
def saved(tmp_path):
    """A run with one row and one checkpoint."""
    with runs.create(tmp_path, {"learning_rate": 0.1}) as run:
        run.append({"step": 0})
        run.checkpoint(1, {"theta": np.zeros(2)})
    return tmp_path
