# The menu of the project; `make help` prints it. CI runs `make test`.

PREFIX ?= /usr/local
TARGET ?= $(CURDIR)/target

export CARGO_TARGET_DIR := $(TARGET)
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

COMMAND := $(TARGET)/release/coldpress
# The command that needs no glibc, and the target that it is built for.
MUSL := x86_64-unknown-linux-musl
STATIC := $(TARGET)/$(MUSL)/release/coldpress
BENCH := $(COMMAND)-bench
# What tests and the demo run.
export COLDPRESS_BIN := $(COMMAND)
# Lints, documentation and tests are of one profile and of all packages: any other choice would
# compile what they use anew, with other features of it. The preload library alone is linted by
# itself, and as what does not unwind, for want of the standard library.
PROFILE := --locked --profile system
TESTS := cargo test $(PROFILE) --workspace
# Runs a part of `make test`, and notes how long that takes.
TIMED := scripts/timed
# The command as tests have it, which cargo builds for tests of its own.
BUILD_TESTED := $(TESTS) --test cli --no-run
# The names of the files in some folders, each as a test of its own.
tests_in = $(patsubst %,--test %,$(basename $(notdir $(wildcard $(1)))))
UNIT := --lib --bin coldpress --bin coldpress-peers --bin xtask --bin cases \
	$(call tests_in,crates/*/tests/*.rs xtask/tests/*.rs)
# System tests by file. These run alone, as they judge each moment, or processor time; the others
# by threes: a program and its service share one processor, and many tests wait. Those of stress-ng
# are there to be many, and take their time whatever runs beside them. Those of suites run in
# `make suites`, those of soak and view in `make long`.
ALONE := budget idle sharing torture tree walks
BESIDE := $(filter-out $(ALONE) soak stress suites view,\
	$(basename $(notdir $(wildcard tests/tests/*.rs))))
STRESS := --test stress -- --test-threads=5
# Those of which `make test` runs a part, and `make edges` all.
EDGES := --test edges --test cannot_manage --test noticed --test containers --test setup \
	--test account --test bench --test foreign --test attach --test recipes
# Those of which `make long` runs what `make test` leaves out.
LONG := budget day_one forks helper metrics proactive rest sharing soak view
# What `make kernels` boots, and the files of which tests run there.
KERNELS := 5.10 6.1 6.12 newest
INSIDE := budget limits
# How long `make stress` lasts, about; four methods run at a time, and forks beside them.
STRESS_SECONDS ?= 3600
# How long each torture of `make stress` lasts behind that.
TORTURE_SECONDS ?= 60
# How long `make soak` lasts.
SOAK_HOURS ?= 8
# Where `make suites` and `make bench` keep the sources that they fetch.
SUITES := $(TARGET)/suites
# Where `make edges` keeps programs that no package has.
TOOLS := $(TARGET)/tools
# What `make cases` runs.
CASES := $(CURDIR)/../shared/cases
# What of `mem` runs under miri: the slab, most tests of the frames, and one pool of each kind.
MIRI_TESTS := slab:: frames::descriptor:: \
	$(addprefix frames::tests::,a_ added bad frames_ one_ requests shrinking_stops the_fragm) \
	$(addprefix pools::tests::,segment xvmalloc_alone xcfmalloc_of_2 zsmalloc_of_16)
# What `make fuzz` runs, each for so long.
FUZZ_TARGETS := $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
FUZZ_SECONDS ?= 60
# What a lane does whose tools are not here: pass, but for CI.
SKIPPED := [ "$(CI)" != true ]

.DEFAULT_GOAL := help
.PHONY: help bootstrap build static demo test begin-times check unit system containers machines \
	kernels stress suites edges long soak cases packages report-check docs docs-check deny loom \
	miri sanitize fuzz bench install clean
# Every step compiles with all processors: steps side by side only wait for each other.
.NOTPARALLEL:

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

bootstrap: ## install what a build needs and this machine lacks
	@scripts/bootstrap

build: bootstrap ## build the command: target/release/coldpress
	cargo build --locked --release --package coldpress-cli

# The library inside is for glibc all the same: that is where it goes.
static: bootstrap ## build the command for places without glibc: target/x86_64-unknown-linux-musl
	@scripts/bootstrap-static
	cargo build --locked --release --package coldpress-cli --target $(MUSL)

demo: build ## run a real job without coldpress and within a budget
	@scripts/bootstrap-tests python3
	@python3 demo/run.py

test: begin-times check unit system ## everything CI runs, and what each part takes
	@scripts/timed --table

begin-times:
	@scripts/timed --begin

check: bootstrap ## format, lints, tidy, documentation
	@$(TIMED) "check: format" cargo fmt --all --check
	@$(TIMED) "check: lints" cargo clippy $(PROFILE) --workspace --all-targets -- -D warnings
	@CARGO_PROFILE_SYSTEM_PANIC=abort $(TIMED) "check: lints of the library" \
		cargo clippy $(PROFILE) --package coldpress-runtime --features preload --lib -- -D warnings
	@$(TIMED) "check: tidy" cargo xtask tidy
	@RUSTDOCFLAGS="-D warnings" $(TIMED) "check: documentation" \
		cargo doc $(PROFILE) --workspace --no-deps

unit: bootstrap ## unit and property tests
	@scripts/bootstrap-tests python3
	@$(TIMED) "unit: compile" $(TESTS) $(UNIT) --no-run
	@$(TIMED) "unit: tests" $(TESTS) $(UNIT)

system: export COLDPRESS_BIN := $(TARGET)/system/coldpress
system: bootstrap ## real programs within a budget
	@scripts/bootstrap-tests
	@$(TIMED) "system: compile" $(TESTS) --test cli --test stress $(BESIDE:%=--test %) \
		$(ALONE:%=--test %) --no-run
	@$(TIMED) "system: by threes" $(TESTS) $(BESIDE:%=--test %) -- --test-threads=3
	@$(TIMED) "system: stress" $(TESTS) $(STRESS)
	@$(TIMED) "system: alone" $(TESTS) $(ALONE:%=--test %) -- --test-threads=1

# `make system` runs `containers` with the command for glibc, and `static_command` not at all.
containers: export COLDPRESS_BIN := $(STATIC)
containers: export COLDPRESS_STATIC := $(STATIC)
containers: static ## the static command in Podman, runc, bubblewrap and bare roots (minutes)
	@scripts/bootstrap-tests containers
	$(TESTS) --test static_command --test containers -- --test-threads=2

# `make system` runs of these a program alone that confines itself as such monitors do.
machines: export COLDPRESS_BIN := $(TARGET)/system/coldpress
machines: export COLDPRESS_GUEST := $(TARGET)/guest
machines: bootstrap ## guests of QEMU within a budget, one, and four together (minutes)
	@scripts/bootstrap-tests machines
	@scripts/fetch-kernel $(COLDPRESS_GUEST) 6.1
	$(BUILD_TESTED) --test machines
	$(TESTS) --test machines -- --test-threads=1 --nocapture

# The tests that run inside are built here, and found there by the messages of cargo.
kernels: export COLDPRESS_BIN := $(TARGET)/system/coldpress
kernels: export COLDPRESS_KERNELS := $(TARGET)/kernels
kernels: export COLDPRESS_BUILT := $(TARGET)/kernels/built.json
kernels: bootstrap ## other kernels, with cgroups of version 2, in QEMU (half an hour)
	@scripts/bootstrap-tests machines
	@for name in $(KERNELS); do scripts/fetch-kernel $(COLDPRESS_KERNELS)/$$name $$name; done
	$(BUILD_TESTED) --test kernels
	@$(TESTS) $(INSIDE:%=--test %) --no-run --message-format=json >$(COLDPRESS_BUILT)
	@begun=$$(date +%s); $(TESTS) --test kernels -- --test-threads=1 --nocapture; status=$$?; \
		echo "kernels: $$(($$(date +%s) - begun)) s"; exit $$status

# `make system` gives the same methods 15 seconds, all together. The library checks its tables
# meanwhile.
stress: export CARGO_PROFILE_PRELOAD_DEBUG_ASSERTIONS := true
stress: build ## every method of stress-ng's in the tests, for STRESS_SECONDS together (an hour)
	@scripts/bootstrap-tests stress-ng
	COLDPRESS_STRESS_SECONDS=$(STRESS_SECONDS) $(TESTS) $(STRESS)
	COLDPRESS_TORTURE_SECONDS=$(TORTURE_SECONDS) $(TESTS) \
		--test torture -- --test-threads=1

# `make system` runs programs in one part of their memory only. Without the variables the suites run
# in short forms, of programs that are installed.
suites: build ## suites of CPython, Redis and PostgreSQL, and builds, as without coldpress (an hour)
	@scripts/bootstrap-tests
	@scripts/fetch-suites $(SUITES)
	COLDPRESS_SUITES=$(SUITES) COLDPRESS_ALL=1 $(TESTS) \
		--test suites --test programs -- --test-threads=1

# `make system` runs one case of each kind. One test at a time: some judge how soon a tool answers.
edges: export COLDPRESS_BIN := $(TARGET)/system/coldpress
edges: export PATH := $(TOOLS)/bin:$(PATH)
edges: bootstrap ## debuggers, sandboxes, a browser, foreign programs, fewer rights (minutes)
	@scripts/bootstrap-tests edges
	$(BUILD_TESTED) $(EDGES)
	@begun=$$(date +%s); COLDPRESS_ALL=1 $(TESTS) \
		--no-fail-fast $(EDGES) -- --test-threads=1 --nocapture; status=$$?; \
		echo "edges: $$(($$(date +%s) - begun)) s"; exit $$status

# `make system` runs most of their tests, but not those that take long and have another of a kind.
long: export COLDPRESS_BIN := $(TARGET)/system/coldpress
long: export CARGO_PROFILE_PRELOAD_DEBUG_ASSERTIONS := true
long: bootstrap ## system tests, with those that `make test` leaves out (minutes)
	@scripts/bootstrap-tests
	$(BUILD_TESTED)
	COLDPRESS_ALL=1 $(TESTS) $(LONG:%=--test %) -- --test-threads=1
	$(TESTS) --features coldpress-tests/schema --test timeline -- --test-threads=1

# `make system` runs some rounds of fewer programs.
soak: export COLDPRESS_BIN := $(COMMAND)
soak: build ## mixed programs for SOAK_HOURS (default: 8), and whether our processes grow meanwhile
	@scripts/bootstrap-tests
	COLDPRESS_SOAK_HOURS=$(SOAK_HOURS) $(TESTS) --test soak -- --nocapture

# They lie beside the project, where it is developed; NAMES="H1 M3" runs these alone.
cases: export COLDPRESS_BIN := $(TARGET)/system/coldpress
cases: export PATH := $(TOOLS)/bin:$(PATH)
cases: bootstrap ## programs that were treated wrongly once, from ../shared/cases if it is there
	@if [ -d $(CASES) ]; then \
		$(BUILD_TESTED) $(EDGES) && $(TARGET)/system/cases $(CASES) $(NAMES); \
	else \
		echo "skipped: no $(CASES)"; \
	fi

# Two builds in two places must give the same bytes; README's lines install what comes of them.
packages: export PATH := $(TOOLS)/bin:$(PATH)
packages: bootstrap ## build every package, install it in a clean root, run there (minutes)
	@scripts/bootstrap-packages
	@python3 scripts/packages $(TARGET) --table docs/packages.md

# PICTURE=docs/pictures/report.png writes the picture that README shows.
report-check: export COLDPRESS_BIN := $(COMMAND)
report-check: build ## reports of five runs in a browser, in two widths, light and dark (a minute)
	@scripts/bootstrap-tests report
	@python3 tests/report/check.py $(TARGET)/report-check $(PICTURE)

docs: bootstrap ## write docs/options.md, docs/knobs.md, docs/top.svg, man pages, completions anew
	COLDPRESS_WRITE_DOCS=1 $(TESTS) --lib --bin coldpress -- docs:: top::

docs-check: docs ## whether all that `make docs` writes is as committed
	git diff --exit-code -- docs packaging

# Licences, bans and registries need nothing from outside; what is known to be unsafe does.
deny: bootstrap ## licences and sources of all packages; advisories where their database is reached
	@if scripts/bootstrap-lane deny; then scripts/deny; else $(SKIPPED); fi

loom: bootstrap ## all orders of what is lock-free, and of verbs on one page, by loom (minutes)
	export RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(TARGET)/loom; \
		cargo test --locked --release --package coldpress-mem --features verify --lib loom && \
		cargo test --locked --release --package coldpress-zswap --lib loom

miri: bootstrap ## slab, frames, pools and the double word under miri (minutes); needs a nightly
	@if scripts/bootstrap-lane miri; then \
		export MIRIFLAGS=-Zmiri-disable-isolation CARGO_TARGET_DIR=$(TARGET)/miri; \
		cargo +nightly miri test --locked --package coldpress-sys --lib pair && \
		cargo +nightly miri test --locked --package coldpress-mem --lib -- $(MIRI_TESTS); \
	else $(SKIPPED); fi

sanitize: bootstrap ## mem, codec and zswap under address and thread sanitizer; needs a nightly
	@if scripts/bootstrap-lane sanitize; then \
		for kind in address thread; do scripts/sanitize $$kind || exit 1; done; \
	else $(SKIPPED); fi

fuzz: bootstrap ## FUZZ_SECONDS of each fuzz target (default: 60); needs a nightly and cargo-fuzz
	@if scripts/bootstrap-lane fuzz; then \
		for target in $(FUZZ_TARGETS); do \
			scripts/fuzz $$target $(FUZZ_SECONDS) || exit 1; \
		done; \
	else $(SKIPPED); fi

bench: build ## measure, and print the figures
	@scripts/bootstrap-bench $(SUITES)
	cargo build --locked --release --package coldpress-bench
	cargo build --locked --release --package coldpress-peers --features all
	$(TARGET)/release/coldpress-bench all --out bench/results --source $(SUITES)/postgresql
	$(TARGET)/release/coldpress-peers --out bench/results
	cargo xtask pages

# It is stripped; its symbols lie where debuggers look for those of a program. The benchmarks go
# along where they were built; their pages, which do not depend on that, always.
install: ## install the built command and its documents under PREFIX (default: /usr/local)
	@test -x $(COMMAND) || { echo "run make build first" >&2; exit 1; }
	install -D -m 755 $(COMMAND) $(DESTDIR)$(PREFIX)/bin/coldpress
	install -d $(DESTDIR)$(PREFIX)/bin/.debug
	objcopy --only-keep-debug $(COMMAND) $(DESTDIR)$(PREFIX)/bin/.debug/coldpress.debug
	strip $(DESTDIR)$(PREFIX)/bin/coldpress
	objcopy --add-gnu-debuglink=$(DESTDIR)$(PREFIX)/bin/.debug/coldpress.debug \
		$(DESTDIR)$(PREFIX)/bin/coldpress
	install -d $(DESTDIR)$(PREFIX)/share/doc/coldpress
	install -m 644 packaging/redis-coldpress.service LICENSE-APACHE LICENSE-MIT \
		$(DESTDIR)$(PREFIX)/share/doc/coldpress
	install -D -m 644 schema/stats-1.json $(DESTDIR)$(PREFIX)/share/coldpress/schema/stats-1.json
	install -m 644 packaging/grafana.json packaging/60-userfaultfd.rules \
		$(DESTDIR)$(PREFIX)/share/coldpress
	install -d $(addprefix $(DESTDIR)$(PREFIX)/share/,man/man1 bash-completion/completions \
		zsh/site-functions fish/vendor_completions.d)
	install -m 644 packaging/man/*/*.1 $(DESTDIR)$(PREFIX)/share/man/man1
	cd packaging/completions && for name in coldpress coldpress-bench; do \
		install -m 644 $$name.bash \
			$(DESTDIR)$(PREFIX)/share/bash-completion/completions/$$name && \
		install -m 644 _$$name $(DESTDIR)$(PREFIX)/share/zsh/site-functions && \
		install -m 644 $$name.fish $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d \
			|| exit 1; \
	done
	if [ -x $(BENCH) ]; then install -s -m 755 $(BENCH) $(DESTDIR)$(PREFIX)/bin; fi

clean: ## remove what was built
	cargo clean
