# Two commands do everything on a fresh Linux machine with Python 3.11 or 3.12:
#   make study    install the workflow's pins into .venv and run the default study
#   make test     the same, then the tests
PYTHON ?= python3
CORES ?= 1
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: study test check figures bench clean help

study: $(BIN)/.workflow
	snakemake --cores $(CORES) all

# Tests of the real server come last and alone: they need both cores.
test: study $(BIN)/.dev .venv-crate/.installed check
	python -m pytest -n 2 --dist worksteal -m "not embedded"
	python -m pytest -m embedded

# Formatting, lint, types, layers; seconds, no server.
check: $(BIN)/.dev
	ruff check .
	ruff format --check .
	snakefmt --check Snakefile workflow/rules
	mypy
	PYTHONPATH=workflow/lib lint-imports
	snakemake --lint

# Redraw what somebody shared: make figures RESULTS=path (a folder or an archive).
figures: $(BIN)/.workflow
	@test -n "$(RESULTS)" || { echo "make figures RESULTS=path: a results folder or an archive" >&2; exit 2; }
	snakemake --cores $(CORES) figures --config results=$(RESULTS)

# The README's performance table; takes minutes, wants a quiet machine.
bench: $(BIN)/.dev
	python tests/bench.py

$(BIN)/.workflow: envs/workflow.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -r envs/workflow.txt
	touch $@

$(BIN)/.dev: envs/dev.txt $(BIN)/.workflow
	$(BIN)/python -m pip install --quiet -r envs/dev.txt
	touch $@

.venv-crate/.installed: envs/crate.txt
	$(PYTHON) -m venv .venv-crate
	.venv-crate/bin/python -m pip install --quiet -r envs/crate.txt
	touch $@

# Removes what the workflow installed and trained; results are yours to remove.
clean:
	rm -rf .venv .venv-crate resources .snakemake

help:
	@sed -n '1,3p' Makefile
