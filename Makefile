# Voxwire. `make run` and `make test` are all that a fresh machine with Python 3.11 or newer needs; each sets up what it
# needs the first time (shared between checkouts, see deploy/envs.py) and costs one stamp check from then on.
#
# VOXWIRE_CACHE  where the shared environments live (default ~/.cache/voxwire)
# PYTHON         interpreter to build them with (default: the first of python3, python3.11, ... that is new enough)
# WITH           for make run: base (default), or compressed for MP3, Opus, AAC and FLAC
# ARGS           further arguments for voxwire serve, pytest (options, not files) or the benches
#
# There are two environments in a checkout: .venv, and .venv-gepard with the model's stack (torch, vLLM on the CPU). The
# second is for CPython 3.11 on x86-64 Linux, where pip can find PyTorch's CPU builds.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.PHONY: help run run-gepard make-tiny setup setup-test test test-fast test-model lint format cover bench size lock clean

# $(call python,ARGUMENTS): run the first interpreter that is new enough. Looked for only when something must be built.
python = { for p in $(PYTHON) python3 python3.11 python3.12 python3.13 python3.14; do \
    if $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then exec $$p $(1); fi; \
  done; echo "error: Voxwire needs Python 3.11 or newer; set PYTHON to one" >&2; exit 1; }

PROGRAMS := redis-server chromium ffmpeg systemd-analyze:systemd node:nodejs npm
CLIENTS := nemo pipecat livekit sdk asr wyoming piper-engine perth speaker kokoro fuzz
PEERS := pipecat piper wyoming

# These run in .venv-gepard and are left out of the run in .venv (tests/conftest.py); a missing torch fails them.
MODEL_TESTS := tests/tts_core/gepard tests/tts_core/nanocodec tests/gepard_path

# $(call link,base|compressed|test|gepard): the stamp holds while nothing that .venv (.venv-gepard) was made from is newer,
# it was made in this folder, and the environment it points to is still there; the touch says that this one is in use.
mark = $(if $(filter gepard,$(1)),.venv-gepard,.venv)/voxwire-env
link = @{ mapfile -t was <$(mark); } 2>/dev/null \
  && [[ " $(1) test " == *" $${was[0]} "* && -x $${was[1]}/bin/python && $${was[2]} == "$(CURDIR)" \
    && ! pyproject.toml -nt $(mark) && ! deploy/envs.py -nt $(mark) \
    && ! deploy/requirements/$${was[0]}.txt -nt $(mark) ]] && { touch -c "$${was[1]}" 2>/dev/null || :; } \
  || $(call python,deploy/envs.py link $(1))

# $(call tests,OPTIONS): both runs, whatever the first one says.
tests = @status=0; \
  .venv/bin/python -m pytest $(1) $(ARGS) || status=1; \
  .venv-gepard/bin/python -m pytest $(1) $(MODEL_TESTS) $(ARGS) || status=1; \
  exit $$status

help: ## say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## set up what is missing and start the gateway (VOXWIRE_PORT, default 8080; WITH=compressed for MP3 and the like)
	$(call link,$(or $(WITH),base))
	@exec .venv/bin/voxwire serve $(ARGS)

run-gepard: ## start the gateway with a GEPARD model (CHECKPOINT=folder or id, CODEC=file of NanoCodec)
	@$(if $(CHECKPOINT),:,echo "usage: make run-gepard CHECKPOINT=DIR [CODEC=FILE] (make make-tiny writes one)" >&2; exit 2)
	$(call link,gepard)
	@exec env VOXWIRE_ENGINE=gepard VOXWIRE_GEPARD_CHECKPOINT="$(CHECKPOINT)" \
	  $(if $(CODEC),VOXWIRE_GEPARD_CODEC="$(CODEC)") .venv-gepard/bin/voxwire serve $(ARGS)

make-tiny: ## write a small random model to try run-gepard with: noise, but the whole path
	$(call link,gepard)
	@.venv-gepard/bin/voxwire models make-tiny artifacts/gepard-tiny $(ARGS)

setup: ## set up the gateway without starting it
	$(call link,base)

setup-test: ## set up everything the tests need, the Debian packages too
	$(call link,test)
	@deploy/debian-packages $(PROGRAMS)
	@.venv/bin/python -m tests.envs gepard $(CLIENTS) >/dev/null
	@.venv/bin/python -m tests.peers.node >/dev/null
	$(call link,gepard)

test: setup-test ## run every test
	$(call tests,-v --durations=10)

test-fast: setup-test ## run the tests that take seconds, those of the model left out (under 5 minutes in all)
	.venv/bin/python -m pytest -m "not slow" $(ARGS)

test-model: setup-test ## run the tests of GEPARD and NanoCodec alone
	.venv-gepard/bin/python -m pytest $(MODEL_TESTS) $(ARGS)

lint: ## style, types (strict) and the directions of imports
	$(call link,test)
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports

format: ## rewrite the sources in the common style
	$(call link,test)
	.venv/bin/ruff check --fix
	.venv/bin/ruff format

cover: setup-test ## coverage of each module by its own test module alone, against its floor
	.venv/bin/python -m tests.cover $(ARGS)

bench: ## run every bench into the README's table
	$(call link,test)
	@.venv/bin/python -m tests.envs $(PEERS) >/dev/null
	.venv/bin/python -m tests.bench all --readme $(ARGS)

size: ## print what the base install takes on disk
	@$(call python,deploy/envs.py size base)

lock: ## write deploy/requirements/*.txt anew (ARGS=--upgrade moves the pins)
	deploy/lock $(ARGS)

clean: ## remove what was made in this checkout; the shared environments stay
	rm -rf artifacts build dist .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache *.egg-info
	find . -name __pycache__ -not -path './.venv*' -prune -exec rm -rf {} +
	for made in .venv .venv-gepard; do if [ -f $$made/voxwire-env ]; then rm -rf $$made; fi; done
