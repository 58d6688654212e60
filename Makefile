# The set-up on a fresh machine with Python 3.11+ and make:
#   make reproduce   installs everything, runs the paper's experiments, prints their claims and where the report is
#   make test        runs the tests; make test-slow those that take long
PYTHON ?= python3
VENV ?= .venv
OUT ?= results
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: reproduce test test-slow check format benchmark clean

reproduce: $(INSTALLED)
	$(BIN)/principalflow reproduce --profile quick --out $(OUT)

test: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal -m "not slow"

test-slow: $(INSTALLED)
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal -m slow

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

benchmark: $(INSTALLED)
	$(BIN)/python benchmarks/flows.py
	$(BIN)/python benchmarks/eigenpairs.py
	$(BIN)/python benchmarks/dal.py
	$(BIN)/python benchmarks/networks.py
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/monitor.py
	$(BIN)/python benchmarks/edge.py
	$(BIN)/python benchmarks/waiting.py

clean:
	rm -rf $(VENV) $(OUT) .pytest_cache

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; sys.exit('Python 3.11 or newer is needed, this is ' + sys.version if sys.version_info < (3, 11) else 0)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[reproduce,dev]"
	touch $@
