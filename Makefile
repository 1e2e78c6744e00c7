# Everything here works in a private environment (.venv) made from PYTHON, which must be 3.11 or newer.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help run demo test test-wheel dist states race crash life lint bench clean

help:            ## what can be asked for
	@awk -F '## ' '/^[a-z]+:.*## / { split($$1, name, ":"); printf "  make %-10s %s\n", name[1], $$2 }' $(MAKEFILE_LIST)
	@echo "  make PYTHON=python3.13 …  chooses another interpreter"

run: $(VENV)/.run-ready     ## the daemon, in the foreground, on your own transcripts
	@exec $(BIN)/fabled daemon

demo: $(VENV)/.run-ready    ## index, search and thread on a small invented history
	@$(BIN)/fabled demo

test: $(VENV)/.dev-ready    ## all tests
	@$(BIN)/python -m pytest $(ARGS)

states: $(VENV)/.dev-ready  ## the long form of the state machine: 2,000 histories (ARGS adds to pytest)
	@FABLED_STATES=2000 $(BIN)/python -m pytest -n 0 -o timeout=0 tests/test_indexer_states.py $(ARGS)

race: $(VENV)/.dev-ready    ## the long form of the races: 20,000 appends, 200 replacements, 200 prunes
	@FABLED_RACE=20000 $(BIN)/python -m pytest -n 0 -o timeout=0 tests/test_race.py tests/test_race_prune.py $(ARGS)

crash: $(VENV)/.dev-ready   ## the long form of the crash matrices: killed and failed at every call
	@FABLED_CRASH=1 $(BIN)/python -m pytest -o timeout=0 tests/crash $(ARGS)

life: $(VENV)/.dev-ready    ## the long form of a daemon's life: thirty rounds of it, some ten minutes
	@FABLED_LIFE=30 $(BIN)/python -m pytest -n 0 -s -o timeout=0 tests/daemon/test_life.py $(ARGS)

lint: $(VENV)/.dev-ready    ## ruff, mypy --strict and the import table
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -n 0 tests/test_layers.py

dist: $(VENV)/.dev-ready    ## the wheel and the source archive, in dist/
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist .

# What people install, without this checkout beside it: the commands, the daemon and the service from the wheel alone.
WHEEL_TESTS := tests/test_cli.py tests/test_cli_answers.py tests/test_cli_vault.py tests/test_client.py \
  tests/daemon/test_app.py tests/service/test_files.py tests/service/test_launchd.py tests/service/test_removal.py

test-wheel: dist            ## the tests of the commands and the daemon, on the built wheel
	@rm -rf .wheel
	@mkdir -p .wheel/tree
	@$(PYTHON) -m venv .wheel/venv
	@.wheel/venv/bin/python -m pip install --quiet --disable-pip-version-check "$$(ls dist/*.whl)[dev]"
	@cp -R tests pyproject.toml .wheel/tree/
	@[ ! -d ../shared ] || ln -sfn "$$(cd ../shared && pwd)" .wheel/shared
	@cd .wheel/tree && env -u PYTHONPATH ../venv/bin/python -m pytest $(WHEEL_TESTS) $(ARGS)

bench: $(VENV)/.run-ready   ## measured figures beside their targets (ARGS=--quick: in two minutes)
	@$(BIN)/python -m benchmarks.run $(ARGS)

clean:           ## removes the environment and everything generated
	rm -rf $(VENV) .wheel .bench build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps make a second call instant; a changed pyproject.toml installs again.
$(VENV)/.run-ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "fabled needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Next: make PYTHON=python3.12 …" >&2; exit 1; }
	@echo "Preparing $(VENV) (once) …" >&2
	@$(PYTHON) -m venv $(VENV) || { \
	  echo "No virtual environment could be made. On Debian or Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(PIP) --upgrade pip
	@$(PIP) --editable .
	@touch $@

$(VENV)/.dev-ready: $(VENV)/.run-ready
	@echo "Adding the tools for tests …" >&2
	@$(PIP) --editable '.[dev]'
	@touch $@
