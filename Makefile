# `make` lists the targets. Each one makes .venv first when it is missing, and again when requirements.txt has changed.
PYTHON ?= python3
PIP_ARGS ?=
VENV := .venv
READY := $(VENV)/.ready
RUN := $(VENV)/bin/python

.DEFAULT_GOAL := help
.PHONY: help run test lint bench train clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(READY) ## chapter 4's tour on the embedded model
	@$(RUN) examples/ch04/gpt2_from_scratch.py

test: $(READY) ## all tests
	@$(RUN) -m unittest discover -s tests -v

lint: $(READY) ## ruff: rules and layout
	@$(RUN) -m ruff check . && $(RUN) -m ruff format --check .

bench: $(READY) ## speed and memory beside transformers, as ratios; takes minutes
	@$(RUN) scripts/bench.py

train: $(READY) ## train the embedded model anew, or go on where the last call stopped; takes about an hour
	@$(RUN) scripts/train_embedded_model.py

clean: ## remove .venv, caches and the training's work folder
	rm -rf $(VENV) .cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): requirements.txt
	@command -v $(PYTHON) >/dev/null || { echo "error: no $(PYTHON) here; install Python 3.11 or newer, or name it: make PYTHON=..." >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is older than Python 3.11; name a newer one: make PYTHON=python3.12" >&2; exit 2; }
	$(PYTHON) -m venv --clear $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) -r requirements.txt
	@touch $(READY)
