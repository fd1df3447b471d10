# Two commands set everything up on a fresh machine with Python 3.11+, git and make:
#   make demo    make .venv, install, run a real offline search (about a minute)
#   make test    install what the tests need, run the quick ones (about ten minutes)
# and
#   make test-slow    the others, of more than some seconds each (AREA=tests/cli: those of one area)
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# One process of tests more than cores, since tests wait for others at times; the slow ones keep the cores busy.
CORES ?= $(shell n=$$(nproc 2>/dev/null || echo 2); echo $$((n < 8 ? n : 8)))
JOBS ?= $(shell echo $$(($(CORES) + 1)))

.PHONY: demo test test-slow lint docs bench build clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml | $(BIN)/python
	@echo "installing culmen and what it needs into $(VENV): a minute or two"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	@echo "installing what the tests need into $(VENV): some minutes"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.installed

demo: $(VENV)/.installed
	@$(BIN)/culmen demo
	@echo; echo "culmen is $(BIN)/culmen; after '. $(BIN)/activate' it is just culmen"

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(JOBS) -m "not slow and not nightly"

test-slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(CORES) -m "slow and not nightly" $(AREA)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check src tests bench examples
	$(BIN)/ruff check src tests bench examples
	$(BIN)/lint-imports
	$(BIN)/pyright

docs: | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	$(BIN)/mkdocs build --strict

build: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check build
	$(BIN)/python -m build
	@echo "a release: CULMEN_RELEASE=1 make build, after the list in CONTRIBUTING.md"

clean:
	rm -rf $(VENV) dist site .pytest_cache .ruff_cache .hypothesis
