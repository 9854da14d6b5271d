# `make` alone explains the targets.
SHELL := /bin/sh
VENV ?= .venv
BIN := $(VENV)/bin
export VENV
PYTEST := $(BIN)/python -m pytest
JOBS ?= 3
# in the order of the files: those that start Tritons come first, see tests/conftest.py
PARALLEL := -n $(JOBS) --dist loadfile --no-loadscope-reorder
# suites with an environment of their own
APART := tests/k8s tests/pipeline
# every test starts processes, and each would compile the package anew
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo pipeline-demo test test-all coverage mutate slowest test-k8s test-pipeline test-conversion test-tensorrt check format lint types contracts test-fast chaos fuzz deps deps-dev lock clean docs \
  bench bench-against bench-batching bench-control bench-fleet bench-gate bench-hints bench-live bench-load bench-mirror bench-push bench-report bench-scaling bench-scaling-equal bench-peers profile deps-bench deps-browser deps-compiler deps-k8s deps-kserve deps-pipeline deps-postgres deps-train

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: deps  ## Start the demo: a digits classifier on two Tritons, behind the gateway
	@exec $(BIN)/python examples/digits/demo.py

pipeline-demo: deps-pipeline  ## Run the Kubeflow pipeline three times on this machine; EXIT=1 stops everything afterwards
	@exec .venv-pipeline/bin/python examples/kubeflow/demo.py $(if $(EXIT)$(CI),--exit)

test: deps-dev deps-postgres deps-browser deps-compiler  ## Run the main test suite, with real Tritons and Chromium
	$(PYTEST) $(PARALLEL) -m "not slow and not chaos and not conversion" $(addprefix --ignore=,$(APART) tests/browser tests/fuzz tests/loadtests)
	DURATIONS_APPEND=1 $(PYTEST) -m "not slow" tests/browser

test-all: deps-dev deps-kserve deps-postgres deps-browser deps-compiler  ## Run all tests except chaos: both event loops, conversions, fuzz corpora, pipelines, manifests
	$(PYTEST) $(PARALLEL) --both-loops -m "not chaos and not conversion" $(addprefix --ignore=,$(APART) tests/browser)
	DURATIONS_APPEND=1 $(PYTEST) -n 2 tests/browser
	$(MAKE) test-conversion test-k8s test-pipeline

slowest:  ## Show the slowest files, tests and fixtures of the last run
	@python3 scripts/slowest.py

coverage: deps-dev deps-postgres deps-browser deps-compiler  ## Run `make test` with branch coverage per test of serve/, into .coverage
	$(BIN)/coverage erase
	COVERAGE_FILE=$(CURDIR)/.coverage $(MAKE) test PYTEST="$(BIN)/coverage run -m pytest"
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --skip-covered | tail -1

mutate: deps-dev  ## Run mutation tests; needs `make coverage` first; DRAW=100, SEED=1
	$(BIN)/python scripts/mutate.py run --draw $(or $(DRAW),100) --seed $(or $(SEED),1)

check: format lint types contracts test-fast  ## Run format, lint, types, import contracts and the fast tests

format: deps-dev  ## Check the formatting
	$(BIN)/ruff format --check .

lint: deps-dev  ## Lint the code with ruff
	$(BIN)/ruff check .

types: deps-dev  ## Check the types with mypy --strict
	$(BIN)/mypy

contracts: deps-dev  ## Check the import contracts
	$(BIN)/lint-imports --no-cache

test-fast: deps-dev deps-postgres deps-compiler  ## Run the tests that start no Triton and no TensorFlow
	$(PYTEST) $(PARALLEL) -m "not triton and not tensorflow and not chaos and not conversion" --ignore=tests/k8s --ignore=tests/pipeline

test-pipeline: deps-dev deps-pipeline  ## Test the Kubeflow pipelines: the demo, the compiled files and the large example
	$(PYTEST) tests/pipeline

test-conversion: deps-dev  ## Test the conversion of every supported kind of model, and the refusal of unsupported ones
	$(PYTEST) -m conversion --ignore=tests/k8s

test-k8s: deps-dev deps-k8s deps-kserve  ## Check the manifests in k8s/: schemas, checkov, container files, kubectl apply, consistency with the program
	$(PYTEST) -n 2 --dist loadfile tests/k8s

bench: deps-bench  ## Compare the data plane with nginx, haproxy, Envoy and a direct Triton; QUICK=1, ONLY="http-64B grpc-64B"
	$(BIN)/python -m loadtests.bench.dataplane $(if $(QUICK),--quick) $(addprefix --only ,$(ONLY))
	$(if $(QUICK)$(ONLY),,$(MAKE) bench-control)

bench-report: deps-dev  ## Write the newest results of `make bench` to docs/performance.md
	$(BIN)/python -m loadtests.bench.report

bench-control: deps-dev  ## Measure the warm start compared with a direct Triton, and how fast a change reaches all workers
	$(BIN)/python -m loadtests.bench.start
	$(BIN)/python -m loadtests.bench.propagation

bench-batching: deps-dev  ## Measure the gain of tuned batching, and write it to docs/batching.md; ONLY="digits transformer residual", STEPS="defaults grid"
	$(BIN)/python -m loadtests.bench.batching $(if $(ONLY),--only $(ONLY)) $(if $(STEPS),--steps $(STEPS))
	$(BIN)/python -m loadtests.bench.batching_report

bench-scaling: deps-dev  ## Compare the scaling policy with other autoscalers, and write it to docs/autoscaling.md; SEEDS=1-20, TRACE=calls.csv
	$(BIN)/python -m loadtests.bench.scaling --seeds $(or $(SEEDS),101-120) $(if $(TRACE),--trace $(TRACE))
	$(BIN)/python -m loadtests.bench.scaling_report

