# Two commands for newcomers: `make demo` and `make test`. Both create .venv on first use.
PYTHON ?= python3
VENV ?= .venv
JOBS ?= 2

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
QUICK := not slow and not real_model and not parity and not gpu

.PHONY: help demo test full lint format docs ci clean
help:
	@echo "make demo    install, then judge the claims of example_suites/quickstart on the bundled model"
	@echo "make test    the quick tests"
	@echo "make full    every test, real models and simulations included (an hour or so on two cores)"
	@echo "make lint    ruff and mypy        make format   rewrite the code as ruff wants it"
	@echo "make docs    the site, into site/; a warning is an error"
	@echo "make ci      what every change must pass (.ci/run)"

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(sys.version_info < (3, 11) and "circuittest needs Python 3.11 or newer, and $(PYTHON) is " + v + ": run make with PYTHON=python3.12, or the like")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[gguf,test,dev]"
	@touch $@

.PHONY: install
install: $(INSTALLED)

demo: $(INSTALLED)
	$(BIN)/python -m pytest example_suites/quickstart

test: $(INSTALLED)
	$(BIN)/python -m pytest -n $(JOBS) --timeout 600 -m "$(QUICK)"

full: $(INSTALLED)
	CIRCUITTEST_HYPOTHESIS=full $(BIN)/python -m pytest -n $(JOBS) tests
	$(BIN)/python -m pytest example_suites

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[docs]"
	$(BIN)/python -m mkdocs build --strict --quiet

ci:
	.ci/run quick

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
