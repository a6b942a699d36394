# Two commands: `make run` shows Roost at work, `make test` checks everything. Both set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEV := $(VENV)/.dev
# Of the tests: two cores are busy with six, each of which may have servers of its own, of 2.5 GB together.
PROCESSES := $(shell awk '/MemTotal/ {print ($$2 > 20000000 ? 6 : 4)}' /proc/meminfo 2> /dev/null || echo 4)

.PHONY: run test types suite format bench bench-gate docs campaigns faults mutants clean

run: $(DEV)
	$(BIN)/roost demo --yes

test: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(MAKE) --no-print-directory --jobs types suite  # side by side; the outcome of both is told

types: $(DEV)
	$(BIN)/mypy
	$(BIN)/pyright --pythonpath $(BIN)/python

# Neighbours stay in one process, which has their servers; much of the time is waiting for databases. In a new checkout
# each of them would compile all tests, half a minute of processor time, so one process does it before.
suite: $(DEV)
	@$(BIN)/pytest --collect-only -qq > /dev/null || true
	$(BIN)/pytest --numprocesses $(PROCESSES) --dist worksteal

format: $(DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(DEV)
	$(BIN)/python -m bench

bench-gate: $(DEV)  # the median of three runs beside what is kept
	$(BIN)/python -m bench --gate

docs: $(VENV)/.docs
	$(BIN)/python docs/_site/draw.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

campaigns: faults mutants

faults: $(DEV)
	$(BIN)/python -m tests.campaigns.kill --rounds 1000
	$(BIN)/python -m tests.campaigns.forks --rounds 100
	$(BIN)/python -m tests.campaigns.interrupt --rounds 40
	$(BIN)/python -m tests.campaigns.interrupt --rounds 10 --server mariadb
	$(BIN)/python -m tests.campaigns.interrupt --rounds 10 --server postgresql
	$(BIN)/python -m tests.campaigns.cancel --rounds 300
	$(BIN)/python -m tests.campaigns.culprit --rounds 100
	$(BIN)/python -m tests.campaigns.shares --rounds 10
	$(BIN)/python -m tests.campaigns.mixed --seconds 60
	$(BIN)/python -m tests.campaigns.writers
	$(BIN)/python -m tests.campaigns.soak
	$(BIN)/python -m tests.campaigns.soak --server mariadb
	$(BIN)/python -m tests.campaigns.soak --server mysql
	$(BIN)/python -m tests.campaigns.soak --server postgresql
	$(BIN)/python -m tests.campaigns.outage --rounds 20
	$(BIN)/python -m tests.campaigns.boundaries --server mariadb
	$(BIN)/python -m tests.campaigns.boundaries --server postgresql
	$(BIN)/python -m tests.campaigns.boundaries --server mysql --pairs 20
	$(BIN)/python -m tests.campaigns.boundaries --inside --server mariadb --pairs 20
	$(BIN)/python -m tests.campaigns.boundaries --inside --server postgresql --pairs 20
	$(BIN)/python -m tests.campaigns.boundaries --inside --server mysql --pairs 20
	$(BIN)/python -m tests.campaigns.slow
	$(BIN)/python -m tests.campaigns.suite
	$(BIN)/python -m tests.campaigns.pooled
	$(BIN)/python -m tests.campaigns.strange
	$(BIN)/python -m tests.campaigns.serve_kills --rounds 100
	$(BIN)/python -m tests.campaigns.serve_kills --rounds 100 --server mariadb
	$(BIN)/python -m tests.campaigns.serve_kills --rounds 100 --server postgresql
	$(BIN)/python -m tests.campaigns.hostile
	$(BIN)/python -m tests.campaigns.caches
	$(BIN)/python -m tests.campaigns.django_suite
	$(BIN)/python -m tests.campaigns.library_suites
	$(BIN)/python -m tests.campaigns.limits
	$(BIN)/python -m tests.campaigns.handlersocket compare --requests 100000
	$(BIN)/python -m tests.campaigns.handlersocket twin --requests 100000
	$(BIN)/python -m tests.campaigns.handlersocket read --requests 10000000
	$(BIN)/python -m tests.campaigns.handlersocket serve --requests 10000000
	$(BIN)/python -m tests.campaigns.memcached --requests 100000
	$(BIN)/python -m tests.campaigns.memcached --requests 20000 --server mariadb
	$(BIN)/python -m tests.campaigns.memcached --requests 20000 --server postgresql
	ROOST_CONSOLE_ROWS=10000000 $(BIN)/pytest --timeout 0 tests/console/plans_test.py

mutants: $(DEV)  # small defects: which of them do the tests notice?
	$(BIN)/python -m tests.campaigns.mutants

clean:
	rm -rf build $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(DEV): pyproject.toml
	test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/pip install --quiet --disable-pip-version-check --editable . --group dev
	touch $@

$(VENV)/.docs: $(DEV)
	$(BIN)/pip install --quiet --disable-pip-version-check --group docs
	touch $@
