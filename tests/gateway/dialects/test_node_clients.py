"""The official Node.js SDKs, unmodified, over TLS with a throw-away authority, against the real voice."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from typing import Any

import av
import pytest

from tests.peers import node
from tests.peers.clients import SENTENCES, audible, over_tls


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What all SDKs got."""
    with over_tls(tmp_path_factory.mktemp("pki")) as (gateway, root):
        yield node.run("sdks.cjs", gateway.secure_url, authority=root)


@pytest.mark.slow
def test_cartesia_speaks_deltas_cancels_and_downloads_fact_3(said: dict[str, Any]) -> None:
    got = said["cartesia"]
    assert 4.0 < audible(got["turn"]["audio"]) < 8.0
    assert " ".join(got["turn"]["words"]) == SENTENCES
    assert got["turn"]["kinds"][-1] == "done"
    assert 0.5 < audible(got["again"]["audio"]) < 2.0
    assert 4.0 < audible(got["bytes"]) < 8.0
    assert "heart" in got["voices"]


@pytest.mark.slow
def test_elevenlabs_streams_times_and_downloads_fact_3(said: dict[str, Any]) -> None:
    got = said["elevenlabs"]
    assert 4.0 < audible(got["stream"]) < 8.0
    assert 4.0 < audible(got["timed"]) < 8.0
    assert got["characters"] == SENTENCES
    with av.open(io.BytesIO(base64.b64decode(got["mp3"])), "r") as file:
        samples = sum(frame.samples for frame in file.decode(audio=0))
    assert 4.0 < samples / 44100 < 8.5
    assert "heart" in got["voices"]


@pytest.mark.slow
def test_deepgram_speaks_a_turn_and_a_file(said: dict[str, Any]) -> None:
    got = said["deepgram"]
    assert 4.0 < audible(got["audio"], rate=24000) < 8.0
    assert got["kinds"] == ["Metadata", "Flushed"]
    wav = base64.b64decode(got["wav"])
    assert wav[:4] == b"RIFF"
    assert 4.0 < audible(base64.b64encode(wav[44:]).decode(), rate=24000) < 8.0


@pytest.mark.slow
def test_openai_speaks_chunked_and_by_events(said: dict[str, Any]) -> None:
    got = said["openai"]
    assert 4.0 < audible(got["pcm"], rate=24000) < 8.0
    assert got["sse"] == got["pcm"]
    assert got["status"] == 404
    assert got["models"]
