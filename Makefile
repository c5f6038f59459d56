# Everything sets itself up: the first target that runs makes .venv from constraints.txt.
PYTHON ?= python3
BASE ?=
BENCH ?=
SEED ?= 0 1 2 3 4
CASES ?= 1000
ONLY ?=
BIN := .venv/bin
PYTEST := python -m pytest -n 3 --dist loadfile --no-loadscope-reorder   # of two cores, one often waits
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: repro test check review results bench bench-gpu fuzz docs clean

repro: .venv/ready          ## the whole pipeline; only what changed runs
	@find .dvc/tmp/rwlock dvc.lock -empty -delete 2>/dev/null || true   # left by a killed DVC, which refuses them
	@echo dvc repro; dvc repro; code=$$?; \
	git rev-parse --quiet --verify HEAD >/dev/null 2>&1 && ! git diff --quiet HEAD -- metrics plots || exit $$code; \
	git --no-pager diff --stat=100 --stat-count=12 HEAD -- metrics plots; \
	echo "These published results hold this run's numbers now, which differ between processors and versions too. To take"; \
	echo "the published ones back: git checkout HEAD -- dvc.lock metrics plots"; exit $$code

test: .venv/ready           ## the tests
	$(PYTEST)

check: .venv/ready          ## formatter, linter, type checker, tests
	ruff format --check .
	ruff check .
	pyright
	$(PYTEST)

review: .venv/ready         ## what a reviewer needs, as Markdown; BASE=revision to compare with
	@python -m tools.review $(if $(BASE),--base $(BASE))

results: .venv/ready        ## README.md, RESULTS.md and docs/results/ from metrics/, plots/ and data/results/
	@python -m tools.results

bench: .venv/bench          ## ours beside real peers; BENCH='--only search' for a part, BENCH=--help for the rest
	@python -m benchmarks $(BENCH)

fuzz: .venv/ready          ## random inputs of every kind; SEED='0 1', CASES=1000, ONLY=kind:seed:number
	@python -m tests.fuzz --seed $(SEED) --cases $(CASES) $(if $(ONLY),--only $(ONLY))

docs: .venv/docs            ## the documentation as a site: open site/index.html
	@NO_MKDOCS_2_WARNING=1 mkdocs build   # the theme would announce its successor

clean:                      ## what the pipeline and `make docs` made in the work tree; DVC's cache stays
	find data models -mindepth 1 -maxdepth 1 ! -name source ! -name README.md -exec rm -rf {} +
	rm -rf report site dvc_plots build dist .pytest_cache .ruff_cache .hypothesis

# A new pip, and compiling on every core, take half the time of the pip that comes with Python 3.11.
.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: Python 3.11 or newer is needed; $(PYTHON) is older. Name another: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv --upgrade-deps .venv
	$(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	@$(BIN)/python -m compileall -q -j 0 .venv/lib >/dev/null 2>&1 || true
	touch $@

bench-gpu: .venv/ready       ## encoder, search, fit and field on a GPU, or on this CPU; BENCH=--quick for tiny sizes
	@python -m benchmarks --only gpu $(BENCH)

.venv/bench: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[bench]' || \
		echo "warning: not every peer can be installed here; their rows will say so"
	touch $@

.venv/docs: .venv/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@
