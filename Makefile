# Every target makes the environment it needs; nothing is installed or fetched twice.
PYTHON ?= python3
BIN := .venv/bin
RUN ?= $(BIN)/python run.py

.DEFAULT_GOAL := help
.PHONY: help setup model draft demo grid test lint perf paper-tables paper-figures report

help:  ## what each target does
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.venv/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; set PYTHON=")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench,dev]'
	@touch $@

setup: .venv/.installed  ## create .venv with the tested versions of everything

model: setup  ## fetch SmolLM2-135M-Instruct, the default model, into ~/.cache/goose-bench (or $GOOSE_CACHE)
	@$(BIN)/python -m benchmarks.models.embedded

DATA_DIR ?=
draft: model  ## train a small draft model of the default model, for the *_draft methods (25 minutes)
	$(BIN)/python scripts/make_draft.py $(if $(DATA_DIR),--data-dir $(DATA_DIR))

demo: model  ## compare plain decoding, PLD, GOOSE and goose_opt on four HumanEval prompts
	$(RUN) 'compare=[ar,pld,goose,goose_opt]' limit=4 max_new_tokens=96

EXP ?= smoke
ARGS ?=
grid: setup  ## run a grid of models and datasets, EXP=smoke|embedded|main|topology|ablation|opt_tree|scaling; resumes
	$(RUN) -m +experiment=$(EXP) $(if $(DATA_DIR),data_dir=$(DATA_DIR)) $(ARGS)

test: model  ## run all tests
	$(BIN)/python -m pytest -n auto --dist loadfile

lint: setup  ## check style and format (ruff) and types (mypy)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

perf: model  ## time this engine against transformers' generate, as ratios within one run
	$(BIN)/python scripts/perf.py

RUNS ?= results/runs
report: setup  ## write one HTML page of finished runs: tables, figures, a viewer of every step
	$(BIN)/python scripts/report.py $(RUNS) --figures $(wildcard results/figures/*.png)

paper-tables: setup  ## make the papers' tables from the runs in RUNS=results/runs, into results/tables
	$(BIN)/python scripts/paper_tables.py $(RUNS) --only tables

paper-figures: setup  ## make the papers' figures from the same runs, into results/figures
	$(BIN)/python scripts/paper_tables.py $(RUNS) --only figures
