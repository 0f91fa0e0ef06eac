# Every target is one or two lines of cargo, nfgen or a script. `make help` lists them.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

MODEL  ?= small
DEVICE ?= zcu102
CORPUS ?= data/corpus.txt
STEPS  ?= 30
SAMPLES ?= 50
OUT    ?= generated/$(MODEL)
NFGEN  := target/release/nfgen

.PHONY: help demo build tools tools-synth test test-full lint sim emit bless bench bitstream

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: tools build ## train the small model in generated RTL on data/corpus.txt (CORPUS=file for another text)
	$(NFGEN) sim --model small --corpus "$(CORPUS)" --steps $(STEPS)

build: ## build the release binary
	cargo build --release --quiet

tools: ## install missing simulators and Tcl (Debian; needs root or sudo)
	scripts/install-tools

tools-synth: ## install Yosys 0.70 for `nfgen synth`, private to this folder
	scripts/install-tools --synth

test: ## all tests; tests whose tool is missing say `skipped` (NFGEN_REQUIRE_TOOLS=1 makes that an error)
	cargo test

test-full: tools ## also the long ones: mutation run, shortened training runs
	NFGEN_FULL=1 NFGEN_REQUIRE_TOOLS=1 cargo test --release

lint: ## formatting, clippy, and Verilator and Icarus over generated/tiny
	cargo fmt --check
	cargo clippy --all-targets --quiet -- -D warnings
	scripts/lint-rtl generated/tiny

sim: tools build ## simulate MODEL on CORPUS for STEPS steps against the reference
	$(NFGEN) sim --model $(MODEL) --corpus "$(CORPUS)" --steps $(STEPS)

emit: build ## write the design of MODEL for DEVICE to OUT
	$(NFGEN) emit --model $(MODEL) --device $(DEVICE) -o "$(OUT)"

bless: build ## accept changed snapshots and generated/tiny; read the diff afterwards
	INSTA_UPDATE=always cargo test --quiet
	$(NFGEN) emit --model tiny --array 4 -o generated/tiny
	git diff --stat

bench: build ## time a training step here and, where Python has them, in PyTorch and JAX
	scripts/bench-peers $(NFGEN) "$(CORPUS)" 300

bitstream: emit ## build the bitstream with Vivado
	scripts/bitstream "$(OUT)"
