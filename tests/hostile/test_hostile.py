"""Every public function ends in a finite result, in one that is marked, or in an error that names an argument."""

import inspect

import pytest
from hostile.calls import CALLS, Call
from hostile.judge import verdict
from hypothesis import given, settings
from hypothesis import strategies as st

EXAMPLES = 40


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_a_hostile_call_is_answered(call: Call):
    names = set(call.good) | set(call.hostile) | set(call.names)

    @settings(max_examples=EXAMPLES)
    @given(_arguments(call))
    def answered(hostile):
        assert not verdict(call.function, call.good | hostile, names, call.is_formula)

    assert not verdict(call.function, call.good, names)
    if call.hostile:
        answered()


def _arguments(call: Call):
    """One or two hostile arguments: more would hide each other, since the first bad one ends a call."""
    names = st.lists(st.sampled_from(sorted(call.hostile)), min_size=1, max_size=2, unique=True)
    return names.flatmap(lambda some: st.fixed_dictionaries({n: st.sampled_from(call.hostile[n]) for n in some}))
