"""Progress of long work, on the terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress(total: int, shown: bool | None) -> Iterator[Callable[[int, str], None]]:
    """Gives a function to call with how much of `total` is done, and a few words on it.

    It writes to the error stream: always if `shown`, never if False, and for None where that is a terminal.
    """
    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, disable=not (console.is_terminal if shown is None else shown)) as bar:
        task = bar.add_task("", total=total)
        yield lambda done, words: bar.update(task, completed=done, description=words)
