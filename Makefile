# The one list of commands. Each target does its own set-up; `make test` works on a fresh clone.

# python3.11 if there is one, else python3 if it is new enough. Override with PYTHON=...
PYTHON ?= $(shell for p in python3.11 python3; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo "$$p" && break; done)

VENV := .venv
PY := $(VENV)/bin/python
# Written last, so that an interrupted installation is started again.
STAMP := $(VENV)/installed

DEMO_ARGS ?=
TEST_ARGS ?=
BENCH_ARGS ?=
FUZZ_ARGS ?=

.PHONY: help venv java demo test check format bench chaos fuzz clean
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

venv: $(STAMP) ## create .venv with everything that development needs

$(STAMP): pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
		echo "thetastream needs Python 3.11 or newer: install it, or give PYTHON=/path/to/python." >&2; \
		exit 1; fi
	@echo "Setting up $(VENV) (once) ..."
	@"$(PYTHON)" -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

java:
	@sh scripts/check_java.sh

demo: java $(STAMP) ## join two live streams, check the result, write demo-report.html
	@$(PY) -m thetastream.demo $(DEMO_ARGS)

test: java $(STAMP) ## all tests but the long fault tests
	@sh scripts/test.sh $(PY) $(TEST_ARGS)

check: $(STAMP) ## lint, format, types, import direction
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(PY) tools/imports.py

format: $(STAMP) ## rewrite the code in the project's format
	@$(PY) -m ruff check --fix-only .
	@$(PY) -m ruff format .

bench: java $(STAMP) ## all benchmarks into docs/benchmarks (hours; BENCH_ARGS="--only equality")
	@$(PY) -m thetastream.bench --out docs/benchmarks $(BENCH_ARGS)

chaos: java $(STAMP) ## kill processes over and over, and many more random cases (hours)
	@$(PY) -m pytest -m chaos $(TEST_ARGS)
	@THETASTREAM_EXAMPLES=400 $(PY) -m pytest -m "not chaos" tests/property tests/engine \
		tests/steering tests/planner/test_classification_oracle.py tests/transport $(TEST_ARGS) \
		|| [ $$? -eq 5 ]  # No test was chosen, which -k may well do here.

fuzz: java $(STAMP) ## random joins and queries against Spark's own (FUZZ_ARGS="--seconds 600")
	@$(PY) -m tests.fuzz $(FUZZ_ARGS)

clean: ## remove what tools, tests and Spark left behind, and .venv
	@rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage \
		artifacts derby.log metastore_db spark-warehouse demo-report.html
	@find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
