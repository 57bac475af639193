# Needs Python 3.11 and Java 17 or newer; everything else is made here.
PYTHON ?= python3.11
LAKE ?= build/lake
REPORT ?= build/report
ARCHIVE ?= examples/archive
BIN := .venv/bin
# Trust what the system trusts, as pip does.
export UV_SYSTEM_CERTS := 1
export UV_NATIVE_TLS := 1

.PHONY: run test check bench setup docs lock clean

run: setup  ## run the nightly DAG through Airflow on the example archive
	@examples/night.sh $(ARCHIVE) $(LAKE) $(REPORT)

test: setup  ## run the tests: those that start Spark, and beside them all others, told at the end
	@mkdir -p build; $(BIN)/python -m pytest -m "not spark and not airflow" > build/other-tests.log 2>&1 & others=$$!; \
	trap 'kill $$others 2>/dev/null' INT TERM; \
	$(BIN)/python -m pytest -m "spark or airflow"; failed=$$?; \
	wait $$others || failed=1; cat build/other-tests.log; exit $$failed

check: .venv/.ready  ## formatting, types, import contracts, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/fleetdiff plan --json | diff - dags/plan.json
	$(BIN)/fleetdiff plan --tables | diff - docs/tables.md

bench: setup  ## run the benchmarks: see bench/README.md
	$(BIN)/python bench/night_bench.py

docs: setup  ## write what is generated
	$(BIN)/fleetdiff plan --json > dags/plan.json
	$(BIN)/fleetdiff plan --tables > docs/tables.md

setup: java .venv/.ready .venv-airflow/.ready .jars/.ready

java:
	@examples/java.sh

.venv/.ready: requirements/jobs.txt requirements/dev.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "fleetdiff needs Python 3.11: sudo apt-get install -y python3.11 python3.11-venv, or make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "setup: environment of the jobs (.venv, about a minute)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input --require-hashes -r requirements/uv.txt
	@$(BIN)/uv pip sync --quiet --compile-bytecode --python .venv --require-hashes requirements/uv.txt requirements/jobs.txt requirements/dev.txt
	@$(BIN)/uv pip install --quiet --python .venv --no-deps --editable .
	@touch $@

.venv-airflow/.ready: requirements/airflow.txt .venv/.ready
	@echo "setup: environment of Airflow (.venv-airflow)"
	@$(PYTHON) -m venv .venv-airflow
	@$(BIN)/uv pip sync --quiet --python .venv-airflow --require-hashes requirements/airflow.txt
	@touch $@

.jars/.ready: .venv/.ready jobs/core/jars.py
	@echo "setup: Delta jars and class archive (.jars, about a minute)"
	@$(BIN)/python -m jobs.core.jars --classes
	@touch $@

lock: .venv/.ready  ## resolve the pinned requirements anew
	for name in uv jobs dev airflow; do $(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --no-header \
		--python-version 3.11 requirements/$$name.in -o requirements/$$name.txt || exit 1; done

clean:
	rm -rf build .venv .venv-airflow .jars
