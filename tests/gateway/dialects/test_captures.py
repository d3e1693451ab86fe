"""The captures themselves: each is replayed, and none tells of a key or of the machine it was made on."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

from tests.peers import captures

KEY_HEADERS = {"authorization", "x-api-key", "xi-api-key", "cookie"}
MASKED = {"<masked>", "Bearer <masked>", "Token <masked>"}
PRIVATE = re.compile(
    r"/(home|root|work|tmp|usr|var|opt|mnt|Users)/|[A-Z]:\\\\|\bsk[-_][\w-]{8}|\beyJ[\w-]{8}"
)
"""Paths of a machine, and how keys and tokens begin."""


@pytest.mark.parametrize(
    "text",
    [
        "sk-proj-Ab12Cd34Ef56",
        "sk_car_Ab12Cd34Ef56",
        "sk_0123456789abcdef",
        "eyJhbGciOiJIUzI1NiJ9",
        "/home/me/x",
    ],
)
def test_keys_and_paths_are_known(text: str) -> None:
    assert PRIVATE.search(f'{{"a": "{text}"}}')


def replayed() -> Counter[Path]:
    """How many tests of the modules beside this one are given each capture."""
    given: Counter[Path] = Counter()
    for path in sorted(Path(__file__).parent.glob("test_*_replay.py")):
        module = import_module(f"tests.gateway.dialects.{path.stem}")
        for _, test in inspect.getmembers(module, inspect.isfunction):
            marks = getattr(test, "pytestmark", []) if test.__name__.startswith("test_") else []
            given.update(
                p for m in marks if m.name == "parametrize" and m.args[0] == "capture" for p in m.args[1]
            )
    return given


def test_every_capture_is_replayed() -> None:
    assert len(captures.every()) == 34
    assert set(replayed()) == set(captures.every())
    assert set(replayed().values()) == {1}


def test_a_capture_begins_with_its_connection_and_its_client_speaks() -> None:
    for path in captures.every():
        kinds = [line["dir"] for line in captures.lines_of(path)]
        assert kinds[0] == "open", path.name
        assert "c2s" in kinds, path.name


def test_no_capture_tells_a_key_or_a_path_of_a_machine() -> None:
    for path in captures.every():
        assert not PRIVATE.findall(path.read_text(encoding="utf-8")), path.name
        for line in captures.lines_of(path):
            for name, value in line.get("headers", {}).items():
                assert name.lower() not in KEY_HEADERS or value in MASKED, path.name


def test_messages_are_written_as_their_clients_write_them() -> None:
    said = {"kind": "text", "json": {"type": "Speak", "text": "caf\u00e9"}}
    assert captures.written(Path("deepgram-sdk_x"), said) == '{"type": "Speak", "text": "caf\\u00e9"}'
    assert (
        captures.written(Path("openai-sdk_x"), {**said, "kind": "body"})
        == '{"type":"Speak","text":"caf\u00e9"}'
    )
    cancel = {"kind": "text", "json": {"cancel": True}}
    assert captures.written(Path("cartesia-sdk_x"), cancel) == '{\n  "cancel": true\n}'
    assert captures.written(Path("pipecat-cartesia_x"), cancel) == '{"cancel": true}'
