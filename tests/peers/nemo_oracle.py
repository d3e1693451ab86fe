"""What NVIDIA's NeMo makes of a codec file. Runs in the environment ``nemo``.

    python nemo_oracle.py CODEC.nemo CODEC.safetensors ASKED.npz ANSWERED.npz

``ASKED`` has ``codes`` [T, 32], ``clip`` [n] and ``sizes``; ``ANSWERED`` gets the tokens of the clip [8, T'],
the samples of the codes (from the values, and from the tokens of NeMo's own folding), and the samples of our
backend on NeMo's modules, decoded in pieces of ``sizes``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nemo.collections.tts.models import AudioCodecModel

from tts_core.nanocodec.fsq import dequantise, fold
from tts_core.nanocodec.nemo import NemoDecoder


def streamed(decoder: NemoDecoder, codes: Any, sizes: Any) -> Any:
    state, at, pieces = decoder.new_state(), 0, []
    for size in sizes:
        samples, (state,) = decoder.step(codes[None, at : at + size], [state])
        pieces.append(samples[0])
        at += size
    return np.concatenate(pieces)


def main(nemo: str, ours: str, asked: str, answered: str) -> None:
    torch.set_num_threads(1)
    model = AudioCodecModel.restore_from(nemo, map_location="cpu").eval()
    with np.load(asked) as question:
        codes, clip, sizes = question["codes"], question["clip"], question["sizes"]
    frames = torch.tensor([len(codes)])
    with torch.inference_mode():
        tokens, _ = model.encode(audio=torch.from_numpy(clip)[None], audio_len=torch.tensor([len(clip)]))
        values = torch.from_numpy(dequantise(codes).T[None].copy())
        samples, _ = model.decode_audio(inputs=values, input_len=frames)
        folded = torch.from_numpy(fold(codes).T[None].copy())
        from_tokens, _ = model.decode(tokens=folded, tokens_len=frames)
    np.savez(
        answered,
        tokens_of_clip=tokens[0].numpy(),
        samples=samples[0].numpy(),
        samples_of_tokens=from_tokens[0].numpy(),
        streamed=streamed(NemoDecoder.load(Path(ours)), codes, sizes),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
