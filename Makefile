# Two commands do everything on a fresh machine with Python 3.11 and g++: `make run` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Tests run in so many processes; who is free takes over what others have still to do.
WORKERS ?= -n 2 --dist worksteal
NATIVE := $(shell find native -type f 2>/dev/null)

# The sources are checked while native code is compiled, which by itself does not fill all cores to
# its end. Ninja counts jobs of its own.
MAKEFLAGS += --jobs=2
unexport MAKEFLAGS

.PHONY: run eval test test-all lint format wheel clean

run: $(VENV)/installed
	$(BIN)/python -m eval.demo

# Every table and figure of the paper, and eval/results/REPORT.md; ARGS=--full or ARGS=--quick.
eval: $(VENV)/evaluated
	$(BIN)/python -m eval $(ARGS)

test: lint $(VENV)/installed
	$(BIN)/python -m pytest -q $(WORKERS)

test-all: lint $(VENV)/installed
	VTENSOR_TEST_ALL=1 $(BIN)/python -m pytest -q $(WORKERS)

lint: $(VENV)/needs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/needs
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The wheel, and the one that redirects `import onnxruntime` to it.
wheel: $(VENV)/installed
	rm -rf build/wheel
	$(BIN)/python -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir build/wheel .
	$(BIN)/python -m pip wheel --quiet --no-build-isolation --no-deps --wheel-dir dist .ci/onnxruntime
	PATH="$(CURDIR)/$(BIN):$$PATH" .ci/repair build/wheel/*.whl dist

# What building, running and testing need.
$(VENV)/needs: pyproject.toml .ci/needs
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python .ci/needs | $(BIN)/python -m pip install --quiet --requirement /dev/stdin
	touch $@

# An editable install, so that Python sees the sources; it is made again when what it builds from changes.
# It builds with what the environment holds, no environment that is new each time: then only files
# that have changed are compiled, and the wheel shares what is compiled.
$(VENV)/installed: $(VENV)/needs pyproject.toml $(NATIVE)
	$(BIN)/python -m pip install --quiet --no-build-isolation --no-deps --editable .
	touch $@

# What VTensor is compared with, as far as it installs here.
$(VENV)/evaluated: $(VENV)/installed
	$(BIN)/python -m pip install --quiet "vtensor-layouts[eval]"
	touch $@

clean:
	rm -rf build dist out $(VENV)
