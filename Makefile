# `make` alone explains the targets.
SHELL := /bin/sh
VENV ?= .venv
BIN := $(VENV)/bin
export VENV
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help demo test check format lint types contracts test-fast bench chaos deps deps-dev lock clean docs

help:  ## Explain the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: deps  ## Serve a trained digits classifier from two real Tritons, and print what to try
	@exec $(BIN)/python examples/digits/demo.py

test: deps-dev  ## Run the whole test suite, with real Tritons
	$(PYTEST) -m "not chaos"

check: format lint types contracts test-fast  ## Format, lint, types, import contracts and the fast tests

format: deps-dev  ## Check the formatting
	$(BIN)/ruff format --check .

lint: deps-dev  ## Check the code with ruff
	$(BIN)/ruff check .

types: deps-dev  ## Check the types with mypy --strict
	$(BIN)/mypy

contracts: deps-dev  ## Check the import contracts
	$(BIN)/lint-imports --no-cache

test-fast: deps-dev  ## Run the tests that start no Triton
	$(PYTEST) -m "not triton and not chaos"

bench: deps-dev  ## Measure ratios: warm start against a bare Triton, a change until every worker has it
	$(BIN)/python loadtests/bench/start.py
	$(BIN)/python loadtests/bench/propagation.py

chaos: deps-dev  ## Run the fault tests that take minutes
	$(PYTEST) -m chaos

deps:  ## Make the environment in .venv that serving needs
	@scripts/bootstrap.sh local

deps-dev:  ## Make the environment in .venv that working on Servegate needs
	@scripts/bootstrap.sh local,dev

docs: deps-dev  ## Write the generated references again (settings, commands, metrics, errors)
	$(BIN)/python scripts/references.py

lock: deps-dev  ## Resolve the dependencies anew into constraints.txt
	$(BIN)/python -m pip install -q uv
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --no-header --no-annotate \
	  --extra local --extra convert --extra load --extra dev pyproject.toml -o constraints.txt

clean:  ## Remove the environment, run-time state and caches
	rm -rf $(VENV) .servegate .mypy_cache .ruff_cache .pytest_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
