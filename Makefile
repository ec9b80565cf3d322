# Every target installs what it needs into .venv first (scripts/install.sh).
SHELL := /bin/bash
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help run test test-all check install up down format lock clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

run: install ## the whole pipeline on the built-in task (recipe tiny); RECIPE=... runs another
	@$(BIN)/spo run $(or $(RECIPE),tiny) $(ARGS)

test: install ## the tests (ARGS=... passes arguments to pytest)
	@$(BIN)/python -m pytest $(ARGS)

test-all: install ## the tests and the long ones
	@$(BIN)/python -m pytest -m '' $(ARGS)

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

clean: down ## remove what runs wrote, but not the warehouse
	@rm -rf .spo/logs .spo/runs .spo/prefect
