# `make run` and `make test` are all the set-up there is: both create .venv and install what is pinned.
# The first that starts, is of a version that we support and has venv; python3.11 is what constraints.txt was made for.
PYTHONS := python3.11 python3.12 python3.13 python3.14 python3
FITS := import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
PYTHON ?= $(shell for name in $(PYTHONS); do if "$$name" -c "$(FITS)" 2>/dev/null; then command -v "$$name"; break; fi; done)
NO_PYTHON := This needs Python 3.11 to 3.14 with venv: `apt install python3-venv`, `brew install python@3.13` or `pyenv install 3.13`, or name one with make PYTHON=PATH
CHECK_PYTHON = "$(PYTHON)" -c "$(FITS)" 2>/dev/null || { echo '$(NO_PYTHON)' >&2; exit 1; }
PURELIB := import sysconfig; print(sysconfig.get_path("purelib"))
VENV := .venv
# The pip that Python 3.11 and 3.12 bring takes about three times as long to find out what to install.
PIP := pip==26.3
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := dev,gcp,k8s,metrics,postgres,ray,tpu,tpu-cloud
# What `make run` and `make ui` need: clusters, clouds and the tools of development are a third of the time to install all.
RUN_STAMP := $(VENV)/.installed-to-run
RUN_EXTRAS := metrics,tpu
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: mutations cluster-demo flower-env supply-env sbom audit wheel supply-chain docs image-locks run test test-fast test-all test-random test-durations test-numbers test-fuzz fuzz soak soak-resume ui lint format setup evidence evidence-quick evidence-check gpu bench-env bench-gitleaks experience base-model clean

run: $(RUN_STAMP) ## the whole graph for all six domains on the shipped experience
	$(BIN)/capibara run --profile demo

# Four workers for two cores, since tests wait for processes: with three one second in ten was idle. A file at a time: tests of one file
# share what they set up. docs/testing.md says what each tier covers.
SUITE := not extended and not fuzz and not soak and not numbers
WORKERS := -n 4 --dist loadfile --no-loadscope-reorder

test: setup ## the suite that CI runs: everything that guards behaviour
	$(BIN)/python -m pytest -m "$(SUITE)" $(WORKERS)

test-fast: setup ## under two minutes, for every change
	$(BIN)/python -m pytest -m "$(SUITE) and not slow and not ui and not gcs" $(WORKERS)

test-all: setup ## all but the soak and the headline figures: larger sizes, whole matrices, benches, a hundred examples
	HYPOTHESIS_PROFILE=extended $(BIN)/python -m pytest -m "not soak and not numbers" $(WORKERS)

test-random: setup ## the suite in an order drawn anew, which is printed (ORDER=SEED: that order)
	$(BIN)/python -m pytest -m "$(SUITE)" $(WORKERS) -p randomly $(if $(ORDER),--randomly-seed=$(ORDER))

test-durations: setup ## docs/test-durations.tsv: seconds of each test module (on a machine that does nothing else)
	$(BIN)/python -m pytest -m "$(SUITE)" $(WORKERS) --module-seconds=docs/test-durations.tsv

test-numbers: setup ## the headline figures over three seeds (about an hour)
	$(BIN)/python -m pytest -m numbers

test-fuzz: setup ## 100,000 damaged lines and 1,000 damaged files: no crash, no valid line lost
	$(BIN)/python -m pytest -m fuzz -n 2

mutations: setup ## each known attack's tests have to see its mutation of the code (in a copy, half an hour)
	$(BIN)/python -m capibara_assets_tests.attacks

fuzz: setup ## coverage-guided fuzzing of every reader (ten hours); INPUTS=10000 READER=log for less; corpora in .capibara/fuzz
	$(BIN)/pip install --quiet -c constraints.txt -e ".[$(EXTRAS),fuzz]"
	test -d .capibara/fuzz/seeds || CAPIBARA_SHARED=/nonexistent CAPIBARA_FUZZ_SEEDS=.capibara/fuzz/seeds $(BIN)/python -m pytest -q \
		-p benchmarks.experience.fuzz_seeds -m "not extended and not fuzz" capibara_assets_tests/executions/formats capibara_assets_tests/playbooks
	$(BIN)/python -m benchmarks fuzz --inputs $(or $(INPUTS),1000000) $(if $(READER),--reader $(READER))

soak: setup ## two hours: a million executions arrive while runs and the daemon are killed (docs/experience.md)
	$(BIN)/python -m benchmarks soak --json

soak-resume: setup ## 200 kills of trainings at random moments, each resumed, all equal to the bit (about 20 minutes)
	$(BIN)/python -m pytest -m soak -s

ui: $(RUN_STAMP) ## dagster dev on what `make run` made
	$(BIN)/capibara ui

