# Two commands do everything on a fresh machine with Python 3.11 and g++: `make run` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
NATIVE := $(shell find native -type f 2>/dev/null)

.PHONY: run test test-all lint format clean

run: $(VENV)/installed
	$(BIN)/python -m eval.demo

test: lint
	$(BIN)/python -m pytest -q

test-all: lint
	VTENSOR_TEST_ALL=1 $(BIN)/python -m pytest -q

lint: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(VENV)/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# An editable install, so that Python sees the sources; it is made again when what it builds from changes.
$(VENV)/installed: pyproject.toml $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $@

clean:
	rm -rf build dist out $(VENV)
