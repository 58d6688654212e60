import importlib.util
import json
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def test_the_tables_of_results_edge_are_those_of_the_saved_run():
    spec = importlib.util.spec_from_file_location("claims_table", DOCS / "claims_table.py")
    claims_table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(claims_table)
    claims = json.loads((DOCS / "results-edge" / "claims.json").read_text(encoding="utf-8"))
    page = (DOCS / "results-edge.md").read_text(encoding="utf-8")
    experiments = dict.fromkeys(claim["experiment"] for claim in claims)
    assert experiments
    assert [name for name in experiments if claims_table.table(claims, name) not in page] == []
