# Two commands: `make reproduce` and `make test`. Both make their own environment and fetch what they need.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
JOBS   ?= 2
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -q
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt

.PHONY: reproduce test rehearse help
help:
	@echo "make reproduce   environment, small weights, then every artefact of the mini profile into figures/mini/"
	@echo "make test        environment, weights, then notebooks, pytest, sync check and one live question"
	@echo "make rehearse    the paper's profile on the real vLLM without a GPU: its CPU build in an environment of its own (7 GB), a tiny model with random weights"

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(f"reveal_kit needs Python 3.11 or newer, $(PYTHON) is {v.major}.{v.minor}. Say: make PYTHON=/path/to/python3.11 …" if v < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV) || (echo "No venv module: apt-get install python3-venv, or name another interpreter with PYTHON=…"; exit 1)
	@touch $@

$(VENV)/.run: $(VENV)/.made pyproject.toml constraints.txt
	@echo "Installing reveal_kit"; $(PIP) install -e . && touch $@

$(VENV)/.dev: $(VENV)/.run
	@echo "Installing the test tools"; $(PIP) install -e '.[dev]' && touch $@

$(VENV)/.mini: $(VENV)/.run reveal_kit/assets/models.toml
	@$(BIN)/reveal models pull mini && touch $@

reproduce: $(VENV)/.mini
	@$(BIN)/reveal reproduce --profile mini --jobs $(JOBS)

test: $(VENV)/.dev $(VENV)/.mini
	@$(BIN)/nbdev_test --n_workers 2 --do_print
	@$(BIN)/python -m pytest -q -n 2 --dist loadfile

rehearse: $(VENV)/.mini
	@$(BIN)/python -m tests.rehearsal.engine $(ARGS)
