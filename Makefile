# Each target does its own set-up: a virtual environment in .venv, made once and remade when pyproject.toml changes.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Processes that share the tests; each computes with one thread.
WORKERS ?= auto

.PHONY: demo shell test test-gpu campaign check format bench results kernels-package package site notebooks clean

demo: $(VENV)/ready        ## train ReLA-g and softmax on the embedded corpus and compare them
	$(BIN)/rela demo

shell: $(VENV)/ready       ## a shell in which the command line is `rela`
	PATH="$(CURDIR)/$(BIN):$$PATH" $${SHELL:-sh}

test: $(VENV)/ready        ## every test that needs no GPU
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

test-gpu:                  ## the tests of the fused kernels, with the python that sees the GPU
	$(PYTHON) -m pytest -m gpu -W default

campaign: $(VENV)/ready    ## the long attacks that docs/reliability.md counts
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m campaign -n $(WORKERS)

check: $(VENV)/ready       ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench:                     ## the tables under results/, with the python that sees the GPU
	$(PYTHON) -m benchmarks.attention
	$(PYTHON) -m benchmarks.front_door

results: $(VENV)/ready     ## the tables and figures of docs/results*.md, from experiments/rows
	$(BIN)/python -m experiments results

kernels-package: $(VENV)/ready  ## dist/kernels: the attention library for the kernels hub, pure Python and Triton
	$(BIN)/python -m scripts.kernels_package

package: $(VENV)/ready     ## build sdist and wheel, install them elsewhere, with each extra; a user's types
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "campaign or not campaign" -n $(WORKERS) tests/system/test_package.py

site: $(VENV)/docs         ## build/site: docs/ as web pages, every link checked; needs no network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

notebooks: $(VENV)/docs    ## run the notebooks from top to bottom
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m campaign tests/documents/test_notebooks.py

$(VENV)/docs: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $@

$(VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
