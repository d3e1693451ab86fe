"""One small codec for all tests of this folder, made once: as a ``.nemo``, converted, and loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.tts_core.nanocodec.cases import Codec
from tests.tts_core.nanocodec.oracle import Oracle, ask
from tts_core.nanocodec.config import CodecConfig
from tts_core.nanocodec.convert import Converted, convert
from tts_core.nanocodec.decoder import TorchDecoder
from tts_core.nanocodec.encoder import Encoder
from tts_core.nanocodec.tiny import TINY, make_tiny_nemo

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("nanocodec")


@pytest.fixture(scope="session")
def nemo_file(folder: Path) -> Path:
    return make_tiny_nemo(folder / "tiny.nemo")


@pytest.fixture(scope="session")
def converted(nemo_file: Path) -> Converted:
    return convert(nemo_file, nemo_file.with_suffix(".safetensors"))


@pytest.fixture(scope="session")
def codec(converted: Converted, nemo_file: Path) -> Codec:
    return Codec(nemo_file, converted.path)


@pytest.fixture(scope="session")
def config() -> CodecConfig:
    return TINY


@pytest.fixture(scope="session")
def decoder(codec: Codec) -> TorchDecoder:
    return TorchDecoder.load(codec.path)


@pytest.fixture(scope="session")
def encoder(codec: Codec) -> Encoder:
    return Encoder.load(codec.path)


@pytest.fixture(scope="session")
def clip() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Two seconds and a bit of noise that fades in and out: no whole number of frames."""
    noise = np.random.default_rng(7).standard_normal(45_000) / 5
    return (noise * np.hanning(45_000)).astype(np.float32)


@pytest.fixture(scope="session")
def oracle(codec: Codec, clip: np.ndarray[tuple[int], np.dtype[np.float32]], folder: Path) -> Oracle:
    """What NeMo itself makes of the same file."""
    return ask(codec, clip, folder)
