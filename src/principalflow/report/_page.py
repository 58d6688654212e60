"""What the pages share: their frame (page.html, page.css, page.js), what stands in them, and how they are written."""

import json
import os
from importlib import resources
from pathlib import Path
from typing import Any

from principalflow import _checks
from principalflow._files import write_text


def render(name: str, title: str, with_plots: bool, **content: Any) -> str:
    """Returns the page of the template `name`.html; with plots, Plotly and `name`.js are in it."""
    try:
        import jinja2
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise ImportError(
            f"principalflow.report needs {error.name}: pip install 'principalflow[reproduce]'."
        ) from error
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    scripts = ["page.js", f"{name}.js"] if with_plots else ["page.js"]
    return environment.get_template(f"{name}.html").render(
        title=title,
        css=_asset("page.css"),
        js="\n".join(map(_asset, scripts)),
        plotly=get_plotlyjs() if with_plots else "",
        **content,
    )


def save(page: str, path: str | os.PathLike[str]) -> Path:
    """Writes the page as a whole or not at all, and returns its path."""
    path = _checks.path("path", path)
    if path.is_dir() or not path.name:
        raise ValueError(f"path must be that of a file to write, got the folder {str(path)!r}.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, page, f".{path.name}.{os.getpid()}")  # several processes may write a page at once
    except OSError as error:
        raise OSError(f"path can't be written to: {error}.") from error
    return path


def embedded(data: Any) -> str:
    """Returns JSON that can stand in a script element: no text in it can end the element."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


def _asset(name: str) -> str:
    return resources.files("principalflow.report").joinpath(name).read_text(encoding="utf-8")