lint: setup ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: setup ## site/: the guides as pages, links and anchors checked
	$(BIN)/pip install --quiet -c constraints.txt -e ".[$(EXTRAS),docs]"
	$(BIN)/mkdocs build --strict

evidence: setup bench-env ## docs/evidence/<stage>.json: the figure of each promise, all eight stages (over an hour)
	$(BIN)/python -m benchmarks evidence

evidence-quick: setup bench-env ## every bench with --quick: does each still run and print its keys? nothing is written
	$(BIN)/python -m benchmarks evidence --quick

evidence-check: setup ## which lines of docs/evidence are red, missing or stale
	$(BIN)/python -m benchmarks evidence --check

gpu: setup bench-env ## on a machine with a GPU, under ten minutes: docs/evidence/gpu.json
	$(BIN)/pip install --quiet -c constraints.txt -e ".[$(EXTRAS),gpu]" "jax[cuda13]"
	$(BIN)/python -m benchmarks gpu --out docs/evidence/gpu.json

cluster-demo: setup ## the graph on gs://, PostgreSQL and Jobs (emulator, server and fake cluster here): what one machine makes
	$(BIN)/python -m pytest -q -s --show-capture=no -m extended capibara_assets_tests/cluster/test_demo.py

flower-env: setup ## .flower-venv: Flower, in an environment of its own that shares the packages of this one (docs/federated.md)
	test -x .flower-venv/bin/python || $(BIN)/python -m venv .flower-venv
	.flower-venv/bin/pip install --quiet -r deploy/flower/requirements.txt
	printf '%s\n' "$(CURDIR)" "$$($(BIN)/python -c '$(PURELIB)')" > "$$(.flower-venv/bin/python -c '$(PURELIB)')/capibara.pth"

bench-env: ## the peers of the benches, in an environment of their own
	@test -x .benchmarks-venv/bin/python || $(CHECK_PYTHON)
	test -x .benchmarks-venv/bin/python || $(PYTHON) -m venv .benchmarks-venv
	.benchmarks-venv/bin/python -m pip install --quiet $(PIP)
	.benchmarks-venv/bin/pip install --quiet torch==2.13.0
	.benchmarks-venv/bin/pip install --quiet -r benchmarks/requirements.txt
	.benchmarks-venv/bin/pip install --quiet --no-deps -r benchmarks/requirements-alone.txt

bench-gitleaks: bench-env ## gitleaks' rules (MIT), another peer of `python -m benchmarks redact`
	test -d .benchmarks-venv/gitleaks || git clone --quiet --depth 1 --branch v8.30.1 \
		https://github.com/gitleaks/gitleaks .benchmarks-venv/gitleaks

supply-env: ## .supply-venv: the tools of `make supply-chain`, by their hashes
	@test -x .supply-venv/bin/python || $(CHECK_PYTHON)
	test -x .supply-venv/bin/python || $(PYTHON) -m venv .supply-venv
	.supply-venv/bin/pip install --quiet --require-hashes -r workshop/supply_chain/requirements.txt

sbom: setup supply-env ## dist/sbom*.json: bills of materials (CycloneDX) of this environment and of each image
	$(BIN)/python -m workshop.supply_chain sbom

audit: setup supply-env ## known vulnerabilities of every pinned version, where the package index publishes advisories
	$(BIN)/python -m workshop.supply_chain audit

wheel: setup ## dist/*.whl of HEAD, built twice: the same bytes
	$(BIN)/python -m workshop.supply_chain wheel

supply-chain: sbom audit wheel ## all three; part of CI

experience: setup ## re-generate the shipped experience by really running it
	$(BIN)/python -m workshop.experience --out resources/experience

base-model: setup ## pre-train the shipped base model again (an hour and a half)
	$(BIN)/python -m workshop.base_model --compile --minutes 85 \
		--out resources/base_models/capibara-nano --state .capibara/pretraining

image-locks: setup ## deploy/docker/locks: what the images install, with hashes, from constraints.txt
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python deploy/docker/lock.py

setup: $(STAMP) ## .venv with everything: also what tests, clusters and clouds need

# torch first and alone: pip then finds a CPU build where one is provided, and nothing later replaces it.
$(RUN_STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(CHECK_PYTHON)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIP)
	$(BIN)/pip install --quiet torch==2.13.0 -c constraints.txt
	$(BIN)/pip install --quiet -c constraints.txt -e ".[$(RUN_EXTRAS)]"
	touch $@

$(STAMP): $(RUN_STAMP)
	$(BIN)/pip install --quiet -c constraints.txt -e ".[$(EXTRAS)]"
	touch $@

clean:
	rm -rf $(VENV) .capibara
