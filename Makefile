# Copyright The albert_tf authors.
# SPDX-License-Identifier: Apache-2.0

SHELL := /bin/bash
PYTHON_BIN := .venv/bin/python
DEMO_DIR ?= runs/demo
PYTEST_ARGS ?=
# Tests run in as many processes as there are cores, if the memory suffices; see tests/conftest.py.
PYTEST := -m pytest -n auto --dist=worksteal

.DEFAULT_GOAL := help
.PHONY: help setup demo check test test-current test-all lint docs notebook site clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: ## make .venv (the other targets do it by themselves)
	@scripts/setup.sh

demo: setup ## text to SavedModel, in 3 to 9 minutes (DEMO_DIR=runs/demo)
	@$(PYTHON_BIN) -m demo.run --output_dir=$(DEMO_DIR)

check: setup ## ruff, golden numbers, and the tests of what you changed
	@scripts/check.sh

test: setup ## the tests (PYTEST_ARGS='-k name' for some of them)
	@$(PYTHON_BIN) $(PYTEST) $(PYTEST_ARGS)

test-current: ## the tests with TensorFlow 2.21, also on Python 3.10 and 3.11
	@scripts/setup.sh --current
	@.venv-current/bin/python $(PYTEST) $(PYTEST_ARGS)

test-all: setup ## every test, the slow ones too
	@$(PYTHON_BIN) $(PYTEST) -m '' $(PYTEST_ARGS)

lint: setup ## ruff: rules and format; which package imports which
	@$(PYTHON_BIN) -m ruff check .
	@$(PYTHON_BIN) -m ruff format --check .
	@scripts/check_imports.sh

docs: setup ## write docs/flags.md from the scripts' --help
	@$(PYTHON_BIN) scripts/make_flag_reference.py

notebook: setup ## run the notebook in docs/notebooks and keep what it prints
	@$(PYTHON_BIN) scripts/run_notebook.py

site: setup ## the pages of docs/ as a site, in runs/site
	@$(PYTHON_BIN) -m mkdocs build --strict
	@echo "The site is in runs/site; it begins with runs/site/index.html. Its search needs a web"
	@echo "server, such as $(PYTHON_BIN) -m http.server --bind=127.0.0.1 --directory=runs/site"

clean: ## remove the demo's output and caches; environments stay
	@rm -rf $(DEMO_DIR) .pytest_cache .ruff_cache .hypothesis build dist
	@find . \( -path './.venv*' -o -path ./.uv \) -prune -o \
		-name __pycache__ -prune -exec rm -rf {} +
