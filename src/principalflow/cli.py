"""The command `principalflow`."""

import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

try:
    import tyro
    from tyro.conf import OmitArgPrefixes, Positional
except ImportError:
    sys.exit("The command line needs more than the library: pip install 'principalflow[reproduce]'.")

import principalflow as pf
from principalflow._version import __version__

if TYPE_CHECKING:
    from principalflow import reproduce, training

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Returns:
        0 if all went well, 1 if a run diverged or was interrupted or an experiment failed, 2 for bad input.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    name = arguments[0] if arguments else "--help"
    if name in ("-h", "--help"):
        print(_help())
        return 0
    if name == "--version":
        print(__version__)
        return 0
    if name not in _COMMANDS:
        from principalflow._checks import did_you_mean

        print(f"principalflow has no command {name!r}.{did_you_mean(name, _COMMANDS)}\n\n{_help()}", file=sys.stderr)
        return 2
    try:
        with _plain_warnings(name):
            code = _COMMANDS[name](arguments[1:])
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader, such as `head`, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, pf.runs.RunError, OSError, ImportError) as error:
        print(f"principalflow {name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        again = " The same command goes on where it was." if name in ("train", "reproduce") else ""
        print(f"principalflow {name}: interrupted.{again}", file=sys.stderr)
        return 1


@contextmanager
def _plain_warnings(name: str) -> Iterator[None]:
    """Has warnings printed as sentences, like errors, without the line of source that gave them."""
    usual = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"principalflow {name}: {message}\n"
    try:
        yield
    finally:
        warnings.formatwarning = usual


def train(arguments: list[str]) -> int:
    """Train a network, or sweep over rates, powers and seeds, into a run directory; or go on with one."""

    def command(
        run: Annotated[pf.training.Options, OmitArgPrefixes] = _defaults(arguments),  # noqa: B008
        out: Path | None = None,
        config: Path | None = None,
    ) -> int:
        """Train a network, or sweep over some options, into a run directory; or go on with one that exists.

        Where a list of learning rates, powers or seeds is given, each combination is a run in a folder of its own.
        The same command again goes on where a run stopped. Ctrl-C stops at a checkpoint; a second one at once.

        Args:
            run: What to train, and how.
            out: The run directory; by default runs/DATA-MODEL-OPTIMIZER.
            config: A TOML file of options, or the config.json of another run; the command line overrides it.
        """
        _prepare(run.precision)
        where = out or Path("runs") / f"{Path(run.data).stem[:100]}-{run.model}-{run.optimizer}"
        statuses = pf.training.run(run, where, say=_say)
        return 0 if set(statuses.values()) <= {pf.Status.COMPLETED} else 1

    return _parsed("train", command, arguments)


def run_experiments(arguments: list[str]) -> int:
    """Run the paper's experiments, draw their figures and check their claims."""

    def command(
        ids: Annotated[Positional[tuple[str, ...]], tyro.conf.arg(metavar="[ID ...]")] = (),
        profile: pf.reproduce.Profile = "quick",
        out: Path = Path("results"),
        seed: int | None = None,
        list: bool = False,  # noqa: A002
        again: bool = False,
        redraw: bool = False,
        clean: bool = False,
        jobs: int = min(2, os.cpu_count() or 1),
    ) -> int:
        """Run the paper's experiments, draw their figures, check their claims and write a report.

        An experiment that has a result is not run again. The exit code is 1 if an experiment failed; a claim that
        doesn't hold is a result and no failure.

        Args:
            ids: The experiments to run, by their ids in --list; all of them if none is named.
            profile: quick (minutes, embedded data), cpu (real data, narrower networks) or paper (for accelerators).
            out: The folder for figures, tables, claims.json and report.html.
            seed: Replaces the seed of experiments that have one.
            list: List the experiments and end.
            again: Run also what was run before.
            redraw: Draw and check from the saved tables, without running anything.
            clean: Remove what other versions made from the folder, say what, and end.
            jobs: How many experiments run at the same time.
        """
        if list:
            rows = [
                (name, item.title, item.figure or "beyond the paper") for name, item in pf.reproduce.EXPERIMENTS.items()
            ]
            print("\n".join(f"{name:22} {title} ({figure})" for name, title, figure in rows))
            return 0
        if clean:
            pf.reproduce.clean(out, say=_say)
            return 0
        prepare = functools.partial(_prepare, "float64")
        prepare()
        results = pf.reproduce.run_all(
            ids, profile, out, seed=seed, again=again, redraw=redraw, jobs=jobs, prepare=prepare, say=_say
        )
        page = pf.report.write_experiments(results, out / "report.html")
        asked = [item for item in results if item.profile == profile and (not ids or item.experiment.id in ids)]
        print(_claims_table(asked))
        print(f"The claims are in {(out / pf.reproduce.CLAIMS).resolve()}, the report in {page.resolve()}.")
        return 1 if any(result.error for result in asked) else 0

    return _parsed("reproduce", command, arguments, booleans=tyro.conf.FlagCreatePairsOff)


def make_report(arguments: list[str]) -> int:
    """Show and compare runs on one HTML page."""

    def command(paths: Positional[tuple[Path, ...]], out: Path = Path("report.html"), title: str | None = None) -> int:
        """Show and compare runs on one HTML page, which needs no network.

        Args:
            paths: Run directories, or folders of them.
            out: The page to write.
            title: Its title.
        """
        from principalflow._checks import renamed

        found = _loaded(paths)
        with renamed(path="out"):
            _say(f"The report is in {pf.report.write(found, out, title=title).resolve()}.")
        return 0

    return _parsed("report", command, arguments)


def export(arguments: list[str]) -> int:
    """Write the metrics of a run as parquet, CSV or TensorBoard's files."""

    def command(path: Positional[Path], to: Path, format: str | None = None) -> int:  # noqa: A002
        """Write the metrics of a run, or of the runs of a sweep, for other programs.

        Args:
            path: A run directory, or a folder of them.
            to: The file to write, .parquet or .csv; or the log folder of TensorBoard.
            format: parquet, csv or tensorboard, where the name doesn't tell.
        """
        _say(f"Written to {pf.runs.export(path, to, format=format).resolve()}.")
        return 0

    return _parsed("export", command, arguments)


def fetch(arguments: list[str]) -> int:
    """Download data sets and check them, or list them."""

    def command(names: Positional[tuple[str, ...]] = ()) -> int:
        """Download data sets and check them; without a name, list those you can name.

        They go to the user's cache, unless the folder PRINCIPALFLOW_DATA has them.

        Args:
            names: Such as mnist and cifar10.
        """
        if not names:
            print(pf.data.describe().to_string(index=False))
        for name in names:
            files = pf.data.fetch(name)
            _say(f"{name}: " + (", ".join(map(str, files)) or "comes with scikit-learn") + ".")
        return 0

    return _parsed("data", command, arguments)


_COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train,
    "reproduce": run_experiments,
    "report": make_report,
    "export": export,
    "data": fetch,
}


