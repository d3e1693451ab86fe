"""What the tests of this folder share: requests, and their frames in one piece."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.frames import FrameBatch, FrameRequest, SpeakerPrefix
from tts_core.gepard.prompt import branches
from tts_core.gepard.sampling import Sampling
from tts_core.nanocodec import fsq

TEXT = "Hello, thank you for calling. How can I help you today?"


def request(
    checkpoint: Checkpoint,
    text: str = TEXT,
    *,
    name: str = "r",
    prefix: SpeakerPrefix | None = None,
    context: fsq.Codes | None = None,
    **sampling: Any,
) -> FrameRequest:
    """A request for ``text``; greedy unless said otherwise."""
    made = Sampling(**{"temperature": 0.0, "max_frames": 40, **sampling})
    ids, uncond = branches(checkpoint.config, checkpoint.tokenizer().encode(text), made)
    return FrameRequest(name, ids, prefix, made, uncond, context)


def prefix_of(checkpoint: Checkpoint, seed: int) -> SpeakerPrefix:
    """A speaker with random rows."""
    rows = np.random.default_rng(seed).standard_normal((8, checkpoint.config.hidden_size))
    return SpeakerPrefix.of(rows.astype(np.float32))


def joined(batches: Iterable[FrameBatch]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], str]:
    """All codes, all entropies and the finish, which only the last batch may have."""
    every = list(batches)
    assert [batch.finish for batch in every[:-1]] == [""] * (len(every) - 1)
    codes = np.concatenate([batch.codes for batch in every])
    entropy = np.concatenate([batch.entropy for batch in every])
    assert codes.dtype == np.uint8 and len(codes) == len(entropy)
    return codes, entropy, every[-1].finish


def random_codes(count: int, seed: int = 0) -> fsq.Codes:
    """Codes uint8 ``[count, 32]``."""
    generator = np.random.default_rng(seed)
    return np.stack([generator.integers(0, levels, count) for levels in fsq.LEVELS], 1).astype(np.uint8)


def published() -> dict[str, Any]:
    """A ``gepard_config.json`` with every key and number of ``nineninesix/gepard-1.0``."""
    return json.loads((Path(__file__).parent / "published.json").read_text())
