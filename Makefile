# Each target sets itself up: it needs a Python 3.11 or newer and nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DOCS_INSTALLED := $(VENV)/.docs-installed
PROCESSES ?= auto
PYTEST := $(BIN)/python -m pytest -n $(PROCESSES)

.PHONY: help demo test check lint docs bench format clean

help:
	@echo "make demo    a small shop on an embedded PostgreSQL: orders and their events"
	@echo "make test    every check and every test"
	@echo "make check   the same without the long tests"
	@echo "make docs    build the documentation into site/"
	@echo "make bench   the benchmarks, as ratios"
	@echo "make format  put the code into shape"

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@

$(DOCS_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	@touch $@

demo: $(INSTALLED)
	@$(BIN)/python -m sa_outbox demo

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

check: lint
	$(PYTEST) -m "not long"

test: lint
	$(PYTEST)

docs: $(DOCS_INSTALLED)
	$(BIN)/zensical build

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
