"""The public surface: what it names, what it takes by keyword, and which rooms know of each other."""

import ast
import importlib.util
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import principalflow

SOURCE = Path(principalflow.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
# Each experiment is a module of its own, known by its id; and PyTorch need not be there.
LEFT_OUT = ["_lab", "torch"] if importlib.util.find_spec("torch") is None else ["_lab"]
PUBLIC = [
    path
    for path in MODULES
    if path.name == "__init__.py" or not (path.name.startswith("_") or path.parent.name == "reproduce")
    if path.parent.name not in LEFT_OUT
]
# What a user gives by its place although it may be left out.
BY_PLACE = {
    "Objective": {"data"},
    "Monitor": {"data", "loss"},
    "FlippedDirection": {"index"},
    "edge": {"params"},
    "build": {"key"},
    "cdat": {"base"},
    "loss": {"name"},
    "main": {"arguments"},
    "objective": {"loss", "data"},
    "quadratic": {"b"},
    "random": {"theta"},
    "run": {"profile"},
    "trajectories": {"descent"},
}
# Users read these and don't make them.
RESULTS = {"Claim", "Descent", "Eigenpairs", "Experiment", "Field", "Result", "Status", "Taken"}


def name_of(path: Path, source: Path = SOURCE) -> str:
    parts = ("principalflow", *path.relative_to(source).with_suffix("").parts)
    return ".".join(part for part in parts if part != "__init__")


def private_imports(path: Path, source: Path = SOURCE) -> list[str]:
    """What a module imports that is private to another package; that of its own and those around it is its own."""
    name = name_of(path, source)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            owners = [".".join(parts[:i]) for i, part in enumerate(parts) if part.startswith("_") and part[:2] != "__"]
            if parts[0] == "principalflow" and not all(f"{package}.".startswith(f"{owner}.") for owner in owners):
                found.append(name)
    return found


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_module_imports_what_is_private_to_another_package(path):
    assert private_imports(path) == []


def test_a_private_import_is_noticed(tmp_path):
    module = tmp_path / "flows" / "_new.py"
    module.parent.mkdir()
    own, foreign = (
        "from principalflow import _checks\nfrom principalflow.flows import _flow",
        "import principalflow.runs._x",
    )
    module.write_text(f"{own}\n{foreign}\n")
    assert private_imports(module, tmp_path) == ["principalflow.runs._x"]


@pytest.mark.parametrize("path", PUBLIC, ids=name_of)
def test_a_public_module_says_what_is_public(path):
    module = importlib.import_module(name_of(path))
    assert all(hasattr(module, name) for name in module.__all__)


def public_callables():
    modules = [importlib.import_module(name_of(path)) for path in PUBLIC]
    items = {f"{module.__name__}.{name}": getattr(module, name) for module in modules for name in module.__all__}
    return [pytest.param(item, id=name) for name, item in items.items() if is_called(item)]


def is_called(item):
    """Whether users call it: a function, or a class that is neither an error nor a result."""
    if inspect.isclass(item):
        return not issubclass(item, Exception) and item.__name__ not in RESULTS
    return inspect.isfunction(item)


@pytest.mark.parametrize("item", public_callables())
def test_options_are_given_by_keyword(item):
    by_place = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY
    optional = [
        name
        for name, parameter in inspect.signature(item).parameters.items()
        if parameter.kind in by_place and parameter.default is not inspect.Parameter.empty
    ]
    assert set(optional) <= BY_PLACE.get(item.__name__, set())


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_file_is_long(path):
    assert len(path.read_text().splitlines()) <= 400


@pytest.mark.parametrize(
    ("code", "left_out"),
    [
        ("import principalflow", {"jax", "pandas", "optax", "matplotlib"}),
        ("import principalflow.cli", {"jax", "pandas", "optax", "matplotlib"}),
        ("import principalflow; principalflow.compare; principalflow.descend", {"pandas", "optax", "matplotlib"}),
    ],
)
def test_what_takes_long_to_import_is_imported_when_it_is_needed(code, left_out):
    asked = f"import sys; {code}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    assert left_out & set(loaded) == set()
