# The whole interface of this repository. `make` alone explains itself.
#
# Everything runs in the virtual environment .venv, made on first use from python3 (or PYTHON=...). Two stamps keep
# repeated calls fast: .runtime holds what Windfall needs to run, .develop adds what its tests and checks need.

PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python
LOCK   := requirements.lock
# Tests that run at once: many wait for processes most of the time, so one more than the two cores of CI.
JOBS   ?= 3
N      ?= 200
FRAMEWORKS ?= torch jax keras tensorflow-cpu lightning transformers accelerate

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONUNBUFFERED := 1

.DEFAULT_GOAL := help
.PHONY: help demo demo-many test check fmt sim drill drill-hosts drill-ray flaky frameworks soak bench bench-spot calibrate docs lock clean

help: ## show this list
	@echo 'Windfall: make TARGET'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo 'Needs python3 (3.11 or newer) with venv; PYTHON=python3.12 takes another one.'

demo: $(VENV)/.demo ## set up, train a model on a spot market that takes its machine away, show it live and the bill
	@$(PY) examples/demo.py $(ARGS)

demo-many: $(VENV)/.develop ## three machines with sshd in namespaces: a training loses its machine and ends with the same bits; needs root
	@PYTHONPATH=. $(PY) examples/demo_many.py

test: check ## set up, then everything that must pass: `make check` and all tests except the slow ones
	$(PY) -m pytest -n $(JOBS) --dist worksteal $(ARGS)

check: $(VENV)/.develop ## format, lint, types and the dependency rule, without running a test
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports --no-logo

fmt: $(VENV)/.develop ## format the code and repair what the linter can repair
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

sim: $(VENV)/.develop ## simulate N=200 seeds with crashes and lost reports, and FLEET=1 with many machines; SEED=n replays one step by step
	$(PY) -m tests.simulation $(if $(FLEET),--fleet) $(if $(SEED),--seed $(SEED),--runs $(N))

drill: $(VENV)/.develop ## N=200 real trainings, interrupted at every stage by every means; SEED=n begins elsewhere
	$(PY) -m tests.drill --runs $(N) $(if $(SEED),--seed $(SEED))

drill-hosts: $(VENV)/.develop ## N=10 rounds of jobs on three hosts that are killed, cut off and drained; SEED=n begins elsewhere; needs root
	$(PY) -m tests.hosts_drill --rounds $(N) $(if $(SEED),--seed $(SEED))
drill-hosts: N = 10

drill-ray: $(VENV)/.develop ## N=5 rounds on a Ray cluster whose head, raylets and nodes are killed and drained; SEED=n, RAY_PYTHON=/path/to/python with ray; needs root
	$(PY) -m tests.ray_drill --rounds $(N) $(if $(SEED),--seed $(SEED))
drill-ray: N = 5

flaky: $(VENV)/.develop ## the acceptance and security tests N=20 times, each time in another order; failures lie in build/flaky
	$(PY) -m tests.flaky --rounds $(N) $(if $(SEED),--seed $(SEED)) $(ARGS)
flaky: N = 20

frameworks: $(VENV)/.develop ## windfall.checkpoint with PyTorch, JAX, Keras, Lightning and Hugging Face: installs gigabytes
	@test -x build/frameworks/bin/python || $(PY) -m venv build/frameworks
	@build/frameworks/bin/python -m pip install --quiet --editable '.[test]' $(FRAMEWORKS)
	build/frameworks/bin/python -m pytest -n $(JOBS) --dist worksteal tests/unit/checkpoint $(ARGS)

soak: $(VENV)/.develop ## the slow tests, minutes to an hour: 80 random kills, 36,000 wrong requests, 20,000 mixed calls, 4,000 simulated worlds
	$(PY) -m pytest -n $(JOBS) -m slow --timeout 3600 $(ARGS)

bench: $(VENV)/.develop ## measure, beside a bare posix_spawn loop on this machine; ARGS= goes to the benchmark
	$(PY) -m bench $(ARGS)

bench-spot: $(VENV)/.develop ## deadline policies over recorded spot capacity; TRACES=directory, without it over synthetic traces
	$(PY) -m bench.spot $(TRACES) $(ARGS)

calibrate: $(VENV)/.develop ## how many of 1,000 ends are in the ranges that were expected; N=200 asks for fewer
	$(PY) -m bench.ends $(if $(filter command line,$(origin N)),$(N),1000)

docs: $(VENV)/.develop ## write the generated pages again (a test fails when they are stale)
	$(PY) -m tests.docs.generate

lock: $(VENV)/.made ## resolve all dependencies anew into requirements.lock
	@$(PY) -m venv build/lock && build/lock/bin/python -m pip install --quiet uv
	@{ echo '# Every dependency of every extra at one version; used as constraints. Written by `make lock`.'; \
	   build/lock/bin/uv pip compile pyproject.toml --universal --all-extras --upgrade --quiet \
	     --no-header --no-annotate --no-emit-index-url --no-emit-find-links; } > build/$(LOCK)
	@mv build/$(LOCK) $(LOCK)
	@echo '$(LOCK) is written; `make test` installs it'

clean: ## remove the virtual environment, build products and the tools' caches
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests examples bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# ------------------------------------------------------------------------------------------ the virtual environment

# An environment knows its absolute place and its interpreter. After a copy or a move of this folder, or with another
# PYTHON, it is made anew.
PLACE := $(PYTHON) in $(CURDIR)
ifneq ($(shell cat $(VENV)/.place 2>/dev/null),$(PLACE))
.PHONY: $(VENV)/.made
endif

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Windfall needs Python 3.11 or newer, and $(PYTHON) is: $$($(PYTHON) --version 2>&1)."; \
	  echo "Install one and name it, for example: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo 'making the virtual environment $(VENV)'
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "$(PYTHON) cannot make a virtual environment. On Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@printf '%s\n' '$(PLACE)' > $(VENV)/.place
	@touch $@

$(VENV)/.runtime: $(VENV)/.made pyproject.toml $(LOCK)
	@echo 'installing what Windfall needs to run (once)'
	@$(PY) -m pip install --quiet --constraint $(LOCK) --editable .
	@touch $@

$(VENV)/.demo: $(VENV)/.runtime
	@$(PY) -m pip install --quiet --constraint $(LOCK) --editable '.[demo]'
	@touch $@

$(VENV)/.develop: $(VENV)/.runtime
	@echo 'installing what its tests and checks need (once)'
	@$(PY) -m pip install --quiet --constraint $(LOCK) --editable '.[postgres,s3,demo,test,check]'
	@touch $@
