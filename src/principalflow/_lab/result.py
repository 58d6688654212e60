"""What came out of an experiment, and its folder: tables, figure, and result.json."""

import dataclasses
import io
import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args, get_type_hints

import jax
import pandas
from matplotlib.figure import Figure
from PIL import Image

from principalflow._files import whole, write_json
from principalflow._lab.experiment import Claim, Experiment, Profile, Tables
from principalflow._lab.stamp import stamp

_FIGURE = "figure.png"
_RESULT = "result.json"
DPI = 150
_MANY_PIXELS = 4_000_000
_LETTERS_PER_INCH = 11  # of small print


@dataclass(frozen=True)
class Result:
    """What came out of one experiment.

    Attributes:
        experiment: The experiment.
        profile: Which profile.
        config: Its settings.
        tables: Labelled data by name.
        claims: What was claimed and measured.
        seconds: How long it took.
        error: Why it failed, as Python's traceback; empty if it didn't.
        folder: Where it is saved; None if it isn't.
        made_by: The versions and the experiment's schema that it was made by; by default those of this process.
    """

    experiment: Experiment = field(repr=False)
    profile: Profile
    config: Any
    tables: Tables = field(repr=False)
    claims: Sequence[Claim]
    seconds: float
    error: str = ""
    folder: Path | None = None
    made_by: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self):
        if not self.made_by:
            object.__setattr__(self, "made_by", stamp(self.experiment.schema))

    @property
    def besides(self) -> str:
        """What to add to its seconds: " besides training" where it looks at trainings, which others may share."""
        return " besides training" if self.experiment.trainings(self.config) else ""

    def draw(self) -> Figure:
        """Returns the figure (matplotlib), with what stands in for the paper's setting said below it."""
        with jax.enable_x64(True):
            figure = self.experiment.draw(self.config, self.tables)
        if stand_in := self.experiment.stand_ins.get(self.profile):
            lines = textwrap.fill(stand_in, round(_LETTERS_PER_INCH * figure.get_figwidth()))
            figure.supxlabel(lines, fontsize="small", color="dimgrey")
        return figure

    def png(self) -> bytes:
        """Returns the figure as a PNG of `DPI` dots per inch: what is saved, or else drawn."""
        saved = self.folder and self.folder / _FIGURE
        return saved.read_bytes() if saved and saved.exists() else _png(self.draw())

    def explore(self) -> Mapping[str, Any]:
        """Returns interactive figures (plotly) by their captions."""
        with jax.enable_x64(True):
            return self.experiment.explore(self.config, self.tables)

    def save(self, out: Path) -> "Result":
        """Returns the result, saved below `out` as a whole; what was there before is replaced."""
        folder = out / self.profile / self.experiment.id
        folder.parent.mkdir(parents=True, exist_ok=True)
        with whole(folder, f".{folder.name}.unfinished") as unfinished:
            unfinished.mkdir()
            for name, table in self.tables.items():
                table.to_parquet(unfinished / f"{name}.parquet")
            if not self.error:
                (unfinished / _FIGURE).write_bytes(_png(self.draw()))
            write_json(unfinished / _RESULT, self._content())
        return dataclasses.replace(self, folder=folder)

    def _content(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment.id,
            "profile": self.profile,
            **self.made_by,
            "config": dataclasses.asdict(self.config),
            "seconds": self.seconds,
            "error": self.error,
            "tables": list(self.tables),
            "claims": [
                dataclasses.asdict(claim) | {"measured": number(claim.measured), "held": claim.held}
                for claim in self.claims
            ],
        }


def load(out: Path, experiment: Experiment, profile: Profile, outdated: bool = False) -> tuple[Result | None, str]:
    """Returns what is saved of an experiment; or None, and why it can't be used, empty where nothing is saved.

    What other versions or another schema made is outdated, and taken only if asked for.
    """
    folder = out / profile / experiment.id
    if not folder.exists():
        return None, ""
    try:
        content = _content_of(folder)
        if not outdated and (why := _outdated(content, experiment)):
            return None, why
        return _read(folder, content, experiment, profile), ""
    except (KeyError, TypeError, ValueError, OSError) as error:
        return None, f"what is saved can't be read: {type(error).__name__} {error}"


def _read(folder: Path, content: dict[str, Any], experiment: Experiment, profile: Profile) -> Result:
    return Result(
        experiment=experiment,
        profile=profile,
        config=_typed(type(experiment.profiles[profile]), content["config"]),
        tables={name: pandas.read_parquet(folder / f"{name}.parquet") for name in content["tables"]},
        claims=[_claim(claim) for claim in content["claims"]],
        seconds=content["seconds"],
        error=content["error"],
        folder=folder,
        made_by={name: content[name] for name in stamp(experiment.schema) if name in content},
    )


def is_outdated(out: Path, experiment: Experiment, profile: Profile) -> bool:
    """Whether what is saved of an experiment was made by other versions or another schema."""
    try:
        return bool(_outdated(_content_of(out / profile / experiment.id), experiment))
    except (ValueError, OSError):  # nothing is there, or it can't be told
        return False


def _content_of(folder: Path) -> dict[str, Any]:
    content = json.loads((folder / _RESULT).read_text(encoding="utf-8"))
    if not isinstance(content, dict) or "version" not in content:
        raise ValueError(f"{_RESULT} has no version")
    return content


def _outdated(content: Mapping[str, Any], experiment: Experiment) -> str:
    """Returns by what it was made, in words, if by something else than what there is now."""
    for name, now in stamp(experiment.schema).items():
        if content.get(name) != now:
            what = {"version": "principalflow", "schema": "the experiment's schema"}.get(name, name)
            return f"what is saved was made by {what} {content.get(name, 'unknown')}, and this is {now}"
    return ""


def _claim(content: Mapping[str, Any]) -> Claim:
    given = {item.name: content[item.name] for item in dataclasses.fields(Claim)}
    return dataclasses.replace(Claim(**given), measured=float(content["measured"]))


def _png(figure: Figure) -> bytes:
    """Returns a PNG with 256 colours, in a third of the space."""
    drawn, small = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, dpi=DPI)
    image = Image.open(drawn).convert("RGB")
    # Every n-th pixel has all colours there are to speak of; all pixels of a large figure would take minutes.
    every = math.isqrt(image.width * image.height // _MANY_PIXELS) + 1
    few = image.resize((image.width // every, image.height // every), Image.Resampling.NEAREST)
    # A median cut would give most colours to the smoothing of letters.
    palette = few.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
    image.quantize(palette=palette, dither=Image.Dither.NONE).save(small, "png", optimize=True)
    return small.getvalue()


def number(value: float) -> float | str:
    """Returns a number as JSON can hold it: "inf" and "nan" are text."""
    return value if math.isfinite(value) else str(value)


def _typed(kind: Any, value: Any) -> Any:
    """Returns settings as they were: JSON has lists where they have tuples, and objects where they have dataclasses.

    A tuple's items are of one kind.
    """
    if dataclasses.is_dataclass(kind):
        kinds = get_type_hints(kind)
        return kind(**{name: _typed(kinds[name], item) for name, item in value.items()})  # pyright: ignore
    if isinstance(value, list):
        kind, *_ = get_args(kind)
        return tuple(_typed(kind, item) for item in value)
    return value
