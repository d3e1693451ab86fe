"""The backend on NeMo's own modules: cut into pieces, it gives what NeMo gives for the whole clip."""

from __future__ import annotations

import numpy as np

from tests.tts_core.nanocodec.cases import CLOSE
from tests.tts_core.nanocodec.oracle import Oracle
from tts_core.nanocodec.config import LEFT_CONTEXT


def test_pieces_are_exact(oracle: Oracle) -> None:
    assert sum(oracle.streamed_sizes) > LEFT_CONTEXT + 1
    assert oracle.streamed.shape == oracle.samples.shape
    assert np.abs(oracle.streamed - oracle.samples).max() <= CLOSE
