# judgefree: `make help` lists the targets. All of them work on a fresh clone; the environment is made on first use.
PYTHON ?= python3
TORCH_ARGS ?=        # e.g. --index-url of a CPU-only or CUDA build of torch
BIN := .venv/bin
STAMP := .venv/.installed
export PATH := $(CURDIR)/$(BIN):$(PATH)
export DVC_NO_ANALYTICS := true
export DO_NOT_TRACK := 1
.DEFAULT_GOAL := help
.PHONY: help env demo test check bench reproduce lock ui

help: ## List the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml constraints.txt
	@echo "== environment: .venv (a few minutes the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=python3.x and remove .venv"; exit 2; }
	@$(BIN)/pip install --quiet "$$(grep '^torch==' constraints.txt)" $(TORCH_ARGS)
	@$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[pipeline,dev]'
	@$(BIN)/pip check
	@touch $(STAMP)

env: $(STAMP) ## Make the environment (.venv) from the committed constraints

demo: $(STAMP) ## Train, evaluate and compare the profile in params.yaml, then show the table
	@judgefree check --quiet
	@dvc repro
	@judgefree table
	@echo
	@echo "Commands are those of .venv: first  . .venv/bin/activate"
	@echo "Where to look next: reports/compare/ (table.md, plots/), models/rlvr/ (history, records of completions);"
	@echo "  dvc plots show --open    judgefree runs    make ui (MLflow, Prefect)    python -m flows.retrain (the nightly chain)"
	@echo "  params.yaml holds every setting; judgefree profile lists whole sets; README.md says how to bring your own model."

ui: $(STAMP) ## MLflow and Prefect in the browser, until Ctrl-C
	@python -m tools.ui

test: $(STAMP) ## The whole default test suite
	@pytest -q -n 2 --dist loadfile --no-loadscope-reorder -m "not gpu"

check: $(STAMP) ## Format, lint, types, constraints
	@ruff format --check .
	@ruff check .
	@mypy
	@pip check
	@python tools/check_constraints.py

bench: $(STAMP) ## Speed of sampling and update against TRL, in one process
	@OMP_NUM_THREADS=1 python benchmarks/step_time.py

reproduce: $(STAMP) ## The papers' claims, several seeds: docs/results.md (long; goes on after a stop)
	@OMP_NUM_THREADS=1 python -m benchmarks.reproduce

lock: ## Write both constraints files anew from the newest versions that pyproject.toml allows
	@rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	@.venv-lock/bin/pip install --quiet "$$(grep '^torch==' constraints.txt)" $(TORCH_ARGS)
	@.venv-lock/bin/pip install --quiet '.[pipeline,dev]'
	@.venv-lock/bin/pip freeze | grep -v '^judgefree' | sed 's/+cpu$$//' > constraints.txt
	@.venv-lock/bin/pip install --quiet uv
	@.venv-lock/bin/uv pip compile --quiet pyproject.toml --extra vllm --no-header --no-annotate -o constraints-vllm.txt
	@rm -rf .venv-lock && git diff --stat constraints.txt constraints-vllm.txt
