# One entry for people and CI: CI runs `make check test test-browser test-cluster` and nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: help venv check format test test-cluster test-browser simulate simulate-consumer chaos bench demo lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The stamp is newer than the lock exactly when the environment is complete.
$(VENV)/.complete: requirements/dev.txt requirements/official-client.txt pyproject.toml
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --require-hashes -r requirements/dev.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	$(PYTHON) -m venv $(VENV)/official-client
	$(VENV)/official-client/bin/pip install --quiet --require-hashes -r requirements/official-client.txt
	touch $@

venv: $(VENV)/.complete ## set up .venv with the locked dependencies

check: venv ## format, lint, types, import contracts (what CI checks before the tests)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: venv ## rewrite the sources in the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: venv ## all tests that need no cluster
	$(BIN)/pytest -n 3 --dist loadfile
	$(BIN)/pytest -m chaos tests/chaos

test-browser: venv ## the timeline's page in a real headless browser (needs chromium)
	$(BIN)/pytest -m browser tests/browser

simulate: venv ## random histories of the producer: SEED=0 HISTORIES=10000
	$(BIN)/python -m tests.simulation.producer $(or $(SEED),0) $(or $(HISTORIES),10000)

simulate-consumer: venv ## random histories of the consumer: SEED=0 HISTORIES=10000
	$(BIN)/python -m tests.simulation.consumer $(or $(SEED),0) $(or $(HISTORIES),10000)

chaos: venv ## everything fails at once: SEED=1 DURATION_S=40 NODES=1 (or 3)
	$(BIN)/python -m tests.chaos $(or $(SEED),1) $(or $(DURATION_S),40) --nodes $(or $(NODES),1)

bench: venv ## measure: 100,000 objects in memory, a start with 10,000, a sweep, latency, a replay (a quarter of an hour)
	$(BIN)/python -m bench.producer_scale
	$(BIN)/python -m bench.producer_start
	$(BIN)/python -m bench.sweep
	$(BIN)/python -m bench.latency
	$(BIN)/python -m bench.replay_plan

demo: venv ## show the whole pipeline at work on this machine, and check the result
	$(BIN)/isvc-sync demo

include tests/cluster/Makefile.inc

# A week behind the registry: a release that is withdrawn or turns out malicious is usually found by then.
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --exclude-newer "$$(date -u -d '7 days ago' +%FT00:00:00Z)"

lock: ## resolve the dependencies anew (needs uv)
	$(COMPILE) --all-extras -o requirements/dev.txt pyproject.toml
	$(COMPILE) --extra cli -c requirements/dev.txt -o requirements/run.txt pyproject.toml
	$(COMPILE) -o requirements/official-client.txt requirements/official-client.in

clean: ## remove the environment and everything built
	rm -rf $(VENV) build *.egg-info
