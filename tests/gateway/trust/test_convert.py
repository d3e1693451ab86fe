"""The published speaker model becomes the one pinned file, and nothing else becomes one."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gateway.cli import main
from gateway.trust.convert import PINNED, SOURCE, convert, convert_bytes
from gateway.trust.graph import shapes
from tests.gateway.trust.test_checkpoint import _Call, _Named, file, tensor
from tests.peers import speakers
from tts_core.errors import EngineError


def wheel(*members: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            with pytest.warns(UserWarning) if name in archive.namelist() else _nothing():
                archive.writestr(name, data)
    return out.getvalue()


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def checkpoint(**change: tuple[int, ...] | None) -> bytes:
    """Of the right shapes, with small numbers; ``change`` gives a tensor another shape or leaves it out."""
    state, stored = {}, {}
    for name, shape in (shapes() | {n.replace("__", "."): s for n, s in change.items()}).items():
        if shape is not None:
            state[name] = tensor(name, *shape)
            stored[name] = np.full(int(np.prod(shape)), 0.01, "<f4").tobytes()
    return file({"model_state": state}, stored)


def test_the_wheel_and_its_weights_become_the_pinned_file(tmp_path: Path) -> None:
    source = speakers.wheel_weights()
    packed = tmp_path / "resemblyzer.whl"
    packed.write_bytes(wheel(("resemblyzer/__init__.py", b"raise SystemExit"), (SOURCE, source.read_bytes())))
    for n, given in enumerate((source, packed)):
        target = tmp_path / f"speaker{n}.onnx"
        convert(given, target)
        assert hashlib.sha256(target.read_bytes()).hexdigest() == PINNED
    assert sorted(p.name for p in tmp_path.iterdir()) == ["resemblyzer.whl", "speaker0.onnx", "speaker1.onnx"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "speaker.onnx"
    assert main(["models", "convert-speaker", str(speakers.wheel_weights()), str(target)]) == 0
    out = capsys.readouterr().out
    assert PINNED in out and "VOXWIRE_SPEAKER_MODEL=" in out
    assert main(["models", "convert-speaker", str(tmp_path / "none"), str(target)]) == 1
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"linear__bias": None}, "has no linear.bias"),
        ({"linear__bias": (255,)}, "linear.bias .* shape"),
        ({"lstm__weight_hh_l2": (1024, 255)}, "lstm.weight_hh_l2 .* shape"),
        ({"lstm__weight_ih_l3": (2,)}, "lstm.weight_ih_l3, which is unknown"),
    ],
)
def test_names_and_shapes_are_exact(change: dict[str, tuple[int, ...] | None], words: str) -> None:
    with pytest.raises(EngineError, match=words):
        convert_bytes(checkpoint(**change))


def test_other_weights_are_refused(tmp_path: Path) -> None:
    path, target = tmp_path / "a.pt", tmp_path / "speaker.onnx"
    path.write_bytes(checkpoint(similarity_bias=(1,)))
    with pytest.raises(EngineError, match="not the weights of Resemblyzer"):
        convert(path, target)
    assert not target.exists()


def test_a_hostile_file_runs_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    evil = file({"model_state": _Call(_Named("os", "system"), f"touch {marker}")}, {})
    twice = wheel((SOURCE, speakers.wheel_weights().read_bytes()[:100]), (SOURCE, evil))
    for data, words in (
        (evil, "would call os system"),
        (wheel((SOURCE, evil)), "would call os system"),
        (twice, "exactly once"),
        (wheel(("../resemblyzer/pretrained.pt", evil)), "exactly once"),
        (wheel((SOURCE, b"x"))[:-30], "damaged"),
        (b"PK", "damaged"),
        (b"", "damaged"),
    ):
        path = tmp_path / "hostile"
        path.write_bytes(data)
        with pytest.raises(EngineError, match=words):
            convert(path, tmp_path / "out")
    assert not marker.exists()
    assert not (tmp_path / "out").exists()


def test_a_small_file_that_stands_for_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.trust.convert.MOST_BYTES", 1000)
    with pytest.raises(EngineError, match="too large"):
        convert_bytes(wheel((SOURCE, bytes(100_000))))


def test_the_child_has_a_deadline_and_none_of_our_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(b"x")
    monkeypatch.setenv("VOXWIRE_SECRET", "s" * 32)
    monkeypatch.setattr(
        "gateway.trust.convert._COMMAND",
        "import os, sys; sys.stdout.write(' '.join(os.environ)); sys.stdout.flush(); os._exit(3)",
    )
    with pytest.raises(EngineError) as told:
        convert(path, tmp_path / "out")
    assert "PYTHONPATH" in told.value.message or "OPENBLAS" in told.value.message or len(os.environ)
    assert "VOXWIRE_" not in told.value.message
    monkeypatch.setattr("gateway.trust.convert._COMMAND", "import signal; signal.pause()")
    with pytest.raises(EngineError, match="too long"):
        convert(path, tmp_path / "out", deadline_s=0.3)
    monkeypatch.setattr("gateway.trust.convert._COMMAND", "import os; os.abort()")
    with pytest.raises(EngineError, match="died"):
        convert(path, tmp_path / "out")
