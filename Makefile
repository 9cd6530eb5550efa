# The two commands that matter are `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
SITE = NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
SINGLE := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUMBA_NUM_THREADS=1

.PHONY: demo test lint docs format bench fuzz faults crash model test-lowest test-flower release-check clean help

help:  ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/core  ## hospitals cluster together and forget patients; draws a picture
	@$(BIN)/fedforget demo

test: $(VENV)/dev  ## every test except the long campaigns
	@$(BIN)/fedforget warm-up
	$(SINGLE) $(BIN)/python -m pytest -n 2 --dist worksteal

fuzz: needs-fuzz $(VENV)/dev  ## ten million corrupted vectors; takes five minutes
	@$(BIN)/fedforget warm-up
	FEDFORGET_FUZZ=100 $(SINGLE) $(BIN)/python -m pytest -n 2 --dist worksteal tests/scma/test_codec_contract.py

faults: needs-faults $(VENV)/dev  ## ten thousand rounds under a seeded fault injector
	@$(BIN)/fedforget warm-up
	@$(SINGLE) $(BIN)/python tests/simulator/__main__.py --schedules 10000 --jobs 2

crash: needs-crash $(VENV)/dev  ## five thousand kills of clients and servers in the middle of their work
	@$(BIN)/fedforget warm-up
	@$(SINGLE) $(BIN)/python tests/parties/crash.py --kills 5000 --jobs 2

model: needs-model $(VENV)/dev  ## the protocol's rules against any server, enumerated; takes five minutes
	@$(BIN)/python tests/model/__main__.py --jobs 2

test-lowest:  ## kernels and models on the lowest numba, NumPy and SciPy that are declared
	@$(PYTHON) -m venv build/lowest
	@build/lowest/bin/python -m pip install --quiet --disable-pip-version-check \
	  numba==0.60.* numpy==2.0.* scipy==1.13.* . pytest hypothesis
	$(SINGLE) build/lowest/bin/python -m pytest -q -o addopts= tests/test_kernel_cache.py \
	  tests/test_kernels.py tests/test_recorded_digests.py tests/clustering

test-flower: needs-test-flower $(VENV)/dev  ## SuperNodes killed at every stage, restarts, simulations; takes a while
	@$(BIN)/fedforget warm-up
	FEDFORGET_FLOWER=1 $(SINGLE) $(BIN)/python -m pytest tests/flower

lint: $(VENV)/dev  ## ruff, mypy, and the site without a warning
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(SITE) --quiet --site-dir build/site-check

docs: $(VENV)/dev  ## the site, in build/site; open build/site/index.html
	$(SITE)

format: $(VENV)/dev  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: needs-bench $(VENV)/dev $(VENV)/others  ## every benchmark, single-threaded; figures in build/bench
	@$(BIN)/fedforget warm-up
	@$(BIN)/python benchmarks/run_all.py $(BENCH)

release-check: $(VENV)/release  ## wheel and sdist in clean environments, licences, SBOM, audit
	$(BIN)/python tools/release_check.py

# Said before anything is installed: how long it takes, how many cores, which programs.
needs-%:
	@$(PYTHON) tests/needs.py $*

clean:  ## remove everything that these commands made
	rm -rf $(VENV) demo-output dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("fedforget needs Python 3.11 or later" if sys.version_info < (3, 11) else 0)'
	@echo "Setting up $(VENV) …"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/core: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing fedforget and its dependencies into $(VENV) …"
	@$(PIP) -e '.[bench]'
	@touch $@

$(VENV)/dev: $(VENV)/core
	@echo "Installing the development tools into $(VENV) …"
	@$(PIP) -e '.[dev]'
	@touch $@

$(VENV)/others: $(VENV)/dev
	@$(PIP) -e '.[others]' || echo "Without faiss and scikit-learn-intelex, which do not install here"
	@touch $@

$(VENV)/release: $(VENV)/dev
	@$(PIP) -e '.[release]'
	@touch $@
