import ast
import importlib.util
import inspect
import json
import re
import tomllib
import types
from functools import reduce
from pathlib import Path

import pandas
import pytest

import principalflow
from principalflow import _lab

DOCS = Path(__file__).parent.parent / "docs"
PAGES = [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))]


@pytest.fixture
def claims_table():
    spec = importlib.util.spec_from_file_location("claims_table", DOCS / "claims_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["results-edge", "results-dal", "results-league"])
def test_the_tables_of_claims_are_those_of_the_saved_run(claims_table, name):
    claims = json.loads((DOCS / name / "claims.json").read_text(encoding="utf-8"))
    page = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    experiments = dict.fromkeys(claim["experiment"] for claim in claims)
    assert experiments
    assert [item for item in experiments if claims_table.table(claims, item) not in page] == []
    assert page.count("| claim |") == len(experiments)
    assert f"{sum(claim['held'] for claim in claims)} of {len(claims)} claims held" in page


def test_the_tables_of_contenders_are_those_of_the_saved_run(claims_table):
    rows = pandas.read_parquet(DOCS / "results-dal" / "contenders.parquet").to_dict("records")
    page = (DOCS / "results-dal.md").read_text(encoding="utf-8")
    settings = dict.fromkeys(row["setting"] for row in rows)
    assert settings
    assert [item for item in settings if claims_table.contenders(rows, item) not in page] == []


@pytest.mark.parametrize(
    ("league", "table"),
    [
        ("edge-league", "distances"),
        ("edge-league", "medians"),
        ("edge-league-large", "distances"),
        ("edge-league-optimisers", "distances"),
        ("edge-league-optimisers", "medians"),
    ],
)
def test_the_tables_of_leagues_are_those_of_the_saved_run(claims_table, league, table):
    rows = pandas.read_parquet(DOCS / "results-league" / f"{league}.parquet").to_dict("records")
    page = (DOCS / "results-league.md").read_text(encoding="utf-8")
    assert getattr(claims_table, table)(rows) in page


def test_the_tests_that_the_page_on_reliability_names_are_there():
    named = re.findall(r"`(tests/\S+\.py)::(\w+)`", (DOCS / "reliability.md").read_text(encoding="utf-8"))
    assert len(named) > 50
    missing = [(file, test) for file, test in named if f"def {test}(" not in (DOCS.parent / file).read_text()]
    assert missing == []


def blocks(page, language="python"):
    """The code of a page, block by block."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)


def test_the_readme_runs_from_top_to_bottom(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    exec("\n".join(block for block in blocks(PAGES[0]) if "principalflow.torch" not in block), {})
    assert (tmp_path / "run.png").exists()
    assert "completed 5 steps" in capsys.readouterr().out


def test_the_skeleton_of_an_experiment_runs(tmp_path):
    (code,), (words,) = (blocks(DOCS.parent / "CONTRIBUTING.md", language) for language in ("python", "toml"))
    module = types.ModuleType("halving")
    exec(code, vars(module))
    parts = {"profiles": module.SETTINGS, "run": module.run, "claims": module.claims, "draw": module.draw}
    experiment = _lab.Experiment(id="halving", **tomllib.loads(words)["halving"] | parts)
    result = _lab.run(experiment, "quick", tmp_path, None, False)
    assert [claim.held for claim in result.claims] == [True]
    assert (result.folder / "figure.png").exists()


def calls(page):
    """The calls of `pf.` in a page's code, with what they call, None where there is no such name."""
    for block in blocks(page):
        for node in ast.walk(ast.parse(inspect.cleandoc(block))):
            path = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if re.fullmatch(r"pf(\.\w+)+", path):
                names = path.split(".")[1:]
                yield node, reduce(lambda item, name: getattr(item, name, None), names, principalflow)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_calls_what_there_is_with_arguments_that_it_takes(page):
    wrong = []
    for node, item in calls(page):
        arguments = [*node.args, *node.keywords]
        if any(isinstance(argument, ast.Starred) or getattr(argument, "arg", "") is None for argument in arguments):
            continue
        try:
            inspect.signature(item).bind(*node.args, **{keyword.arg: keyword for keyword in node.keywords})
        except TypeError as error:
            wrong.append(f"{ast.unparse(node)}: {error}")
    assert wrong == []


def test_the_pages_have_calls_to_look_at():
    assert sum(1 for page in PAGES for _ in calls(page)) > 50
