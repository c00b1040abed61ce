# Everything a person does with this checkout. `make` alone says what there is.
#
# Only python 3.11+, git and make are needed: `make setup` builds a virtual environment in .venv (pip brings uv,
# uv the rest) and keeps every download in .cache, so that the second time costs seconds and no network.

PYTHON ?= python3
BIN    := .venv/bin
STAMP  := .venv/.ready

export PIP_CACHE_DIR := $(CURDIR)/.cache/pip
export UV_CACHE_DIR  := $(CURDIR)/.cache/uv
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export NO_MKDOCS_2_WARNING := 1

.DEFAULT_GOAL := help
.PHONY: help setup demo check test bench soak bundle docs lock sbom clean

help: ## Say what there is.
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-7s %s\n", $$1, $$2}' Makefile

setup: $(STAMP) ## Make the virtual environment in .venv (every other target does it when needed).

# Downloads fail now and then: each is tried four times, a little later each time.
define retry
for pause in 2 5 15 no; do $(1) && exit 0; [ $$pause = no ] || { echo "again in $$pause s" >&2; sleep $$pause; }; done; exit 1
endef

$(STAMP): pyproject.toml supply/lock.txt supply/build.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Horae needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Say: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' \
	  || { echo "$(PYTHON) has no venv module. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear .venv
	@$(call retry,$(BIN)/pip install --quiet --require-hashes --requirement supply/build.txt)
	@$(call retry,$(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode --require-hashes --requirements supply/lock.txt)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --offline --editable .
	@touch $@

demo: $(STAMP) ## Watch real training jobs of three tenants share a small cluster (about 90 s).
	@$(BIN)/horae demo $(ARGS)

check: $(STAMP) ## Style, types, import contracts, the SDK's minimum Python, strict documentation.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/vermin --quiet --no-tips --violations --target=3.7- horae/elastic slurm_plugin/on_node yarn_bridge/on_node
	$(BIN)/python -m supply.locks check
	$(BIN)/python -m supply.imports
	$(BIN)/python -m supply.house --check
	@# Not by --quiet: with it mkdocs counts no warnings, and --strict means nothing.
	@echo "$(BIN)/mkdocs build --strict"; mkdir -p .cache; \
	  $(BIN)/mkdocs build --strict --site-dir .cache/site > .cache/docs.log 2>&1 || { cat .cache/docs.log; exit 1; }

test: $(STAMP) ## All checks and all tests that need nothing else (HORAE_REAL=1: also real daemons, frameworks).
	@$(BIN)/python tests/run.py $(ARGS)

bench: $(STAMP) ## Run every benchmark again, and say what moved since the last commit.
	@for b in benchmarks/*.py; do case $$b in */_*) continue;; esac; echo "== $$b"; $(BIN)/python $$b || exit 1; done
	@$(BIN)/python -m benchmarks._moved

soak: $(STAMP) ## The long tests, and the generated cases of the others with new dice.
	$(BIN)/pytest -m soak --timeout 7200 $(ARGS)
	HORAE_RANDOM=1 $(BIN)/pytest -m 'not soak and not real and not root' -n auto tests/policy tests/profiler $(ARGS)

bundle: $(STAMP) ## One archive in dist/ from which a Slurm site installs Horae without a network.
	@PYTHON=$(BIN)/python slurm_plugin/site/bundle.sh $(ARGS)

docs: $(STAMP) ## Build the documentation into site/.
	$(BIN)/mkdocs build --strict

LOCKED = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
  --custom-compile-command 'make lock'

lock: $(STAMP) ## Lock anew what setup, tests and bundles install (ARGS=--upgrade: the newest versions).
	@$(LOCKED) pyproject.toml --extra dev --output-file supply/lock.txt $(ARGS)
	@$(LOCKED) pyproject.toml --extra slurm --extra top --extra zstd --constraints supply/lock.txt --output-file supply/slurm.txt
	@$(LOCKED) supply/build.in --constraints supply/lock.txt --output-file supply/build.txt $(ARGS)
	@$(BIN)/python -m supply.locks check

sbom: $(STAMP) ## The bill of materials (CycloneDX) of what the locks install, into dist/.
	@$(BIN)/python -m supply.sbom --output dist/horae.cdx.json

clean: ## Remove what was built here; .cache (the downloads) stays.
	rm -rf .venv site dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .grimp_cache
