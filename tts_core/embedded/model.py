"""The acoustic network: phoneme ids in, five spectra, pitch and durations out.

The released graph computes a duration per phoneme (the tensor below, in units of 25 ms = two frames; twice
its sum is the number of frames) but does not list it as an output. Protobuf merges concatenated messages,
so an output is added by appending one ``graph { output { ... } }`` message to the bytes of the file; no
ONNX package is needed. A file without that tensor is used as it is, without durations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

DURATIONS = "/Clip_output_0"
"""Name of the duration tensor; belongs to the model files of hibari-tts 0.2.1."""

FRAMES_PER_UNIT = 2
"""A duration of 1.0 is two frames."""

_FLOAT = 1  # TensorProto.DataType.FLOAT

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Spectra:
    """What the network predicts for one run of ``f`` frames (12.5 ms each) from ``l`` phoneme ids.

    ``harmonic``, ``noise``, ``free``: log magnitudes ``[601, f]``; ``harmonic_phase``: before tanh, and
    ``free_phase`` in radians, ``[601, f]``; ``pitch``: Hz ``[f]``; ``starts``: the first frame of every id
    and the end of the last, ``[l + 1]``, or None where the model does not tell.
    """

    harmonic: Floats
    harmonic_phase: Floats
    noise: Floats
    free: Floats
    free_phase: Floats
    pitch: Floats
    starts: npt.NDArray[np.int64] | None

    @property
    def frames(self) -> int:
        """Number of frames."""
        return int(self.pitch.shape[0])


def _varint(n: int) -> bytes:
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def _field(number: int, body: bytes) -> bytes:
    """A length-delimited protobuf field (Protocol Buffers encoding, wire type 2)."""
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def with_durations(model: bytes) -> bytes:
    """Return the model with the duration tensor among its outputs.

    Field numbers of onnx.proto: ModelProto.graph 7, GraphProto.output 12, ValueInfoProto name 1 and type 2,
    TypeProto.tensor_type 1, Tensor.elem_type 1.
    """
    tensor = _field(1, _varint(1 << 3) + _varint(_FLOAT))
    return model + _field(7, _field(12, _field(1, DURATIONS.encode()) + _field(2, tensor)))


class Acoustics:
    """One loaded model. Not for use from several threads."""

    def __init__(self, model: bytes, *, durations: bool = True) -> None:
        """Load ``model``; ``durations`` False leaves the duration tensor alone (as if it did not exist)."""
        self.has_durations = False
        if durations:
            try:
                self._session = _session(with_durations(model))
                self.has_durations = True
            except Exception:
                # Another export of the network: the tensor has a different name. Energy trims serve then.
                self._session = _session(model)
        else:
            self._session = _session(model)

    def run(self, ids: list[int], speed: float) -> Spectra:
        """Run the network on phoneme ids (a 0 at both ends)."""
        out = self._session.run(
            None,
            {"ids": np.asarray([ids], np.int64), "speed": np.asarray([speed], np.float32)},
        )
        lh, theta, ln, lr, phi, f0 = (x[0] for x in out[:6])
        starts = None
        if self.has_durations:
            units = np.asarray(out[6], np.float64).reshape(-1)
            ends = np.rint(np.cumsum(units) * FRAMES_PER_UNIT).astype(np.int64)
            if len(units) == len(ids) and int(ends[-1]) == f0.shape[0]:
                starts = np.concatenate([np.zeros(1, np.int64), ends])
        return Spectra(lh, theta, ln, lr, phi, f0, starts)


def _session(model: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
