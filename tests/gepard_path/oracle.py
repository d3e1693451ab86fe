"""What a greedy gateway must say: the plain loop's frames, decoded in one piece."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gateway.intake.clip import decode_clip
from telephony.dsp.pcm import decode
from tts_core.engine import Samples
from tts_core.gepard.budget import budget_of
from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.frames import FrameRequest, SpeakerPrefix
from tts_core.gepard.prefixes import pack
from tts_core.gepard.prompt import branches
from tts_core.gepard.reference import ReferenceModel
from tts_core.gepard.sampling import Sampling
from tts_core.gepard.speaker import load_speaker
from tts_core.nanocodec import fsq
from tts_core.nanocodec.convert import ensure
from tts_core.nanocodec.decoder import TorchDecoder
from tts_core.nanocodec.encoder import Encoder

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


async def voice(folder: Path, recording: bytes) -> bytes:
    """What the model makes of somebody's recording, as voices are kept."""
    clip = await decode_clip(recording)
    codes = Encoder.load(ensure(folder / "codec.nemo")).encode(clip.best)
    return pack(load_speaker(_loaded(folder)[0]).prefix(codes))


@lru_cache
def spoken(folder: Path, text: str, voice: bytes = b"") -> Samples:
    """The samples of a text, float32 at 22.05 kHz, 1024 a frame; in no particular voice, or in this one."""
    checkpoint, model, prefix, decoder = _loaded(folder)
    if voice:
        rows = np.frombuffer(voice, "<f2").reshape(prefix.rows.shape).astype(np.float32)
        prefix = SpeakerPrefix.of(rows)
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