bench-scaling-equal: deps-dev  ## Compare the cost of fixed fleets and HPAs at equal lateness, for a large and a small pool, and write it to docs/autoscaling.md; SEEDS=101-102, TRACE=calls.csv
	for mean in 100 25; do $(BIN)/python -m loadtests.bench.scaling --seeds $(or $(SEEDS),101-102) --mean $$mean --only servegate fixed hpa-calls hpa-utilisation \
	  $(if $(TRACE),--trace $(TRACE)) --out loadtests/results/equal-$$mean.json || exit 1; done
	$(BIN)/python -m loadtests.bench.scaling_report --equal loadtests/results/equal-100.json loadtests/results/equal-25.json

bench-fleet: deps-dev  ## Measure a control plane with up to 5,000 fake replicas, and write it to docs/operations.md; SIZES="50 200"
	@PYTHONPATH=tests:tests/fixtures $(BIN)/python -m loadtests.bench.fleet_scale $(if $(SIZES),--sizes $(SIZES))
	$(if $(SIZES),,$(BIN)/python -m loadtests.bench.fleet_report)

bench-hints: deps-dev  ## Measure the cost of scaling hints, and autoscale real Tritons for 13 minutes
	$(BIN)/python -m loadtests.bench.hint_cost
	$(BIN)/python -m loadtests.bench.autoscaling

bench-load: deps-bench  ## Compare the load generator with wrk and h2load, and measure a stall with it
	$(BIN)/python -m loadtests.bench.loading

bench-live: deps-dev  ## Measure the cost of 20 viewers of the Live page, compared with one
	$(BIN)/python -m loadtests.bench.live_viewers

bench-mirror: deps-bench  ## Measure what mirrored calls cost, and what callers notice of a slow, stopped or killed candidate
	$(BIN)/python -m loadtests.bench.mirror

bench-push: deps-dev  ## Measure the push of 500 MB, compared with cp and sha256sum
	$(BIN)/python -m loadtests.bench.push

bench-gate: deps-dev  ## Measure which wrong models the conversion gate detects, and plot it
	$(BIN)/python -m loadtests.bench.gate_curve --seeds 10 --picture docs/images/gate.svg

test-tensorrt: deps-dev  ## Test the plan builder with TensorRT's own bindings, if they are installed
	$(PYTEST) tests/workbench/conversion/plans/check_tensorrt.py

bench-peers: deps-bench deps-kserve  ## Compare the gateway with a KServe transformer
	$(BIN)/python -m loadtests.bench.against_kserve $(if $(QUICK),--quick)

bench-against: deps-bench  ## Compare the CPU time per call with another checkout; OTHER=../before, ONLY="http-64B", QUICK=1
	$(BIN)/python -m loadtests.bench.against_checkout $(OTHER) $(if $(QUICK),--quick) $(addprefix --only ,$(ONLY))

profile: deps-bench  ## Profile a worker under load; ROW=grpc-64B selects another load
	$(BIN)/python -m loadtests.bench.hotspots $(ROW)

chaos: deps-dev  ## Run the fault tests under load; they take minutes
	$(PYTEST) -m chaos --ignore=tests/k8s

fuzz: deps-dev  ## Fuzz the data plane; FUZZ_SECONDS=60 for each target, ONLY="http-requests"
	@scripts/fuzz-deps.sh
	@PYTHONPATH=$(CURDIR)/.venv-fuzz/site:$(CURDIR):$(CURDIR)/tests:$(CURDIR)/tests/fixtures $(BIN)/python -m fuzz.fuzzing --seconds $(or $(FUZZ_SECONDS),60) $(ONLY)

deps:  ## Create the environment in .venv for serving
	@scripts/bootstrap.sh local,load

deps-dev:  ## Create the environment in .venv for development
	@scripts/bootstrap.sh local,dev,convert,load

deps-bench: deps-dev  ## Install the tools of the benchmarks: nginx, haproxy, Envoy, wrk, h2load, gcc, py-spy
	@scripts/bench-deps.sh

deps-kserve: deps-dev  ## Create the environment in .venv-kserve with KServe's clients, for tests and `make bench-peers`
	@scripts/kserve-deps.sh

deps-train:  ## Create the environment in .venv for serving and for training the examples
	@scripts/bootstrap.sh local,convert

deps-pipeline: deps-train  ## Create the environment in .venv-pipeline with the Kubeflow Pipelines SDK
	@scripts/pipeline-deps.sh

deps-k8s: deps-dev  ## Create the environment in .venv-k8s for checking manifests; needs kubectl
	@scripts/kubernetes-deps.sh

deps-postgres:  ## Install PostgreSQL for the tests
	@scripts/postgres-deps.sh

deps-compiler:  ## Install a C compiler, with which tests build a stub of NVIDIA's library
	@scripts/compiler-deps.sh

deps-browser: deps-dev  ## Install Chromium and axe-core for the tests of the web UI
	@scripts/browser-deps.sh

docs: deps-dev  ## Regenerate the references and the gRPC reflection descriptors
	$(BIN)/python scripts/references.py
	$(BIN)/python scripts/descriptors.py

lock: deps-dev  ## Resolve the dependencies again into constraints.txt
	$(BIN)/python -m pip install -q uv
	$(BIN)/uv pip compile -q --universal --python-version 3.11 --no-header --no-annotate \
	  --extra local --extra convert --extra load --extra dev --extra postgres --extra parquet pyproject.toml -o constraints.txt

clean:  ## Remove the environment, run-time state and caches
	rm -rf $(VENV) .venv-bench .venv-browser .venv-k8s .venv-kserve .venv-pipeline .venv-fuzz .servegate .mypy_cache .ruff_cache .pytest_cache dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
