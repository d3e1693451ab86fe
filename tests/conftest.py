"""What holds for every test: the two environments (see tests/envs.py), and nothing that calls out."""

from __future__ import annotations

import os
from importlib.util import find_spec

from tests.envs import MODEL_TESTS, ROOT

# Read by the model's libraries at import, here and in the processes that tests start.
os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", DO_NOT_TRACK="1")

# Not where they are asked for by name, as in the second run of make test: there a missing torch is an error.
collect_ignore = [] if find_spec("torch") else [str(ROOT / folder) for folder in MODEL_TESTS]
