"""The speaker model as an ONNX graph, written byte by byte: the same weights always give the same file.

The network is that of "Generalized end-to-end loss for speaker verification" (Wan et al., 2018) as
Resemblyzer 0.1.4 has it: three LSTM layers of 256 over 40 mel bands, the last state through a linear layer
and a ReLU. ONNX is protocol buffers (onnx.proto, IR version 9); so few of its messages are needed here that
no package is worth its weight in the base install.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .mel import BANDS

FRAMES = 160
"""Of a window: 1.6 s."""
WIDTH = 256
LAYERS = 3
INPUT = "mels"
"""float32 ``[160, windows, 40]``: time first, as the LSTM operator has it."""
OUTPUT = "voices"
"""float32 ``[windows, 256]``, not below zero, of any length."""

_IR_VERSION, _OPSET = 9, 18
_FLOAT, _INT64, _ATTRIBUTE_INT = 1, 7, 2

Tensors = Mapping[str, NDArray[np.float32]]


def shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes of the weights, as torch has them."""
    found: dict[str, tuple[int, ...]] = {}
    for layer in range(LAYERS):
        found[f"lstm.weight_ih_l{layer}"] = (4 * WIDTH, BANDS if layer == 0 else WIDTH)
        found[f"lstm.weight_hh_l{layer}"] = (4 * WIDTH, WIDTH)
        found[f"lstm.bias_ih_l{layer}"] = found[f"lstm.bias_hh_l{layer}"] = (4 * WIDTH,)
    return found | {"linear.weight": (WIDTH, WIDTH), "linear.bias": (WIDTH,)}


def build(tensors: Tensors) -> bytes:
    """The file of a model with these weights, which have the names and shapes of :func:`shapes`."""
    parts = [_constant("one", np.array([1], np.int64)), _constant("zero", np.array([0], np.int64))]
    below = INPUT
    for layer in range(LAYERS):
        x, h, b, c = (
            tensors[f"lstm.{kind}_l{layer}"] for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        names = [below, f"W{layer}", f"R{layer}", f"B{layer}"]
        arrays = (_gates(x), _gates(h), np.concatenate([_gates(b), _gates(c)]))
        parts += [_constant(name, array[None]) for name, array in zip(names[1:], arrays, strict=True)]
        parts.append(_node("LSTM", names, [f"all{layer}", f"last{layer}"], hidden_size=WIDTH))
        # Of the one direction: [time, 1, windows, width] and [1, windows, width].
        parts.append(_node("Squeeze", [f"all{layer}", "one"], [f"y{layer}"]))
        below = f"y{layer}"
    parts.append(_node("Squeeze", [f"last{LAYERS - 1}", "zero"], ["state"]))
    for name in ("linear.weight", "linear.bias"):
        parts.append(_constant(name, tensors[name]))
    parts.append(_node("Gemm", ["state", "linear.weight", "linear.bias"], ["linear"], transB=1))
    parts.append(_node("Relu", ["linear"], [OUTPUT]))
    parts.append(_text(2, "speaker"))
    parts.append(_field(11, _value(INPUT, (FRAMES, "windows", BANDS))))
    parts.append(_field(12, _value(OUTPUT, ("windows", WIDTH))))
    opset = _field(8, _text(1, "") + _number(2, _OPSET))
    return _number(1, _IR_VERSION) + _text(2, "voxwire") + _field(7, b"".join(parts)) + opset


def _gates(array: NDArray[np.float32]) -> NDArray[np.float32]:
    """From torch's order of the gates (in, forget, cell, out) to ONNX's (in, out, forget, cell)."""
    into, forget, cell, out = np.split(array, 4)
    return np.concatenate([into, out, forget, cell])


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _field(field: int, data: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(data)) + data


def _text(field: int, text: str) -> bytes:
    return _field(field, text.encode())


def _node(operation: str, inputs: list[str], outputs: list[str], **attributes: int) -> bytes:
    body = b"".join(_text(1, name) for name in inputs) + b"".join(_text(2, name) for name in outputs)
    body += _text(4, operation)
    for name, value in attributes.items():
        body += _field(5, _text(1, name) + _number(3, value) + _number(20, _ATTRIBUTE_INT))
    return _field(1, body)


def _constant(name: str, array: NDArray[np.float32] | NDArray[np.int64]) -> bytes:
    kind = _INT64 if array.dtype == np.int64 else _FLOAT
    body = b"".join(_number(1, size) for size in array.shape) + _number(2, kind) + _text(8, name)
    return _field(5, body + _field(9, array.astype(array.dtype.newbyteorder("<")).tobytes()))


def _value(name: str, shape: tuple[int | str, ...]) -> bytes:
    sizes = (_number(1, size) if isinstance(size, int) else _text(2, size) for size in shape)
    dimensions = b"".join(_field(1, size) for size in sizes)
    return _text(1, name) + _field(2, _field(1, _number(1, _FLOAT) + _field(2, dimensions)))


__all__ = ["FRAMES", "INPUT", "OUTPUT", "WIDTH", "build", "shapes"]
