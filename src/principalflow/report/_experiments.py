"""The paper's experiments as one page."""

import base64
import dataclasses
import inspect
import json
import os
import shlex
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from principalflow.report import _page

if TYPE_CHECKING:  # it needs more than the rest of the package, and who has a result has it
    from principalflow.reproduce import Claim, Result

_SIGNS = {"<": "<", "<=": "≤", ">": ">", ">=": "≥", "==": "="}
_PLOT_HEIGHT = 450


@dataclass(frozen=True)
class Section:
    """What the page shows of one result, besides the result itself; texts are ready to be read."""

    result: "Result"
    anchor: str
    time: str
    stand_in: str
    command: str
    claims: Sequence[Mapping[str, Any]]
    settings: Mapping[str, str]
    about_settings: str
    unlike_profile: Sequence[str]
    figure: Mapping[str, Any] | None
    plots: Sequence[Mapping[str, Any]]
    troubles: Mapping[str, str]

    @property
    def held(self) -> int:
        """How many claims held."""
        return sum(claim["held"] for claim in self.claims)


def write_experiments(results: Sequence["Result"], path: str | os.PathLike[str], *, title: str | None = None) -> Path:
    """Writes one HTML page of the paper's experiments; it needs no network.

    A table of all results stands above a section for each: what the paper says, the figure, the claims with their
    numbers, the paper's setting next to ours, and interactive plots. A figure that is saved is taken as it is.

    Args:
        results: What `principalflow.reproduce` returned; failed ones are marked.
        path: The file to write.
        title: The page's title.

    Returns:
        The path.

    Raises:
        ValueError: For no results.
        OSError: If the page can't be written.
        ImportError: Where plotly or jinja2 isn't installed.

    Example:
        >>> import tempfile
        >>> import principalflow as pf
        >>> result = pf.reproduce.run("coefficients")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     page = pf.report.write_experiments([result], f"{folder}/report.html").read_text(encoding="utf-8")
        >>> "principalflow reproduce coefficients --profile quick" in page
        True
    """
    if not results:
        raise ValueError("results must hold at least one result, got none.")
    sections = [_section(result) for result in results]
    page = _page.render(
        "experiments",
        title or "The paper's experiments",
        with_plots=any(section.plots for section in sections),
        sections=sections,
        experiments=len({result.experiment.id for result in results}),
        held=sum(section.held for section in sections),
        claims=sum(len(section.claims) for section in sections),
        failed=sum(bool(result.error) for result in results),
    )
    return _page.save(page, path)


def _section(result: "Result") -> Section:
    experiment, profile, config = result.experiment, result.profile, result.config
    own = experiment.profiles[profile]
    seed = getattr(config, "seed", None)
    seeded = seed != getattr(own, "seed", None)
    figure, plots, troubles = _pictures(result)
    return Section(
        result=result,
        anchor=f"{experiment.id}-{profile}" + (f"-{seed}" if seeded else ""),
        time=_duration(result.seconds) + result.besides,
        stand_in=experiment.stand_ins.get(profile, ""),
        command=f"principalflow reproduce {experiment.id} --profile {profile} --again"
        + (f" --seed {seed}" if seeded else "")
        + (f" --out {shlex.quote(str(result.folder.parents[1]))}" if result.folder else ""),
        claims=[_claim(claim) for claim in result.claims],
        settings={name.replace("_", " "): _setting(value) for name, value in vars(config).items()},
        about_settings=_first_paragraph(config),
        unlike_profile=[
            name.replace("_", " ")
            for name, value in vars(config).items()
            if name != "seed" and value != getattr(own, name, None)
        ],
        figure=figure,
        plots=plots,
        troubles=troubles,
    )


def _pictures(result: "Result") -> tuple[Mapping[str, Any] | None, Sequence[Mapping[str, Any]], dict[str, str]]:
    """Returns the figure, the interactive plots, and why one of them could not be drawn: the rest is still shown."""
    figure, plots, troubles = None, [], {}
    if result.error:
        return figure, plots, troubles
    try:
        figure = _figure(result)
    except Exception:
        troubles["The figure"] = traceback.format_exc()
    try:
        plots = [_plot(caption, plot) for caption, plot in result.explore().items()]
    except Exception:
        troubles["The interactive plots"] = traceback.format_exc()
    return figure, plots, troubles


def _figure(result: "Result") -> dict[str, Any]:
    from principalflow.reproduce import DPI

    png = result.png()
    pixels = int.from_bytes(png[16:20], "big")  # the width, in a PNG's header
    return {"base64": base64.b64encode(png).decode("ascii"), "width": round(pixels * 96 / DPI)}  # CSS has 96 per inch


def _plot(caption: str, figure: Any) -> dict[str, Any]:
    """Returns an interactive plot as JSON without size and theme, which are the page's."""
    content = json.loads(figure.to_json())
    layout = content["layout"]
    height = layout.pop("height", _PLOT_HEIGHT)
    for name in ("width", "template"):
        layout.pop(name, None)
    return {"caption": caption, "height": height, "json": _page.embedded(content)}


def _claim(claim: "Claim") -> dict[str, Any]:
    # Four digits, or as many as it takes to show on which side of its limit a number lies.
    digits = next((digits for digits in range(4, 17) if _rounded(claim, digits).held == claim.held), 17)
    return {
        "sentence": claim.sentence,
        "measured": _number(claim.measured, digits),
        "bound": f"{_SIGNS[claim.comparison]} {_number(claim.limit, digits)}",
        "held": claim.held,
        "note": claim.note,
    }


def _rounded(claim: "Claim", digits: int) -> "Claim":
    measured, limit = (float(f"{value:.{digits}g}") for value in (claim.measured, claim.limit))
    return dataclasses.replace(claim, measured=measured, limit=limit)


def _number(value: float, digits: int = 4) -> str:
    value = float(value)
    if value != value:
        return "could not be measured"
    if abs(value) == float("inf"):
        return "∞" if value > 0 else "−∞"
    rounded = float(f"{value:.{digits}g}")
    if value.is_integer() and abs(value) < 1e6:
        return f"{value:,.0f}"
    if 1e-4 <= abs(rounded) < 1e6:
        return f"{rounded:,.{max(digits, 6)}g}"  # six, so that 12,350 isn't 1.235e+04
    mantissa, _, exponent = f"{rounded:.{digits}g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_setting(item)}" for name, item in value.items())
    if dataclasses.is_dataclass(value) and type(value).__str__ is object.__str__:
        given = {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
        defaults = {item.name: item.default for item in dataclasses.fields(value)}
        return _setting({name: item for name, item in given.items() if item != defaults[name]})
    if isinstance(value, list | tuple):
        if value and dataclasses.is_dataclass(value[0]):
            return "; ".join(map(_setting, value))
        return ", ".join(f"({_setting(item)})" if isinstance(item, list | tuple) else _setting(item) for item in value)
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _first_paragraph(config: Any) -> str:
    """Returns what the docstring says of the settings; a dataclass without one has its signature there."""
    text = inspect.getdoc(type(config)) or ""
    return "" if text.startswith(f"{type(config).__name__}(") else " ".join(text.partition("\n\n")[0].split())


def _duration(seconds: float) -> str:
    if seconds < 0.05:
        return "under 0.1 s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