def _help() -> str:
    lines = [f"  {name:10} {inspect.getdoc(command)}" for name, command in _COMMANDS.items()]
    return "\n".join(
        ["usage: principalflow COMMAND [OPTIONS]", "", *lines, "", "principalflow COMMAND --help says more."]
    )


def _parsed(
    name: str, command: Callable[..., int], arguments: list[str], booleans: Any = tyro.conf.FlagConversionOff
) -> int:
    return tyro.cli(command, args=arguments, prog=f"principalflow {name}", config=(booleans,))


def _defaults(arguments: list[str]) -> "training.Options":
    """Returns the options of the file after `--config`, which is read before the rest of the command line."""
    for position, argument in reversed(list(enumerate(arguments))):  # the last one counts, as with other options
        if argument == "--config" and position + 1 < len(arguments):
            return pf.training.Options.from_file(arguments[position + 1])
        if argument.startswith("--config="):
            return pf.training.Options.from_file(argument.removeprefix("--config="))
    return pf.training.Options()


def _claims_table(results: Sequence["reproduce.Result"]) -> str:
    return "\n".join(
        f"{result.experiment.id:18} {result.profile:5}  {'held' if claim.held else 'NOT HELD':8}  "
        f"{claim.measured:>10.4g} {claim.bound:10}  {claim.sentence}"
        for result in results
        for claim in result.claims
    )


def _loaded(paths: tuple[Path, ...]) -> dict[str, Any]:
    """Returns the runs by the shortest names that tell them apart."""
    if not paths:
        raise ValueError("report needs the path of at least one run.")
    found = [run.resolve() for path in paths for run in pf.runs.find(path)]
    names = [path.name for path in found]
    if len(set(names)) < len(names):
        names = [str(path) for path in found]
    return {name: pf.runs.load(path) for name, path in zip(names, found, strict=True)}


def _prepare(precision: str) -> None:
    """Sets what holds for the whole process: precision, where compiled code is kept, and how memory is returned."""
    import jax

    from principalflow._cache import keep_programs

    jax.config.update("jax_enable_x64", precision == "float64")
    keep_programs()
    pf.keep_memory()


def _say(sentence: str) -> None:
    print(sentence, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
