"""Help with names that are misspelt."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(given: str, names: Iterable[str]) -> str:
    """Returns a question with the name nearest to what was given, to end an error with; nothing if none is near."""
    by_lower_case = {name.lower(): name for name in names}
    nearest = get_close_matches(given.lower(), by_lower_case, n=1)
    return f" Did you mean {by_lower_case[nearest[0]]!r}?" if nearest else ""
