# dsync: all targets for users and developers. `make` without a target lists them.
#
# Recipes that need more than a few lines are scripts in scripts/; the header of each script says what it guarantees.
# Before a target installs or starts anything, it says so and why.

# Everything is built in this directory, whatever the caller's environment says, because the scripts, the tests and
# `make install` look there.
export CARGO_TARGET_DIR := $(CURDIR)/target

PORT ?= 6379
export PORT

.DEFAULT_GOAL := help
.PHONY: help build run test test-matrix test-clients test-metrics test-packages test-arm64 test-images test-docs bugs \
	mutants fuzz fuzz-engine test-memory test-upgrades soak server-suites compare-modules bench bench-growth bench-peers \
	bench-clients bench-instructions bench-quick lint lint-clients licences docs install cli install-cli deb dist clean

help: ## list the targets
	@echo 'Targets of dsync:'
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1|/p' $(firstword $(MAKEFILE_LIST)) | awk -F '|' '{ printf "  make %-18s %s\n", $$1, $$2 }'

build: ## build the module, target/release/libdsync.so
	@sh scripts/need.sh build
	cargo build --release

run: ## start a server with the module, on PORT (6379)
	@sh scripts/run.sh

test: ## test the engine, and the module on every available server (or on SERVERS="path ...")
	@sh scripts/test.sh

test-matrix: ## the same on every supported server, built if necessary (ALSO="path ...", EXCEPT="name ...")
	@sh scripts/test-matrix.sh

test-clients: ## test the client packages, the tool and the recipes on Redis and Valkey (SERVERS=, PARTS=, JOBS=)
	@sh scripts/test-clients.sh

test-metrics: ## test contrib/ with Debian's Prometheus and redis_exporter, which are unpacked under target/metrics
	@sh scripts/need.sh build
	cargo build --release
	@sh scripts/test-metrics.sh

test-packages: ## test what make deb and make dist build (root; LINTIAN=yes)
	@sh scripts/test-deb.sh
	@sh scripts/test-dist.sh

test-images: ## build the container images with buildah and Debian's packages, and start them
	@sh scripts/test-images.sh

test-arm64: ## build the module for arm64, and run server tests on Debian's Redis for arm64 under qemu (root; TESTS=)
	@sh scripts/test-arm64.sh

test-upgrades: ## upgrade servers under load from earlier versions (VERSIONS="0.2.0 ...", SERVERS=, SECONDS=, SEED=)
	@sh scripts/test-upgrades.sh

test-memory: ## test with AddressSanitizer in the server and the module (SERVERS="redis-7.0 ...", STORIES=)
	@sh scripts/test-memory.sh

test-docs: ## test the site of make docs in a browser: its search, links and plots
	@sh scripts/test-docs.sh

bugs: ## seed bugs in a copy of the tree, one at a time, and see that the tests catch each (NAMES='part ...')
	@sh scripts/need.sh build peers
	cargo build --release
	@DSYNC_TEST_SERVER="$${DSYNC_TEST_SERVER:-$$(sh scripts/server.sh redis)}" \
		DSYNC_TEST_MODULE="$(CURDIR)/target/release/libdsync.so" python3 tests/bugs/run.py $(NAMES)

mutants: ## play mutants of the engine and of src/commands: which do the tests catch? (FILE=, LONGEST=, WOVEN=yes, KEEP=yes)
	@sh scripts/mutants.sh

fuzz: ## send random commands and faults to servers (SECONDS=, SEED=, SERVERS=, REPLAY=file, REDUCE=yes)
	@sh scripts/fuzz.sh

fuzz-engine: ## give the engine and the parser what libFuzzer makes up; needs a nightly compiler (SECONDS=, TARGET=, KEEP=)
	@sh scripts/fuzz-engine.sh

soak: ## the same as fuzz for hours on every server that is there, two rounds at a time (HOURS=, SERVERS=, RECORD=yes)
	@sh scripts/soak.sh

server-suites: ## run the servers' own tests with the module in every server they start (SERVERS="redis-7.0 ...", UNITS=)
	@sh scripts/server-suites.sh

compare-modules: ## compare all that is seen of the module OLD=file and of this one (SECONDS=, SEED=, ... as above)
	@sh scripts/fuzz.sh compare

bench: ## compare speed and memory with what the server can do without the module (SERVER=, MODULE=, ONLY=, OUT=)
	@sh scripts/bench.sh full

bench-growth: ## show how costs grow with waiters, held locks, holders and contended keys
	@sh scripts/bench.sh growth

bench-peers: ## compare with other lock algorithms and libraries, which are installed under target/peers
	@sh scripts/bench-peers.sh

bench-clients: ## measure what the client packages cost beside their libraries' own commands (ONLY="python ...", SERVER=, MODULE=)
	@sh scripts/bench-clients.sh

bench-instructions: ## count the instructions that the server executes for an operation (SERVER=, MODULE=, OLD=, ONLY=, OUT=)
	@sh scripts/bench-instructions.sh

bench-quick: ## run all of these but the installed libraries and the instructions at a small size, to see that every reply is right
	@sh scripts/bench.sh quick

lint: ## check format, clippy's lints, the documentation and how long the lines of comments are
	@sh scripts/need.sh build
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --document-private-items
	@! git grep -nE '.{126}' -- '*.rs' | grep -E '^[^:]*:[0-9]*: *//[/!]? [^|]' || { echo 'a comment has at most 125 characters a line' >&2; exit 1; }

# Not part of `lint`, because the tool takes some minutes to build.
lint-clients: ## the same for the Rust client and the tool
	@sh scripts/need.sh build
	@sh clients/rust/lint.sh
	@sh cli/lint.sh

licences: ## check the licences and sources of all dependencies against deny.toml
	@sh scripts/licences.sh

docs: ## build the pages as a site with search, target/docs, to be read from files
	@sh scripts/docs.sh

# Does not build, because root often has no cargo, and because the user could not clean what root has built.
install: ## install the built module where the server may load it (PREFIX=, MODULE_DIR=, DESTDIR=)
	@sh scripts/install.sh

cli: ## build the command-line tool, target/cli/release/dsync, its man pages and completions
	@sh scripts/need.sh build
	CARGO_TARGET_DIR=$(CURDIR)/target/cli cargo build --release --locked --manifest-path cli/Cargo.toml
	@rm -rf target/cli/share
	@target/cli/release/dsync generate target/cli/share

# Does not build, for the same reason.
install-cli: ## install the built tool, its man pages and completions (PREFIX=, DESTDIR=)
	@sh scripts/install-cli.sh

# The two targets below build the module and the tool anew, with the paths of this machine left out.
deb: ## build Debian packages of the module and of the tool, in target/dist
	@sh scripts/deb.sh

dist: ## build the archive of a release with its checksum, in target/dist
	@sh scripts/dist.sh

clean: ## remove everything built or unpacked under target/
	cargo clean
