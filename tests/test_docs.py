import ast
import importlib.util
import inspect
import json
import re
from functools import reduce
from pathlib import Path

import pandas
import pytest

import principalflow

DOCS = Path(__file__).parent.parent / "docs"
PAGES = [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))]


@pytest.fixture
def claims_table():
    spec = importlib.util.spec_from_file_location("claims_table", DOCS / "claims_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["results-edge", "results-dal"])
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


def test_the_tests_that_the_page_on_reliability_names_are_there():
    named = re.findall(r"`(tests/\S+\.py)::(\w+)`", (DOCS / "reliability.md").read_text(encoding="utf-8"))
    assert len(named) > 50
    missing = [(file, test) for file, test in named if f"def {test}(" not in (DOCS.parent / file).read_text()]
    assert missing == []


def calls(page):
    """The calls of `pf.` in a page's code, with what they call, None where there is no such name."""
    for block in re.findall(r"^ *```python\n(.*?)^ *```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
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
