# Every target makes what it needs, from nothing: Python 3.11+, g++ and make are enough.
#   make demo   run the main jobs on data made for the occasion
#   make test   what CI runs
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
KERNEL := CMakeLists.txt pyproject.toml $(wildcard kernel/*)
JOBS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
FUZZ_SECONDS ?= 20

.PHONY: build demo test lint sanitize fuzz campaign bench docs clean

build: $(VENV)/.built

$(VENV)/.tools: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) pip scikit-build-core nanobind cmake ninja
	@touch $@

# An editable install: Python files are used where they are, the kernel is rebuilt when it changes.
$(VENV)/.built: $(VENV)/.tools $(KERNEL)
	$(PIP) --no-build-isolation -Ccmake.define.CROUPIER_WERROR=ON -e .
	@touch $@

$(VENV)/.%: $(VENV)/.built
	$(PIP) --no-build-isolation -Ccmake.define.CROUPIER_WERROR=ON -e '.[$*]'
	@touch $@

demo: build
	@bash benchmarks/../demo.sh

test: $(VENV)/.test
	$(BIN)/python -m pytest -n $(JOBS) -m 'not slow'

lint: $(VENV)/.lint $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html

clean:
	rm -rf build dist docs/_build demo $(VENV)
