import os
from decimal import Decimal
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from principalflow import _checks
from principalflow._checks import PrecisionWarning


@pytest.mark.parametrize(
    "number", [0.1, 1, np.float32(0.5), np.array(0.5), jnp.array(0.5), Fraction(1, 2), Decimal("0.1"), np.float16(0.5)]
)
def test_every_real_number_is_taken(number):
    assert _checks.positive("h", number) == float(number)


@pytest.mark.parametrize(
    "value",
    [True, np.bool_(True), "1", b"1", 1j, None, [0.1], np.array([0.1]), np.array("x"), Decimal("sNaN"), object()],
)
def test_what_is_no_real_number_is_refused(value):
    with pytest.raises(ValueError, match="h must be a real number, got "):
        _checks.positive("h", value)


@pytest.mark.parametrize("value", [10**400, -(10**400), Fraction(10**400)])
def test_numbers_beyond_the_range_of_floats_are_refused_and_shortened(value):
    with pytest.raises(ValueError, match=r"h must be within the range of floating-point numbers, got .*characters\)"):
        _checks.real("h", value)


def test_an_int_of_too_many_digits_to_print_is_refused():
    with pytest.raises(ValueError, match="steps must be a whole number of at most 9, got a int"):
        _checks.whole("steps", 10**5000, least=0, most=9)


@pytest.mark.parametrize("rate", [5e-324, 1e-101, 1e101, 1e308])
def test_rates_whose_squares_are_no_numbers_are_refused(rate):
    with pytest.raises(ValueError, match=r"h must be a learning rate from 1e-100 to 1e\+100"):
        _checks.rate("h", rate)


@pytest.mark.parametrize("value", [["hvp"], np.array(["hvp", "hvp"]), None, 1, {}])
def test_what_is_no_word_is_not_one_of_the_choices(value):
    with pytest.raises(ValueError, match="curvature must be one of 'hvp', got"):
        _checks.one_of("curvature", value, ("hvp",))


def test_what_fits_into_memory_is_not_refused(monkeypatch):
    monkeypatch.setattr(_checks, "_available_memory", lambda: 2**30)
    _checks.fits("steps", 2**30, "iterates")
    with pytest.raises(ValueError, match="steps asks for iterates, which take 1e\\+09 GiB of memory where 1 GiB are"):
        _checks.fits("steps", 10**9 * 2**30, "iterates")


def test_the_memory_that_is_free_is_part_of_the_machines():
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 2**20 < _checks._host_memory() <= physical  # Python alone takes a MiB


class Accelerator:
    """A device with memory of its own, of which a part is in use."""

    def memory_stats(self):
        return {"bytes_limit": 2**31, "bytes_in_use": 2**30}


@pytest.mark.parametrize(("on_host", "free"), [(False, "1 GiB"), (True, "8 GiB")])
def test_arrays_of_numpy_are_asked_of_the_machine_and_those_of_jax_of_its_device(monkeypatch, on_host, free):
    monkeypatch.setattr(jax, "local_devices", lambda: [Accelerator()])
    monkeypatch.setattr(_checks, "_host_memory", lambda: 2**33)
    with pytest.raises(ValueError, match=f"where {free} are available"):
        _checks.fits("points", 2**34, "a grid", on_host)


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**32 + 1])
@pytest.mark.parametrize("kind", [np.array, np.int64])
def test_whole_numbers_that_jax_would_wrap_are_refused(kind, value):
    with jax.enable_x64(False), pytest.raises(ValueError, match="index must hold numbers within the range of int32"):
        _checks.array_of_numbers("index", kind(value))


@pytest.mark.parametrize("value", [np.array([2**31 - 1, -(2**31)]), np.zeros(0, int), np.array([2**32 - 1], np.uint64)])
def test_whole_numbers_within_the_range_of_jax_are_taken(value):
    with jax.enable_x64(False):
        np.testing.assert_array_equal(_checks.array_of_numbers("index", value), value)


def test_a_function_of_other_arguments_is_refused():
    assert _checks.function("loss", max, "params") is max  # which has no signature to show
    with pytest.raises(ValueError, match=r"loss must be a function of params and batch, got one that takes \(params\)"):
        _checks.function("loss", lambda params: 0, "params", "batch")


@pytest.mark.parametrize(("dtype", "advised"), [("float32", True), ("float64", False)])
def test_a_tolerance_beyond_the_precision_is_met_by_advice_where_there_is_any(dtype, advised):
    with pytest.warns(PrecisionWarning, match=f"tol=1e-300 is finer than {dtype} resolves") as caught:
        _checks.resolvable("tol", 1e-300, dtype)
    assert ("jax_enable_x64" in str(caught[0].message)) == advised
