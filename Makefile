# Every way in. `make demo` and `make test` need nothing done before; the rest is for daily work.
PYTHON ?= python3.11
MINUTES ?= 30
VENV   := .venv
BIN    := $(VENV)/bin
UV     := $(BIN)/uv
STAMP  := $(VENV)/.installed
CHECKS := $(BIN)/python .ci/checks.py
READY   = $(MAKE) --no-print-directory prerequisites-$@ setup

.PHONY: help demo test check soak bench bench-check gen format lint types lock setup clean
.NOTPARALLEL:

help: ## what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: ## three hosts, one cluster, 10,000 messages, a power cut, a host that leaves, told as it happens (KEEP=1 keeps the hosts)
	@$(READY)
	@$(BIN)/python -m demo

test: ## what has to hold, of long tables the share of the day: needs root and at most 20 minutes
	@$(READY)
	@$(CHECKS) test

check: ## the fast part of it, of what was changed: no root, no hosts, a minute
	@$(READY)
	@$(CHECKS) check

soak: ## fresh seeds, fuzzers and crash points: make soak MINUTES=30
	@$(MAKE) --no-print-directory prerequisites-check setup
	@$(UV) pip install -q --python $(BIN)/python --require-hashes -r requirements/soak.lock
	@$(BIN)/python .ci/soak.py --minutes $(MINUTES)

bench: ## our broker and its peers under the same load
	@$(READY)
	@$(BIN)/python -m bench $(BENCH)

bench-check: ## the same, and fails where a floor is missed
	@$(MAKE) --no-print-directory prerequisites-bench setup
	@$(BIN)/python -m bench --check $(BENCH)

gen: $(STAMP) ## references, schema and role variables from their one declaration
	@$(BIN)/python gen/generate.py

format: $(STAMP) ## what the formatter and the linter can mend by themselves
	@$(BIN)/ruff check --fix -q .
	@$(BIN)/ruff format -q .

lint types: $(STAMP) ## one part of check
	@$(CHECKS) $@

setup: $(STAMP) ## the development environment in .venv, from the lock file
$(STAMP): requirements/dev.lock broker/pyproject.toml cli/pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check "$$(grep -oE '^uv==[0-9.]+' requirements/dev.lock)"
	$(UV) pip install -q --python $(BIN)/python --require-hashes -r requirements/dev.lock
	$(UV) pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e broker -e cli
	mkdir -p .dev/ansible_collections/mqops
	ln -sfn ../../.. .dev/ansible_collections/mqops/cluster
	touch $@

prerequisites-%:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is missing (Debian: python3 python3-venv)" >&2; exit 1; }
	@$(PYTHON) .ci/prerequisites.py $*

lock: ## compile requirements/*.in to lock files with hashes and without addresses
	for name in broker cli dev soak; do \
	  $(UV) pip compile -q --upgrade --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
	    requirements/$$name.in -o requirements/$$name.lock || exit 1; done

clean: ## everything that was made here, the environment too
	rm -rf $(VENV) .dev .build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage .ansible
