"""What a greedy gateway must say: the plain loop's frames, decoded in one piece."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from telephony.dsp.pcm import decode
from tts_core.engine import Samples
from tts_core.gepard.budget import budget_of
from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.frames import FrameRequest, SpeakerPrefix
from tts_core.gepard.prompt import branches
from tts_core.gepard.reference import ReferenceModel
from tts_core.gepard.sampling import Sampling
from tts_core.gepard.speaker import load_speaker
from tts_core.nanocodec import fsq
from tts_core.nanocodec.convert import ensure
from tts_core.nanocodec.decoder import TorchDecoder

SHORT = "Please hold the line."
LONG = "Is there anything else?"
"""Texts that are one segment, are spoken as they are written, and on which the tiny model stops by itself."""


@lru_cache
def _loaded(folder: Path) -> tuple[Checkpoint, ReferenceModel, SpeakerPrefix, TorchDecoder]:
    checkpoint = Checkpoint.open(folder)
    prefix = SpeakerPrefix.of(load_speaker(checkpoint).null_prefix)
    return (
        checkpoint,
        ReferenceModel.load(checkpoint),
        prefix,
        TorchDecoder.load(ensure(folder / "codec.nemo")),
    )


@lru_cache
def spoken(folder: Path, text: str) -> Samples:
    """The samples of a text, float32 at 22.05 kHz, 1024 a frame."""
    checkpoint, model, prefix, decoder = _loaded(folder)
    sampling = Sampling(temperature=0.0, max_frames=budget_of(text).cap)
    ids, _ = branches(checkpoint.config, checkpoint.tokenizer().encode(text), sampling)
    batches = list(model.frames(FrameRequest("oracle", ids, prefix, sampling)))
    assert batches[-1].finish == "stop"
    codes: Any = np.concatenate([batch.codes for batch in batches])
    samples, _ = decoder.step(codes[None], [decoder.new_state()])
    assert samples.shape == (1, len(codes) * fsq.SAMPLES_PER_FRAME)
    whole: Samples = samples[0]
    return whole


def close(audio: bytes, encoding: str, wanted: bytes) -> bool:
    """Whether encoded audio is what is wanted, but for the rounding of a decoder that is fed in pieces."""
    if len(audio) != len(wanted):
        return False
    heard, ours = decode(audio, encoding), decode(wanted, encoding)
    # mu-law is coarse: a sample on the edge between two codes may fall on either side.
    step = 2e-4 if encoding == "pcm_s16le" else 0.05
    return bool(np.mean(heard != ours) < 0.02 and np.abs(heard - ours).max() < step)
