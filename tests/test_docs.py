import importlib.util
import json
import re
from pathlib import Path

import pandas
import pytest

DOCS = Path(__file__).parent.parent / "docs"


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
