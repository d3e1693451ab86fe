"""The stateful decoder on ONNX Runtime: 1.2 to 2 times as fast as torch on a CPU, and without its memory.

The graph is written here, operation by operation, from the same tensors that the torch decoder uses: nothing
is traced, torch is not needed, and it is made anew at each start (a second), so there is no second file that
could be stale. Inputs are ``values [B, 32, n]`` and ``state [B, S]``, outputs ``audio [B, n * 1024]`` and
``next_state [B, S]``; ``B`` and ``n`` are free.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import EngineError
from . import weights
from .config import (
    LEAK,
    SNAKE_EPS,
    UP_RATES,
    CodecConfig,
    decoder_widths,
    residual_units,
    state_size,
    states,
)
from .fsq import CHANNELS, Codes, dequantise

OPSET = 18
_IR_VERSION = 9
_END = np.iinfo(np.int64).max


class OnnxDecoder:
    """A stateful NanoCodec decoder on one CPU thread. Fulfils ``backends.Decoder``.

    Args:
        config: the widths.
        tensors: the ``audio_decoder`` part of a codec file.

    """

    def __init__(self, config: CodecConfig, tensors: weights.Tensors) -> None:
        import onnxruntime as ort

        self.config = config
        self._size = state_size(config)
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
        options.log_severity_level = 3
        # Steps differ in size: plans and arenas for the largest would only be held, not used.
        options.enable_mem_pattern = False
        try:
            self._session = ort.InferenceSession(
                build(config, tensors), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # ONNX Runtime has no public base of its errors
            raise EngineError("ONNX Runtime does not take the codec") from error

    @classmethod
    def load(cls, path: Path) -> OnnxDecoder:
        """Load from a codec file. Raises EngineError as ``weights.load``."""
        header, tensors = weights.load(path, "audio_decoder")
        return cls(header.config, tensors)

    def new_state(self) -> NDArray[np.float32]:
        """State of a stream that begins, float32 ``[S]``."""
        return np.zeros(self._size, np.float32)

    def step(
        self, codes: Codes, states: Sequence[NDArray[np.float32]]
    ) -> tuple[NDArray[np.float32], list[NDArray[np.float32]]]:
        """Decode the next frames of some streams, see ``backends.Decoder``.

        Raises:
            EngineError: a code out of range.

        """
        values = np.ascontiguousarray(dequantise(codes).transpose(0, 2, 1))
        audio, after = self._session.run(None, {"values": values, "state": np.stack(tuple(states))})
        return audio, list(after)


def build(config: CodecConfig, tensors: weights.Tensors) -> bytes:
    """The decoder as a serialised ONNX model."""
    return _Graph(config, tensors).model()


class _Graph:
    """Writes the decoder down. Every method adds operations and returns the name of their result."""

    def __init__(self, config: CodecConfig, tensors: weights.Tensors) -> None:
        self._config = config
        self._tensors = tensors
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._after: list[str] = []

    def model(self) -> bytes:
        from onnx import TensorProto, helper

        size = state_size(self._config)
        kept = states(self._config)
        self._add("Split", "state", self._numbers([s.size for s in kept.values()]), out=list(kept), axis=1)
        self._decoder()
        audio, state = "audio", "next_state"
        self._add("Concat", *self._after, out=[state], axis=1)
        graph = helper.make_graph(
            self._nodes,
            "nanocodec_decoder",
            [
                helper.make_tensor_value_info("values", TensorProto.FLOAT, ["B", CHANNELS, "n"]),
                helper.make_tensor_value_info("state", TensorProto.FLOAT, ["B", size]),
            ],
            [
                helper.make_tensor_value_info(audio, TensorProto.FLOAT, ["B", "samples"]),
                helper.make_tensor_value_info(state, TensorProto.FLOAT, ["B", size]),
            ],
            list(self._constants.values()),
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = _IR_VERSION
        written: bytes = model.SerializeToString()
        return written

    def _decoder(self) -> None:
        x = self._convolve("audio_decoder.pre_conv", "values")
        for stage, (rate, width) in enumerate(zip(UP_RATES, decoder_widths(self._config), strict=True)):
            x = self._snake(f"audio_decoder.activations.{stage}", x, 2 * width)
            x = self._up_sample(f"audio_decoder.up_sample_conv_layers.{stage}", x, width, rate)
            x = self._residual(f"audio_decoder.res_layers.{stage}", x, width)
        x = self._snake("audio_decoder.post_activation", x, width)
        x = self._convolve("audio_decoder.post_conv", x)
        x = self._add("Clip", x, self._scalar(-1.0), self._scalar(1.0))
        self._add("Squeeze", x, self._numbers([1]), out=["audio"])

    def _residual(self, layer: str, x: str, width: int) -> str:
        chains: list[str] = []
        for unit, _, dilation in residual_units(layer):
            y = x if dilation == 1 else chains.pop()
            h = self._snake(f"{unit}.input_activation", y, width)
            h = self._convolve(f"{unit}.input_conv", h, dilation)
            h = self._snake(f"{unit}.skip_activation", h, width)
            chains.append(self._add("Add", y, self._convolve(f"{unit}.skip_conv", h)))
        return self._add("Mul", self._add("Sum", *chains), self._scalar(1 / len(chains)))

    def _continued(self, name: str, x: str) -> str:
        """``x`` with the inputs before it in front; what must be kept of it is put by for the next state."""
        kept = states(self._config)[name]
        before = self._add("Reshape", name, self._numbers([-1, kept.channels, kept.length]))
        x = self._add("Concat", before, x, axis=2)
        last = self._slice(x, -kept.length, _END)
        self._after.append(self._add("Reshape", last, self._numbers([-1, kept.size])))
        return x

    def _convolve(self, name: str, x: str, dilation: int = 1) -> str:
        x = self._continued(name, x)
        weight, bias = self._stored(f"{name}.weight"), self._stored(f"{name}.bias")
        return self._add("Conv", x, weight, bias, dilations=[dilation])

    def _up_sample(self, name: str, x: str, width: int, rate: int) -> str:
        """The matrix form of the transposed convolution, as in ``decoder.TorchDecoder``."""
        x = self._continued(name, x)
        shape = self._numbers([0, width, 2, -1])
        now = self._add("Reshape", self._slice(x, 1, _END), shape)
        ago = self._add("Reshape", self._slice(x, 0, -1), shape)
        taps = self._add("Transpose", self._add("Concat", now, ago, axis=2), perm=[0, 1, 3, 2])
        pairs = self._tensors[f"{name}.weight"].reshape(width, 2, 2, rate)
        matrix = self._constant(f"{name}.matrix", pairs.transpose(0, 2, 1, 3).reshape(width, 4, rate))
        y = self._add("Reshape", self._add("MatMul", taps, matrix), self._numbers([0, width, -1]))
        bias = self._constant(f"{name}.column", self._tensors[f"{name}.bias"][:, None])
        return self._add("Add", y, bias)

    def _snake(self, name: str, x: str, width: int) -> str:
        alpha = self._tensors[f"{name}.alpha"][:, None]
        half = len(alpha)
        wave, rest = f"{name}.wave", f"{name}.rest"
        self._add("Split", x, self._numbers([half, width - half]), out=[wave, rest], axis=1)
        sine = self._add("Sin", self._add("Mul", wave, self._constant(f"{name}.alpha", alpha)))
        reciprocal = self._constant(f"{name}.reciprocal", 1 / (alpha + np.float32(SNAKE_EPS)))
        bend = self._add("Mul", self._add("Mul", sine, sine), reciprocal)
        return self._add(
            "Concat", self._add("Add", wave, bend), self._add("LeakyRelu", rest, alpha=LEAK), axis=1
        )

    # -- primitives -----------------------------------------------------------------------------------

    def _add(self, operation: str, *inputs: str, out: list[str] | None = None, **attributes: Any) -> str:
        from onnx import helper

        outputs = out or [f"{operation}_{len(self._nodes)}"]
        self._nodes.append(helper.make_node(operation, list(inputs), outputs, **attributes))
        return outputs[0]

    def _slice(self, x: str, start: int, end: int) -> str:
        return self._add("Slice", x, self._numbers([start]), self._numbers([end]), self._numbers([2]))

    def _stored(self, name: str) -> str:
        return self._constant(name, self._tensors[name])

    def _scalar(self, value: float) -> str:
        return self._constant(f"scalar_{value}", np.array(value, np.float32))

    def _numbers(self, values: list[int]) -> str:
        return self._constant(f"numbers_{'_'.join(map(str, values))}", np.array(values, np.int64))

    def _constant(self, name: str, array: NDArray[Any]) -> str:
        from onnx import numpy_helper

        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name
