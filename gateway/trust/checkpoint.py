"""Tensors out of torch's old checkpoint file, read as data: nothing in it is imported, built or called.

Such a file (torch before 1.6) is five pickles and then raw numbers: a magic number, a version, the sizes of
C types, the object itself, the names of its storages; then for each storage its length and its values. A
pickle is a program for a small stack machine whose loader may call anything. Here the opcodes are walked by
:func:`pickletools.genops`, which only splits them, and interpreted by a machine that knows the few that make
plain containers. A name of a class or function stays a name, a call stays a pair of name and arguments, and
only the two calls of a state dict are understood. Everything else ends the reading.
"""

from __future__ import annotations

import io
import pickletools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts_core.errors import EngineError

MAGIC = 0x1950A86A20F9469CFC6C
VERSION = 1001
MOST_OPCODES = 100_000
MOST_STORAGES = 1000
MOST_VALUES = 64 << 20
"""Floats of all storages together."""

_ORDERED = "collections OrderedDict"
_TENSOR = "torch._utils _rebuild_tensor_v2"
_FLOATS = "torch FloatStorage"
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], object]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_NUMBERS = {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


@dataclass(frozen=True, slots=True)
class Name:
    """A class or function that the file names."""

    text: str


@dataclass(frozen=True, slots=True)
class Storage:
    """Values that follow the pickles under ``key``."""

    kind: str
    key: str
    size: int


@dataclass(frozen=True, slots=True)
class Tensor:
    """A view of a storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Mark:
    """Where a group begins on the stack."""


def read_tensors(data: bytes, name: str) -> dict[str, NDArray[np.float32]]:
    """The float32 tensors in the state dict under ``name`` of a checkpoint.

    Raises:
        EngineError: the file is damaged, too large, of another kind, or would have something called.

    """
    stream = io.BytesIO(data)
    try:
        if _unpickle(stream) != MAGIC or _unpickle(stream) != VERSION:
            raise _damaged()
        if not isinstance(sizes := _unpickle(stream), dict) or sizes.get("little_endian") is not True:
            raise _damaged()
        top = _unpickle(stream)
        keys = _unpickle(stream)
        if not isinstance(top, dict) or not isinstance(keys, list) or len(keys) > MOST_STORAGES:
            raise _damaged()
        state = top.get(name)
        if not isinstance(state, dict):
            raise EngineError(f"the checkpoint has no {name}")
        return _values(state, dict(_storages(stream, keys)))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise _damaged() from error


def _damaged() -> EngineError:
    return EngineError("the checkpoint is damaged or no old file of torch")


def _storages(stream: io.BytesIO, keys: list[Any]) -> Iterator[tuple[str, bytes]]:
    if not all(isinstance(key, str) for key in keys) or len(set(keys)) != len(keys):
        raise _damaged()
    total = 0
    for key in keys:
        size = int.from_bytes(stream.read(8), "little", signed=True)
        total += max(size, 0)
        values = stream.read(4 * size) if size >= 0 and total <= MOST_VALUES else b""
        if size < 0 or len(values) != 4 * size:
            raise _damaged()
        yield key, values
    if stream.read(1):
        raise _damaged()


def _values(state: dict[Any, Any], stored: dict[str, bytes]) -> dict[str, NDArray[np.float32]]:
    made: dict[str, NDArray[np.float32]] = {}
    for name, tensor in state.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise EngineError("the checkpoint holds more than tensors")
        raw = stored[tensor.storage.key]
        if tensor.storage.kind != _FLOATS or 4 * tensor.storage.size != len(raw):
            raise EngineError(f"{name[:80]} in the checkpoint is not of float32")
        dense = tuple(prod(tensor.shape[i + 1 :]) for i in range(len(tensor.shape)))
        if tensor.strides != dense or tensor.offset < 0 or min(tensor.shape, default=1) < 1:
            raise EngineError(f"{name[:80]} in the checkpoint lies in an unknown order")
        end = tensor.offset + prod(tensor.shape)
        if end > tensor.storage.size:
            raise EngineError(f"{name[:80]} in the checkpoint is cut off")
        array = np.frombuffer(raw, "<f4")[tensor.offset : end].reshape(tensor.shape)
        if not np.isfinite(array).all():
            raise EngineError(f"{name[:80]} in the checkpoint is not finite")
        made[name] = array.astype(np.float32)
    return made


def _unpickle(stream: io.BytesIO) -> Any:
    """One pickle, from where ``stream`` stands to behind its end."""
    machine = _Machine()
    for count, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
        if count > MOST_OPCODES:
            raise EngineError("the checkpoint is too long")
        if opcode.name == "STOP":
            return machine.result()
        machine.step(opcode.name, argument)
    raise _damaged()


class _Machine:
    """The part of pickle's stack machine that makes containers; calls are looked at, never made."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def result(self) -> Any:
        (only,) = self._stack
        return only

    def step(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in _NUMBERS or name == "BINUNICODE":
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name in _TUPLES:
            count = _TUPLES[name]
            if len(stack) < count:
                raise _damaged()
            stack[-count:] = [tuple(stack[-count:])]
        elif name == "MARK":
            stack.append(_Mark)
        elif name in {"BINPUT", "LONG_BINPUT"}:
            self._memo[argument] = stack[-1]
        elif name in {"BINGET", "LONG_BINGET"}:
            stack.append(self._memo[argument])
        elif name == "GLOBAL":
            stack.append(Name(str(argument)))
        elif name != "PROTO":
            self._combine(name)

    def _combine(self, name: str) -> None:
        """The opcodes that take what lies on the stack."""
        stack = self._stack
        if name == "TUPLE":
            stack.append(tuple(self._group()))
        elif name in {"SETITEMS", "SETITEM"}:
            items = self._group() if name == "SETITEMS" else self._top(2)
            for key, value in zip(items[::2], items[1::2], strict=True):
                # Of plain keys only: the hash of tuples in tuples may take for ever.
                if not isinstance(stack[-1], dict) or type(key) not in {str, int} or key in stack[-1]:
                    raise _damaged()
                stack[-1][key] = value
        elif name in {"APPENDS", "APPEND"}:
            values = self._group() if name == "APPENDS" else self._top(1)
            if not isinstance(stack[-1], list):
                raise _damaged()
            stack[-1].extend(values)
        elif name == "BINPERSID":
            stack.append(_storage(stack.pop()))
        elif name == "REDUCE":
            called, arguments = self._top(2)
            stack.append(_call(called, arguments))
        elif name == "BUILD":  # attributes of a dict, which are dropped unseen
            self._top(1)
            if not isinstance(stack[-1], dict):
                raise _damaged()
        else:
            raise EngineError(f"the checkpoint holds more than tensors ({name})")

    def _top(self, count: int) -> list[Any]:
        if len(self._stack) < count:
            raise _damaged()
        taken = self._stack[-count:]
        del self._stack[-count:]
        return taken

    def _group(self) -> list[Any]:
        """What lies above the last mark, which goes."""
        at = len(self._stack) - 1 - self._stack[::-1].index(_Mark)
        taken = self._stack[at + 1 :]
        del self._stack[at:]
        return taken


def _storage(identity: Any) -> Storage:
    kind, named, key, _, size, view = identity
    if (kind, view) != ("storage", None) or not isinstance(named, Name) or type(size) is not int:
        raise _damaged()
    return Storage(named.text, str(key), size)


def _call(called: Any, arguments: Any) -> Any:
    """What a state dict has made by calls: ordered dicts, and tensors from storages."""
    match called, arguments:
        case Name(text=text), () if text == _ORDERED:
            return {}
        case Name(text=text), (
            Storage() as storage,
            int(offset),
            tuple(shape),
            tuple(strides),
            _,
            dict(),
        ) if text == _TENSOR:
            if not all(type(number) is int for number in (offset, *shape, *strides)):
                raise _damaged()
            return Tensor(storage, offset, shape, strides)
    name = called.text if isinstance(called, Name) else "something"
    raise EngineError(f"the checkpoint would call {name[:80]}")


__all__ = ["read_tensors"]
