"""What holds for every test: the two environments (see tests/envs.py), and nothing that calls out."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.envs import MODEL_TESTS, ROOT

# Read by the model's libraries at import, here and in the processes that tests start.
os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1")

# Not where they are asked for by name, as in the second run of make test: there a missing torch is an error.
collect_ignore = [] if find_spec("torch") else [str(ROOT / folder) for folder in MODEL_TESTS]


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A gateway sets logging up for its whole process; the next test must not find that."""
    root = logging.getLogger()
    handlers, level, told = list(root.handlers), root.level, logging.raiseExceptions
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.raiseExceptions = told
    logging.captureWarnings(False)
