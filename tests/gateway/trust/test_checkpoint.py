"""Torch's old checkpoint files, read as data: hostile ones run nothing and end in one error."""

from __future__ import annotations

import io
import os
import pickle
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.trust.checkpoint import MAGIC, VERSION, read_tensors
from tts_core.errors import EngineError

SIZES = {"protocol_version": VERSION, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}


class _Named:
    """Pickles as the bare name of a class or function."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class _Call:
    def __init__(self, called: _Named, *arguments: Any) -> None:
        self.called, self.arguments = called, arguments


class _Stored:
    def __init__(self, *identity: Any) -> None:
        self.identity = identity


def pickled(value: Any) -> bytes:
    """Protocol 2, as torch writes it, of plain values and the three above."""
    out = bytearray(b"\x80\x02")

    def text(word: str) -> bytes:
        return b"X" + struct.pack("<I", len(word.encode())) + word.encode()

    def put(item: Any) -> None:
        if isinstance(item, _Named):
            out.extend(b"c" + f"{item.module}\n{item.name}\n".encode())
        elif isinstance(item, _Call):
            put(item.called)
            put(item.arguments)
            out.extend(b"R")
        elif isinstance(item, _Stored):
            put(item.identity)
            out.extend(b"Q")
        elif isinstance(item, tuple):
            out.extend(b"(")
            for part in item:
                put(part)
            out.extend(b"t")
        elif isinstance(item, dict):
            out.extend(b"}(")
            for key, part in item.items():
                put(key)
                put(part)
            out.extend(b"u")
        elif isinstance(item, list):
            out.extend(b"](")
            for part in item:
                put(part)
            out.extend(b"e")
        elif isinstance(item, str):
            out.extend(text(item))
        else:
            out.extend(pickle.dumps(item, 2)[2:-1])

    put(value)
    return bytes(out) + b"."


def tensor(key: str, *shape: int, offset: int = 0, size: int | None = None, **change: Any) -> _Call:
    count = int(np.prod(shape)) + offset if size is None else size
    kind = _Named("torch", change.get("kind", "FloatStorage"))
    strides = change.get("strides", tuple(int(np.prod(shape[i + 1 :])) for i in range(len(shape))))
    storage = _Stored("storage", kind, key, "cpu", count, None)
    hooks = _Call(_Named("collections", "OrderedDict"))
    return _Call(_Named("torch._utils", "_rebuild_tensor_v2"), storage, offset, shape, strides, False, hooks)


def file(top: Any, stored: dict[str, bytes], *, magic: int = MAGIC, version: int = VERSION) -> bytes:
    head = pickled(magic) + pickled(version) + pickled(SIZES) + pickled(top) + pickled(list(stored))
    return head + b"".join(struct.pack("<q", len(raw) // 4) + raw for raw in stored.values())


def floats(count: int) -> bytes:
    return np.arange(count, dtype="<f4").tobytes()


def test_tensors_come_out_as_they_went_in() -> None:
    state = {"a.weight": tensor("1", 2, 3), "b": tensor("2", 4, offset=2), "c": tensor("1", 6)}
    found = read_tensors(file({"step": 7, "state": state}, {"1": floats(6), "2": floats(6)}), "state")
    assert list(found) == ["a.weight", "b", "c"]
    assert found["a.weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert found["b"].tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("module", "name"), [("os", "system"), ("builtins", "eval"), ("torch", "load"), ("collections", "deque")]
)
def test_nothing_is_called(module: str, name: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    for at in ("value", "beside", "top"):
        call = _Call(_Named(module, name), f"touch {marker}")
        top: Any = {"state": {"a": tensor("1", 1)}}
        if at == "value":
            top["state"]["b"] = call
        elif at == "beside":
            top["other"] = call
        else:
            top = call
        with pytest.raises(EngineError, match=f"would call {module} {name}"):
            read_tensors(file(top, {"1": floats(1)}), "state")
    assert not marker.exists()


class _Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", range(6))
def test_what_pickle_itself_writes_runs_nothing(tmp_path: Path, protocol: int) -> None:
    raw = pickle.dumps(OrderedDict(state=_Evil(tmp_path / "made")), protocol)
    head = pickled(MAGIC) + pickled(VERSION) + pickled(SIZES)
    for data in (raw, head + raw, raw + head):
        with pytest.raises(EngineError):
            read_tensors(data, "state")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("top", "stored"),
    [
        ({"state": {"a": tensor("1", 3)}}, {"1": floats(2)}),
        ({"state": {"a": tensor("1", 3, size=2)}}, {"1": floats(2)}),
        ({"state": {"a": tensor("1", 3)}}, {"2": floats(3)}),
        ({"state": {"a": tensor("1", 2, kind="DoubleStorage")}}, {"1": floats(2)}),
        ({"state": {"a": tensor("1", 2, 2, strides=(1, 2))}}, {"1": floats(4)}),
        ({"state": {"a": tensor("1", 2, offset=-1, size=2)}}, {"1": floats(2)}),
        ({"state": {"a": tensor("1", -2, size=2)}}, {"1": floats(2)}),
        ({"state": {"a": tensor("1", 0)}}, {"1": floats(0)}),
        ({"state": {"a": tensor("1", 1)}}, {"1": np.array([np.nan], "<f4").tobytes()}),
        ({"state": {"a": 5}}, {}),
        ({"state": {7: tensor("1", 1)}}, {"1": floats(1)}),
        ({"state": [tensor("1", 1)]}, {"1": floats(1)}),
        ({"other": {}}, {}),
        ([], {}),
        ({("a", "b"): 1}, {}),
    ],
)
def test_what_is_no_state_of_floats_is_refused(top: Any, stored: dict[str, bytes]) -> None:
    with pytest.raises(EngineError):
        read_tensors(file(top, stored), "state")


def test_a_key_that_takes_for_ever_to_hash_is_not_hashed() -> None:
    twice = b"(]t" + b"".join(b"q" + bytes([n]) + b"h" + bytes([n]) + b"\x86" for n in range(100))
    top = b"\x80\x02}(" + twice + b"K\x01u."
    data = pickled(MAGIC) + pickled(VERSION) + pickled(SIZES) + top + pickled([])
    with pytest.raises(EngineError):
        read_tensors(data, "state")


def test_kind_and_end_are_checked() -> None:
    state = {"state": {"a": tensor("1", 2)}}
    good = file(state, {"1": floats(2)})
    assert read_tensors(good, "state")["a"].tolist() == [0, 1]
    for bad in (
        good + b"\0",
        good[:-1],
        b"",
        b"PK\x03\x04" + good,
        file(state, {"1": floats(2)}, magic=1),
        file(state, {"1": floats(2)}, version=1000),
    ):
        with pytest.raises(EngineError):
            read_tensors(bad, "state")


GOOD = file({"state": {"a": tensor("1", 2, 3)}}, {"1": floats(6)})


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damage_is_an_error_or_changes_a_number(data: st.DataObject) -> None:
    raw = bytearray(GOOD)
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    del raw[data.draw(st.integers(len(raw) // 2, len(raw))) :]
    try:
        found = read_tensors(bytes(raw), "state")
    except EngineError:
        return
    assert all(array.dtype == np.float32 and np.isfinite(array).all() for array in found.values())


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_end_in_one_error(raw: bytes) -> None:
    head = pickled(MAGIC) + pickled(VERSION) + pickled(SIZES)
    for data in (raw, head + raw):
        with pytest.raises(EngineError):
            read_tensors(data, "state")
    assert io.BytesIO(raw).read() == raw
