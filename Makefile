# Every target works as the only command typed in a fresh clone: what it needs is set up first.
# PYTHON=/path/to/python3.12 make setup     uses that Python instead of the first suitable one that is found.

SHELL := /bin/bash
VENV := .venv
RUN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
SPARK := $(VENV)/.spark
COMPILED := $(VENV)/.compiled
# For what can be done beside other things: most of it uses one core, or waits.
BESIDE := $(MAKE) --no-print-directory --jobs 3
# Tests of one file run one after the other, with a Spark and a PostgreSQL for all of them; so many files at a time.
# By itself as many as tests/conftest.py finds right for this machine.
JOBS ?= auto
ROUNDS ?= 5

.DEFAULT_GOAL := help
.PHONY: help setup ready java start-cache demo test run-tests lint types bench chaos fuzz abuse docs clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

setup:  ## Make .venv with the locked versions, and see to Java
	@$(BESIDE) ready

ready: $(COMPILED) start-cache

$(INSTALLED): requirements-uv.lock requirements.lock pyproject.toml
	@scripts/make-venv $(VENV)
	scripts/install-packages $(VENV)
	@touch $@

$(SPARK): $(INSTALLED)
	scripts/install-packages $(VENV) pyspark
	@touch $@

$(COMPILED): $(INSTALLED)
	@echo "compiling what works on bytes (once)"
	@$(RUN)/python -m penstock.engine.spark.compile_all
	@touch $@

java:
	@scripts/ensure-java

# After compiling: a Spark that starts would compile the same beside it.
start-cache: $(SPARK) $(COMPILED) java
	@$(RUN)/python -m compileall -q penstock
	@$(RUN)/python -m penstock.engine.spark.start_cache || echo "not possible here: Spark starts in its own way"

demo: setup  ## Run the whole pipeline on 200,000 events and print what became of them
	$(RUN)/penstock demo

test:  ## Lint, check types, run all tests
	@$(BESIDE) lint types run-tests

run-tests: ready
	$(RUN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder --durations 20

lint: $(INSTALLED)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .

# After compiling, which has work for all cores: beside the start cache and the first tests, which wait a good part of
# their time.
types: $(SPARK) $(COMPILED)
	$(RUN)/mypy

bench: setup  ## Measure ourselves against a peer and against the limit
	$(RUN)/python -m bench

chaos: setup  ## Kill everything, again and again: count every event, compare mirrors row by row
	$(RUN)/python -m tests.chaos --kills 100
	$(RUN)/python -m tests.chaos --misfortunes 50
	$(RUN)/python -m tests.chaos.waiting --kills 50
	$(RUN)/python -m tests.chaos.mirror --seconds 60
	$(RUN)/python -m tests.chaos.export --events 10000 --kills 3
	$(RUN)/python -m tests.chaos.state --kills 20
	$(RUN)/python -m tests.chaos.state --outage 60
	$(RUN)/python -m tests.chaos.state --fairness

fuzz: setup  ## Run every test of a general rule with ROUNDS (5) sets of examples that no run had before
	@for round in $$(seq $(ROUNDS)); do \
	    $(RUN)/python -m pytest -q -m hypothesis --hypothesis-profile explore --numprocesses $(JOBS) --dist loadfile || exit 1; \
	done

abuse: setup  ## Attack the collector in over twenty ways beside an honest client, and print what that client noticed
	$(RUN)/python -m tests.abuse

docs: setup  ## Write docs/reference from the config classes
	$(RUN)/python scripts/reference.py

clean:  ## Remove .venv and everything that tools and runs leave behind
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist *.egg-info spark-warehouse metastore_db derby.log
	rm -rf demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
