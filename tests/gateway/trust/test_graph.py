"""The ONNX file that is written by hand: runs, and computes what three LSTM layers are defined to compute."""

from __future__ import annotations

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from gateway.trust.graph import FRAMES, INPUT, LAYERS, OUTPUT, WIDTH, build, shapes

Array = NDArray[np.float32]


def weights(seed: int) -> dict[str, Array]:
    random = np.random.default_rng(seed)
    return {
        name: (random.standard_normal(shape) * 0.1).astype(np.float32) for name, shape in shapes().items()
    }


def plain(tensors: dict[str, Array], mels: Array) -> Array:
    """Hochreiter and Schmidhuber's cell with forget gates, in torch's order, step by step."""

    def sigmoid(x: Array) -> Array:
        made: Array = np.reciprocal(1 + np.exp(-x)).astype(np.float32)
        return made

    steps = list(mels)
    hidden = steps[0]
    for layer in range(LAYERS):
        x, h, b, c = (
            tensors[f"lstm.{kind}_l{layer}"] for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        cell: Array = np.zeros((mels.shape[1], WIDTH), np.float32)
        hidden = cell
        out = []
        for step in steps:
            into, forget, new, give = np.split(step @ x.T + hidden @ h.T + b + c, 4, axis=1)
            cell = sigmoid(forget) * cell + sigmoid(into) * np.tanh(new)
            hidden = sigmoid(give) * np.tanh(cell)
            out.append(hidden)
        steps = out
    made: Array = np.maximum(0, hidden @ tensors["linear.weight"].T + tensors["linear.bias"])
    return made


def test_the_graph_is_the_network() -> None:
    tensors = weights(1)
    mels = np.random.default_rng(2).random((FRAMES, 3, 40)).astype(np.float32)
    (made,) = onnxruntime.InferenceSession(build(tensors)).run([OUTPUT], {INPUT: mels})
    assert made.shape == (3, WIDTH)
    np.testing.assert_allclose(made, plain(tensors, mels), atol=1e-5)


def test_the_same_weights_give_the_same_file() -> None:
    assert build(weights(1)) == build(dict(reversed(weights(1).items())))
    assert build(weights(1)) != build(weights(2))
