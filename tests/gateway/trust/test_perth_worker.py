"""The worker without the package; with it, see test_perth.py."""

from __future__ import annotations

import io
import json
import struct
import sys
import types
from typing import Any

import numpy as np
import pytest

from gateway.trust.perth_worker import MOST, RATE, Unable, load, serve


class Detector:
    def __init__(self, answer: float = 0.25) -> None:
        self.answer = answer
        self.heard: list[int] = []

    def get_watermark(self, pcm: Any, *, sample_rate: int, round: bool) -> Any:  # noqa: A002
        assert (sample_rate, round, pcm.dtype) == (RATE, False, np.float32)
        self.heard.append(len(pcm))
        return np.array([self.answer])


def request(samples: int) -> bytes:
    return struct.pack("<I", samples) + bytes(4 * samples)


def answers(detector: Detector, data: bytes) -> list[float]:
    out = io.BytesIO()
    serve(detector, io.BytesIO(data), out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_number_a_request() -> None:
    detector = Detector()
    assert answers(detector, request(10) + request(7)) == [0.25, 0.25]
    assert detector.heard == [10, 7]
    assert answers(Detector(float("nan")), request(3)) == [0.0]


@pytest.mark.parametrize(
    "data", [b"", b"\x01\x00", request(0), struct.pack("<I", MOST + 1), request(9)[:-1], request(9)[:4]]
)
def test_it_ends_with_what_is_no_request(data: bytes) -> None:
    assert answers(Detector(), data) == []


def modules(monkeypatch: pytest.MonkeyPatch, version: str = "2.13.0+cpu", **perth: object) -> None:
    torch = types.SimpleNamespace(
        __version__=version,
        nn=types.SimpleNamespace(Module=object),
        set_num_threads=lambda n: None,
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torchaudio", types.ModuleType("torchaudio"))
    monkeypatch.setitem(sys.modules, "perth", types.SimpleNamespace(**perth))


def test_a_package_without_its_parts_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    modules(monkeypatch, PerthImplicitWatermarker=None, DummyWatermarker=Detector)
    with pytest.raises(Unable, match="not whole"):
        load()
    modules(monkeypatch)  # another package of that name
    with pytest.raises(Unable, match="not whole"):
        load()


def test_an_old_torch_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    modules(monkeypatch, "2.5.1", PerthImplicitWatermarker=Detector)
    with pytest.raises(Unable, match=r"older than 2\.6"):
        load()


def test_weights_that_cannot_be_read_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise OSError("disk")

    modules(monkeypatch, PerthImplicitWatermarker=broken)
    with pytest.raises(Unable, match="weights"):
        load()
    modules(monkeypatch, PerthImplicitWatermarker=Detector)
    assert isinstance(load(), Detector)
