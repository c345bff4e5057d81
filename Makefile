# Every target prepares what it needs: a virtual environment in .venv with the locked dependencies
# and the `headwater` command. `make` alone lists the targets.

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SOURCES := src tests $(wildcard benchmarks examples scripts)

# The first interpreter that is new enough and can make virtual environments; or say PYTHON=...
USABLE := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c '$(USABLE)' >/dev/null 2>&1 && { echo $$p; break; }; done)

# Every test that is not slow is in ALONE or in REST; FAST is the quick part of ALONE.
ALONE := not slow and not spark and not kafka
FAST := $(ALONE) and not long and not postgresql
REST := not slow and (spark or kafka)
EXAMPLES ?= 15
WORKERS ?= auto
PYTEST := $(BIN)/python -m pytest
PARALLEL := -n $(WORKERS) --maxprocesses 8 --dist worksteal

# Each process of REST has a Spark session, of 2 GB, and where needed a broker of its own. One alone waits for
# much of its time: for leases, for brokers, for processes that start. Files stay together, as their tests
# share what is slow to start.
SPARK_WORKERS ?= 2
SPARK_PARALLEL := -n $(SPARK_WORKERS) --dist loadfile

# Tests start Python many times, which takes three times as long where its byte code is not kept.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup demo check lint style types layers fast test bench soak nightly format lock clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(INSTALLED)  ## the virtual environment alone

$(INSTALLED): pyproject.toml requirements.lock
	@$(if $(PYTHON),,echo "Headwater needs Python 3.11 or newer with its venv module (on Debian and\
	 Ubuntu: apt install python3-venv). None was found; name one with: make PYTHON=/path/to/python" >&2; exit 1)
	@$(PYTHON) -c '$(USABLE)' || { echo "$(PYTHON) is older than Python 3.11 or has no venv module" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: $(INSTALLED)  ## two hundred queries on a simulated airport, on Spark, checked; about two minutes
	@scripts/ensure java
	@PATH="$(CURDIR)/$(BIN):$$PATH" scripts/demo

check: lint fast  ## lint and fast: what has to pass before every commit; about two minutes, no JVM

lint: style types layers  ## the three below: format, rules, types and layers; it changes no file

style: $(INSTALLED)  ## ruff: the format of the code, and the rules of the linter
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)

types: $(INSTALLED)  ## mypy, in its strict mode
	$(BIN)/mypy

layers: $(INSTALLED)  ## import-linter: imports point down the layers
	$(BIN)/lint-imports --no-cache

fast: $(INSTALLED)  ## the fast tests, which need no JVM, broker or database server
	HEADWATER_EXAMPLES=$(EXAMPLES) $(PYTEST) -m "$(FAST)" $(PARALLEL)

# The PostgreSQL and Kafka tests are skipped, and say so, where these cannot be had, unless
# HEADWATER_REQUIRE_POSTGRESQL=1 or HEADWATER_REQUIRE_KAFKA=1 says that they have to run.
test: lint  ## everything but the slow tests, with all their examples; what CI runs
	@scripts/ensure java
	@scripts/ensure postgresql || true
	@scripts/ensure kafka || true
	$(PYTEST) -m "$(ALONE)" $(PARALLEL) --durations=20
	$(PYTEST) -m "$(REST)" $(SPARK_PARALLEL) --durations=40

# Random tests have fixed seeds in check and test, and fresh ones here: what these find becomes a
# fixture or an explicit test.
soak nightly: export HEADWATER_SEEDS := fresh

soak: $(INSTALLED)  ## the slow tests, on fresh seeds
	@scripts/ensure java
	$(PYTEST) -m slow $(PARALLEL) || [ $$? -eq 5 ]

nightly: test soak  ## everything, on fresh seeds

bench: $(INSTALLED)  ## the benchmarks; the last line of each is its ratio
	@scripts/ensure java
	@set -e; for file in $(sort $(wildcard benchmarks/[a-z]*.py)); do \
		echo "== $$file"; $(BIN)/python $$file; done
	@$(if $(wildcard benchmarks/*.py),,echo "no benchmarks yet")

format: $(INSTALLED)  ## rewrite the code in the one format, and fix what the linter can fix
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

# For every platform and Python version at once, with hashes; without --upgrade, versions stay.
lock: $(INSTALLED)  ## resolve the dependencies again into requirements.lock (UPGRADE=1: the newest)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.8'
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --all-extras --python-version 3.11 \
		--no-emit-index-url --no-emit-find-links --custom-compile-command "make lock" \
		$(if $(UPGRADE),--upgrade) --output-file requirements.lock pyproject.toml

clean:  ## remove the virtual environment, caches and build results
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
