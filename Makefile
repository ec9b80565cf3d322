# Every target installs what it needs into .venv first (scripts/install.sh).
SHELL := /bin/bash
VENV ?= .venv
BIN := $(VENV)/bin
CORES := $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
WORKERS ?= $(shell echo $$(( $(CORES) < 12 ? $(CORES) + 1 : 12 )))# one more than cores, since some tests wait
ONE_THREAD := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE# the processes share the cores
PYTEST := $(ONE_THREAD) $(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder
VLLM_TESTS := tests/tasks/engines/test_vllm_engine.py tests/tasks/engines/test_vllm_adapter.py \
	tests/tasks/engines/test_vllm_worker.py tests/tasks/publish/test_vllm_loads.py

.PHONY: help run ui test test-quick coverage test-slow test-all test-gpu test-vllm docs check install up down format lock clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: install ## the whole pipeline on the built-in task (recipe tiny); RECIPE=... runs another
	@$(if $(findstring reference.model=,$(ARGS)),,$(if $(filter smollm%,$(notdir $(RECIPE))),scripts/install_smollm.sh $(VENV)))
	@$(BIN)/spo run $(or $(RECIPE),tiny) $(ARGS)

ui: install ## the pages over the warehouse in the browser (ARGS=--open opens one)
	@$(BIN)/spo ui $(ARGS)

test: install ## the tests (ARGS=... passes arguments to pytest, WORKERS=... sets the number of processes)
	@$(PYTEST) $(ARGS)

test-quick: install ## tests that start no process, in a minute or two
	@$(PYTEST) --quick $(ARGS)

coverage: install ## the tests, with what they cover of the packages and its floor
	@$(PYTEST) --cov --cov-report=term:skip-covered $(ARGS)

test-slow: install ## the long tests, one after the other
	@SPO_TEST_EXAMPLES=many $(BIN)/python -m pytest -m slow $(ARGS)

test-all: install ## the tests and the long ones
	@$(PYTEST) -m '' $(ARGS)

test-gpu: install ## what a GPU computes (TORCH=cuda); the other tests compute on the CPU, whatever there is
	@SPO_TEST_GPU=1 $(BIN)/python -m pytest -n 0 -p no:tests.budget tests/gpu $(ARGS)

test-vllm: ## the tests of the vLLM engine, on the CPU, in an environment of its own (.venv-vllm)
	@$(if $(PYTHON),PYTHON="$(PYTHON)") scripts/install_vllm.sh .venv-vllm
	@SPO_REQUIRE_VLLM=1 HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 .venv-vllm/bin/python -m pytest -p no:tests.budget $(VLLM_TESTS) $(ARGS)

docs: .venv-docs/.installed ## the site from README and docs/ into site/, strictly (environment .venv-docs)
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet --strict $(ARGS)

.venv-docs/.installed: requirements-docs.lock
	@$(or $(PYTHON),python3) -m venv .venv-docs
	@.venv-docs/bin/pip install --disable-pip-version-check -qq -r requirements-docs.lock && touch $@

check: install ## style, types, import contracts
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/pyright && $(BIN)/lint-imports

format: install ## rewrite the sources in the project's format
	@$(BIN)/ruff check --fix . ; $(BIN)/ruff format .

up: install ## start the embedded Prefect server and worker
	@$(BIN)/spo up

down: ## stop them
	@$(BIN)/spo down

lock: install ## write requirements.lock from the environment as it is
	@$(BIN)/python -m pip freeze --all --exclude-editable | grep -v '^pip==' | sed 's/^torch==\(.*\)+cpu$$/torch==\1/' > requirements.lock

install: ## the environment only
	@$(if $(PYTHON),PYTHON="$(PYTHON)") scripts/install.sh $(VENV)

clean: install ## remove what nothing needs any more (spo clean --apply); warehouse and weights stay
	@$(BIN)/spo clean --apply $(ARGS)
