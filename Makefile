# Two commands: `make quickstart` and `make test`. Each sets up what it needs in .venv by itself.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
TESTED := torch==2.13.0
# Two workers with one thread each: parallel tests that share the cores must not fight for them.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2
# Tests run in another order each time, which `make test ORDER=...` repeats.
ifndef ORDER
ORDER := $(shell od -An -N3 -tu4 /dev/urandom | tr -d ' ')
endif
export ORDER
SHUFFLED = $(PYTEST) --randomly-seed=$(ORDER)
# Python compiles what it imports; to compile every installed file would take most of the time of an installation.
INSTALL := install --quiet --no-compile

.DEFAULT_GOAL := help
.PHONY: help setup quickstart test test-all test-odd room lint types test-source test-wheel compat site browser bench docs \
  pages release clean

help:  ## list the commands
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(VENV)/.ready  ## install the project and its tools in .venv

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip $(INSTALL) -c constraints.txt $(TESTED) -e '.[dev]'
	touch $@

quickstart: setup  ## a recommender that stops learning, and two more findings, measured; and a page about them
	$(BIN)/relucid run quickstart
	$(BIN)/relucid report quickstart -o quickstart.html --force

test: setup  ## everything a change must pass
	$(MAKE) --no-print-directory --jobs 2 --output-sync=target types lint site test-wheel  # a core each
	$(MAKE) --no-print-directory test-source

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

test-source: setup
	@echo "The order of the tests: make test ORDER=$(ORDER)"
	$(SHUFFLED) -m 'not slow'

test-all: lint types  ## all tests, the slow ones too
	@echo "The order of the tests: make test-all ORDER=$(ORDER)"
	$(SHUFFLED)

# What reads and writes files, starts processes or prints; all of it would take an hour.
ODD_TESTS ?= $(wildcard tests/test_*.py) tests/data tests/inspect/test_examine.py tests/report tests/cli tests/experiments
ODD := path locked bare core ascii comma

test-odd: setup  ## tests in odd places: paths, users, locales, one core, other Pythons
	.ci/odd $(ODD) -- $(ODD_TESTS)
	.ci/odd 3.12 3.13

# What stands on a room is tested as well, by its tests of importing it.
room: setup  ## lint, types and tests of one room: make room ROOM=inspect
	$(BIN)/ruff check src/relucid/$(ROOM) tests/$(ROOM)
	$(BIN)/ruff format --check src/relucid/$(ROOM) tests/$(ROOM)
	$(BIN)/mypy
	$(SHUFFLED) -m 'not slow' tests/test_import.py tests/$(ROOM) src/relucid/$(ROOM) $(STANDING_ON_$(ROOM))

STANDING_ON_nn      := tests/models tests/convert
STANDING_ON_models  := tests/convert
STANDING_ON_data    := tests/train tests/cli
STANDING_ON_inspect := tests/convert tests/cli/test_examine.py
STANDING_ON_convert := tests/cli/test_convert.py tests/_improve
STANDING_ON_train   := tests/experiments tests/_improve

# Some of each room of the core, as a user installs it: the wheel, with torch and numpy and none of the extras.
# All of it is tested from the source; here it must only be complete.
WHEEL_TESTS := tests/test_import.py $(addprefix tests/, \
  nn/test_activation.py nn/test_geometric.py nn/test_rules.py models/test_registry.py \
  inspect/test_examine.py inspect/test_measures.py convert/test_crelu.py convert/test_merge.py)

test-wheel: setup build/wheel-venv/.ready
	rm -rf build/wheel
	$(BIN)/python -m build --wheel --outdir build/wheel . > /dev/null
	$(BIN)/pip --python build/wheel-venv/bin/python $(INSTALL) --no-deps --force-reinstall build/wheel/*.whl
	OMP_NUM_THREADS=1 build/wheel-venv/bin/pytest -q -m 'not slow' $(WHEEL_TESTS)

build/wheel-venv/.ready: constraints.txt | setup
	$(PYTHON) -m venv --without-pip build/wheel-venv
	$(BIN)/pip --python build/wheel-venv/bin/python $(INSTALL) -c constraints.txt $(TESTED) numpy pytest hypothesis
	touch $@

# The core's tests with another release of torch: `make compat TORCH=2.8.0`, or also `NUMPY=1.26.4`.
TORCH  ?= 2.15.0
NUMPY  ?=
COMPAT ?= build/compat-$(TORCH)
COMPAT_TESTS ?= tests/test_import.py tests/test_torch.py $(addprefix tests/,nn models inspect convert)

compat: $(COMPAT)/.ready  ## the core's tests with TORCH=2.8.0, say; installs it, several GB
	PYTHONPATH="$(CURDIR)/src" OMP_NUM_THREADS=1 $(COMPAT)/bin/python -m pytest -q -m 'not slow' $(COMPAT_TESTS)

$(COMPAT)/.ready:
	$(PYTHON) -m venv $(COMPAT)
	$(COMPAT)/bin/pip $(INSTALL) torch==$(TORCH) numpy$(addprefix ==,$(NUMPY)) networkx safetensors pytest hypothesis
	touch $@

# The tests of pages in a browser are skipped without it, and say so.
browser:  ## install chromium for the tests of pages, where apt-get can
	@if command -v chromium > /dev/null && command -v chromedriver > /dev/null; then \
	  echo "chromium is installed"; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  (apt-get update -qq; timeout 180 apt-get install -y -qq chromium chromium-driver) > /dev/null 2>&1 \
	    || echo "apt-get could not install chromium: the browser tests will be skipped"; \
	else \
	  echo "only root with apt-get can install chromium here: the browser tests will be skipped"; \
	fi

BENCHMARKS := units layers propagation reversible models inspection convert ensemble training pipeline

# `make bench BENCHMARKS="layers units"` measures these only; the others keep their figures in results.json.
bench: setup  ## measure against the published formulations; wants a quiet machine
	for name in $(BENCHMARKS); do $(BIN)/python benchmarks/$$name.py || exit 1; done
	$(BIN)/python benchmarks/table.py

docs: pages  ## write the generated pages and build the site in site/
	$(MAKE) --no-print-directory site

# A broken link, a missing page or a public name without an entry fails. Not --quiet: it hides warnings from --strict.
site: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pages: setup  ## write again what is generated from results/ and the claims
	$(BIN)/python docs/pages.py
	$(BIN)/python docs/choices.py
	$(BIN)/python docs/headline.py
	$(BIN)/python docs/quoted.py

# The version is set in src/relucid/__init__.py and CITATION.cff, and its changes have a section in CHANGELOG.md; a test
# compares the three. Pushing the tag publishes the wheel.
release: setup  ## test the wheel and tag the commit: make release VERSION=0.4.0
	@test -n "$(VERSION)" || { echo "give the version: make release VERSION=0.4.0"; exit 1; }
	@test -z "$$(git status --porcelain)" || { echo "commit or remove what git status shows"; exit 1; }
	@test "$$($(BIN)/python -c 'import relucid; print(relucid.__version__)')" = "$(VERSION)" \
	  || { echo "src/relucid/__init__.py has another version"; exit 1; }
	@! grep -q '^## Unreleased' CHANGELOG.md || { echo "CHANGELOG.md still says Unreleased"; exit 1; }
	$(MAKE) --no-print-directory test
	git tag --annotate "v$(VERSION)" --message "relucid $(VERSION)"
	@echo "Now: git push origin v$(VERSION)"

clean:
	rm -rf $(VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
