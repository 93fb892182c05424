# Two commands do everything on a fresh Linux machine with Python 3.11 or 3.12:
#   make study    install the workflow's pins into .venv and run the default study
#   make test     the same, then the tests
PYTHON ?= python3
CORES ?= 1
BIN := .venv/bin
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: study test check figures bench clean help

study: $(BIN)/.workflow ## install the workflow's pins into .venv and run the default study
	snakemake --cores $(CORES) all

# Tests of the real server come last and alone: they need both cores.
test: study $(BIN)/.dev .venv-crate/.installed check ## the same, then check, then every test
	python -m pytest -n 2 --dist worksteal -m "not embedded"
	python -m pytest -m embedded

check: $(BIN)/.dev ## formatting, lint, types, layers: seconds, no server
	ruff check .
	ruff format --check .
	snakefmt --check Snakefile workflow/rules
	mypy
	PYTHONPATH=workflow/lib lint-imports
	snakemake --lint

# The path as YAML, which stays text whatever is in it, and that in quotes for the shell.
figures: $(BIN)/.workflow ## redraw what somebody shared: RESULTS=path, a results folder or an archive
	@test -n "$(if $(value RESULTS),given)" || \
	{ echo "make figures RESULTS=path: a results folder or an archive" >&2; exit 2; }
	snakemake --cores $(CORES) figures \
	--config '$(subst ','\'',results= '$(subst ','',$(value RESULTS))' )'

bench: $(BIN)/.dev ## the README's table of what things cost: minutes, on a quiet machine
	python tests/bench.py

clean: ## remove what the workflow installed and trained; results are yours to remove
	rm -rf .venv .venv-crate resources .snakemake

help: ## these lines
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' Makefile

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
