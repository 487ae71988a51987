# `make run` and `make test` are all the set-up there is: both create .venv and install what is pinned.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := dev,gcp,k8s,tpu,metrics
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: run test test-fast test-all test-random test-durations test-numbers test-fuzz soak-resume ui lint format setup evidence bench-env bench-gitleaks experience base-model clean

run: setup ## the whole graph for all six domains on the shipped experience
	$(BIN)/capibara run --profile demo

# Two workers, a file at a time: tests of one file share what they set up. docs/testing.md says what each tier covers.
SUITE := not extended and not long and not fuzz and not soak and not numbers
TWO_WORKERS := -n 2 --dist loadfile --no-loadscope-reorder

test: setup ## the suite that CI runs: everything that guards behaviour, under ten minutes
	$(BIN)/python -m pytest -m "$(SUITE)" $(TWO_WORKERS)

test-fast: setup ## under two minutes, for every change
	$(BIN)/python -m pytest -m "$(SUITE) and not slow and not ui and not gcs" $(TWO_WORKERS)

test-all: setup ## all but the soak and the headline figures: larger sizes, whole matrices, benches, a hundred examples
	HYPOTHESIS_PROFILE=extended $(BIN)/python -m pytest -m "not soak and not numbers" $(TWO_WORKERS)

test-random: setup ## the suite in an order drawn anew, which is printed (ORDER=SEED: that order)
	$(BIN)/python -m pytest -m "$(SUITE)" $(TWO_WORKERS) -p randomly $(if $(ORDER),--randomly-seed=$(ORDER))

test-durations: setup ## docs/test-durations.tsv: seconds of each test module (on a machine that does nothing else)
	$(BIN)/python -m pytest -m "$(SUITE)" $(TWO_WORKERS) --module-seconds docs/test-durations.tsv

test-numbers: setup ## the headline figures over three seeds (about an hour)
	$(BIN)/python -m pytest -m numbers

test-fuzz: setup ## 100,000 damaged lines and 1,000 damaged files: no crash, no valid line lost
	$(BIN)/python -m pytest -m fuzz -n 2

soak-resume: setup ## 200 kills of trainings at random moments, each resumed, all equal to the bit (about 20 minutes)
	$(BIN)/python -m pytest -m soak -s

ui: setup ## dagster dev on what `make run` made
	$(BIN)/capibara ui

lint: setup ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

evidence: setup bench-env ## docs/evidence/<stage>.json: the figure of each promise (over an hour)
	$(BIN)/python -m benchmarks.evidence

bench-env: ## the peers of the benches, in an environment of their own
	test -x .benchmarks-venv/bin/python || $(PYTHON) -m venv .benchmarks-venv
	.benchmarks-venv/bin/pip install --quiet torch==2.13.0
	.benchmarks-venv/bin/pip install --quiet -r benchmarks/requirements.txt
	.benchmarks-venv/bin/pip install --quiet --no-deps -r benchmarks/requirements-alone.txt

bench-gitleaks: bench-env ## gitleaks' rules (MIT), another peer of `capibara bench redact`
	test -d .benchmarks-venv/gitleaks || git clone --quiet --depth 1 --branch v8.30.1 \
		https://github.com/gitleaks/gitleaks .benchmarks-venv/gitleaks

experience: setup ## re-generate the shipped experience by really running it
	$(BIN)/python -m capibara_assets.executions.fleet --out resources/experience

base-model: setup ## pre-train the shipped base model again (an hour and a half)
	$(BIN)/python -m capibara_assets.modeling.pretraining --compile --minutes 85 \
		--out resources/base_models/capibara-nano --state .capibara/pretraining

setup: $(STAMP)

# torch first and alone: pip then finds a CPU build where one is provided, and nothing later replaces it.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet torch==2.13.0 -c constraints.txt
	$(BIN)/pip install --quiet -c constraints.txt -e ".[$(EXTRAS)]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) .capibara
