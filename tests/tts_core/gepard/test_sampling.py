from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_core.errors import BadRequest
from tts_core.gepard.sampling import CFG_MODES, FRAME_CAP, Sampling

_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "temperature": st.floats(0, 10),
    "top_k": st.integers(0, 100),
    "seed": st.integers(-(1 << 63), (1 << 63) - 1),
    "repetition_penalty": st.floats(0.1, 10),
    "repetition_window": st.integers(0, FRAME_CAP),
    "stop_threshold": st.floats(0, 1),
    "max_frames": st.integers(1, FRAME_CAP),
    "cfg_scale": st.floats(0, 20),
    "cfg_frames": st.none() | st.integers(0, FRAME_CAP),
    "cfg_mode": st.sampled_from(CFG_MODES),
    "cfg_max_text_tokens": st.none() | st.integers(0, 500),
}
_ANY = st.fixed_dictionaries({}, optional=_FIELDS)


@given(_ANY)
def test_goes_over_a_wire_and_back(values: dict[str, Any]) -> None:
    sampling = Sampling(**values)
    args = msgspec.msgpack.decode(msgspec.msgpack.encode(sampling.as_extra_args()))
    assert None not in args.values()
    assert Sampling.of({**args, "pair": "another's"}) == sampling


@given(_ANY, st.integers(0, 3000))
def test_guidance_is_on_from_the_first_frame_or_never(values: dict[str, Any], frame: int) -> None:
    sampling = Sampling(**values)
    if sampling.guides(frame):
        assert sampling.guides(0) and sampling.cfg_scale != 1.0
        assert sampling.guides(max(0, frame - 1))
    elif sampling.guides(0):
        assert sampling.cfg_frames is not None and frame >= sampling.cfg_frames


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("temperature", [-0.1, 10.1, float("nan"), float("inf"), "1", None, True]),
        ("top_k", [-1, 1.0, None]),
        ("seed", [1 << 63, -(1 << 63) - 1, 0.5]),
        ("repetition_penalty", [0.0, -1.0, float("nan")]),
        ("repetition_window", [-1, 2.5]),
        ("stop_threshold", [-0.01, 1.01]),
        ("max_frames", [0, FRAME_CAP + 1]),
        ("cfg_scale", [-1.0, float("inf")]),
        ("cfg_frames", [-1, 1.5]),
        ("cfg_mode", ["", "none", None]),
        ("cfg_max_text_tokens", [-1]),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(BadRequest, match=name) as caught:
            Sampling(**{name: value})
        assert caught.value.field == name


def test_the_length_gate() -> None:
    sampling = Sampling(cfg_scale=3.0, cfg_max_text_tokens=5)
    assert sampling.guided(5) and not sampling.guided(6)
    assert Sampling(cfg_scale=3.0).guided(1000)
    assert not Sampling(cfg_scale=1.0, cfg_max_text_tokens=5).guided(5)
    assert not Sampling(cfg_scale=3.0, cfg_frames=0).guided(5)


def test_greedy() -> None:
    assert Sampling(temperature=0).greedy and not Sampling().greedy
