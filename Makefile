# Every target makes what it needs, from nothing: Python 3.11 or newer, g++ and make are enough.
#   make demo   run the main jobs on data made for the occasion
#   make test   what CI runs
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
INSTALL := $(PIP) --no-build-isolation -Ccmake.define.CROUPIER_WERROR=ON
KERNEL := CMakeLists.txt pyproject.toml $(wildcard kernel/*)
JOBS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
FUZZ_SECONDS ?= 60

.PHONY: build demo test lint sanitize fuzz campaign bench docs clean

build: $(VENV)/.built

# setuptools: some of the test packages have no wheel, and what comes with Python 3.11 cannot make one alone.
$(VENV)/.tools: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) pip scikit-build-core nanobind cmake ninja setuptools
	@touch $@

# An editable install: Python files are used where they are, the kernel is rebuilt when it changes.
$(VENV)/.built: $(VENV)/.tools $(KERNEL)
	$(INSTALL) -e .
	@touch $@

# .venv/.test, .venv/.lint, .venv/.docs, .venv/.bench: the packages of that extra.
$(VENV)/.%: $(VENV)/.built
	$(INSTALL) -e '.[$*]'
	@touch $@

demo: build
	@$(BIN)/python examples/demo.py

test: $(VENV)/.test
	$(BIN)/python -m pytest -n $(JOBS) -m 'not slow'

lint: $(VENV)/.lint $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The suite once more, the kernel under AddressSanitizer and UndefinedBehaviorSanitizer. TensorFlow, Beam, PyTorch
# and JAX bring native code of their own that is not ours to check, so the tests that import them are left out.
# Then Examples against protobuf.
# -S keeps the editable install's import hook away, which would win over PYTHONPATH.
SANITIZED := build/sanitized
LIBRARY = $$(g++ -print-file-name=lib$(1).so)
$(SANITIZED)/.built: $(VENV)/.test $(KERNEL) $(wildcard src/croupier/*.py src/croupier/*/*.py)
	rm -rf $(SANITIZED)
	$(INSTALL) --no-deps --target $(SANITIZED) -Ccmake.define.CROUPIER_SANITIZE=ON -Cbuild-dir=build/sanitized-objects .
	@touch $@

SANITIZER = PYTHONPATH="$(SANITIZED):$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
	LD_PRELOAD="$(call LIBRARY,asan) $(call LIBRARY,ubsan) $(call LIBRARY,stdc++)" ASAN_OPTIONS=detect_leaks=0 \
	CROUPIER_EXPECT=$(SANITIZED)

sanitize: $(SANITIZED)/.built
	ls tests/test_*.py | xargs -n 8 -P $(JOBS) env $(SANITIZER) $(BIN)/python -S -m pytest -q -n 0 \
		-m 'not slow and not interop and not unsanitized'
	$(SANITIZER) $(BIN)/python -S fuzz/example.py --seconds 20

fuzz: $(VENV)/.test
	FUZZ_SECONDS=$(FUZZ_SECONDS) PYTHON=$(BIN)/python bash fuzz/run.sh

# What takes too long for every change: all faults at every call, thousands of interop files, long fuzzing.
campaign: $(VENV)/.test
	$(BIN)/python -m pytest -n $(JOBS) -m slow --timeout 3600
	$(BIN)/python benchmarks/faults_campaign.py
	$(BIN)/python benchmarks/shuffle_faults_campaign.py
	$(MAKE) fuzz FUZZ_SECONDS=1800

bench: $(VENV)/.test $(VENV)/.bench
	bash benchmarks/run.sh

docs: $(VENV)/.docs
	$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

clean:
	rm -rf build dist docs/_build $(VENV)
