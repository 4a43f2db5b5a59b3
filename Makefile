# Two commands on a fresh machine; each does all of its own set-up, and nothing twice.
#   make demo   trains the quickstart and shows what it learned
#   make test   lints, checks types, runs every test
# and one that takes about half an hour on two cores:
#   make bench-rows   measures the rows of the algorithm table that have not been measured yet
# and two that say how much faster than stock TRL a step is: a minute, and a quarter of an hour with every table written anew
#   make bench        make bench-full
# and one, minutes long, that says what it saves to ask slow rewards while the model writes
#   make bench-overlap
# After a part was added or renamed:
#   make tables   writes the tables of rewards and worlds anew, in README.md and plugins/README.md
# and two that take minutes, most of them for pip:
#   make test-packages   installs every package under plugins/ alone, from its wheel, and runs its tests there
#   make test-guests     installs verl, OpenRLHF and verifiers beside the core: do their rewards score what they score at home?
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PLUGINS := rlm-math rlm-sandbox rlm-code rlm-judge rlm-intrinsic rlm-process rlm-games
# reasoning-gym needs pycosat, which pip builds; without a C compiler everything else is made all the same
NO_GYM := 'rlm-gym stays out, and its tests are skipped: is there a C compiler (gcc or clang)?'

# Small models are faster on one thread per process, and results do not depend on the number of cores.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false
export HF_HUB_OFFLINE ?= 1
export HF_HUB_DISABLE_TELEMETRY ?= 1

.PHONY: demo test test-packages test-guests bench bench-full bench-overlap bench-rows tables lint format clean

demo: $(READY)
	$(BIN)/rlm train recipes/lessons/01-addition.yaml --name demo

test: $(READY) lint
	$(BIN)/python -m pytest -n 2 --dist worksteal

test-packages: $(READY)
	$(BIN)/python tests/alone.py

test-guests: $(READY)
	$(BIN)/python tests/with_guests.py

bench: $(READY)
	$(BIN)/python benchmarks/grpo_speed.py

bench-full: $(READY)
	$(BIN)/python benchmarks/grpo_speed.py --full

bench-overlap: $(READY)
	$(BIN)/python benchmarks/overlap.py

bench-rows: $(READY)
	$(BIN)/python benchmarks/rows.py

tables: $(READY)
	$(BIN)/python plugins/catalogue.py

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(READY): pyproject.toml constraints.txt $(PLUGINS:%=plugins/%/pyproject.toml) plugins/rlm-gym/pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rlm-plugins needs Python 3.11 or newer; say make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]' $(PLUGINS:%=-e plugins/%)
	$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e plugins/rlm-gym || echo $(NO_GYM)
	touch $(READY)
