"""How frames are drawn from the heads: the parameters of one request.

Rules and their order are those of the published runner (GEPARD technical report, arXiv 2609.04222, and its
inference code): guidance, repetition penalty, temperature, top-k, draw; every head alone. ``temperature`` 0
is ours: greedy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeAlias

from tts_core.errors import BadRequest

CfgMode: TypeAlias = Literal["empty_text", "audio_only"]

CFG_MODES: tuple[CfgMode, ...] = ("empty_text", "audio_only")

FRAME_CAP = 2000
"""Most frames of one request: 93 s, the limit of the published runner."""

_SEED = 1 << 63


@dataclass(frozen=True, slots=True)
class Sampling:
    """Parameters of one request.

    Args:
        temperature: divides the logits; 0 takes the most likely code of every head.
        top_k: only so many most likely codes of a head may be drawn; 0 for all. Ties stay in.
        seed: of the noise; signed 64-bit. Same seed, text and voice give the same frames.
        repetition_penalty: above 1 makes codes less likely that the same head gave in the last
            ``repetition_window`` frames (0: in all): ``l / p`` for positive logits, ``l * p`` for others.
        repetition_window: frames the penalty looks back.
        stop_threshold: the end comes when the stop head is surer than this. 1 never ends by itself.
        max_frames: frames after which the request ends with "length".
        cfg_scale: weight of text guidance, ``uncond + scale * (cond - uncond)``; 1 is off.
        cfg_frames: guide only so many first frames; None for all, 0 is off.
        cfg_mode: what the unguided branch reads.
        cfg_max_text_tokens: no guidance for texts of more tokens; None for no such limit.

    Raises:
        BadRequest: a value outside its range, with the name of the field.
    """

    temperature: float = 0.4
    top_k: int = 0
    seed: int = 0
    repetition_penalty: float = 1.0
    repetition_window: int = 32
    stop_threshold: float = 0.5
    max_frames: int = 300
    cfg_scale: float = 1.0
    cfg_frames: int | None = None
    cfg_mode: CfgMode = "empty_text"
    cfg_max_text_tokens: int | None = None

    def __post_init__(self) -> None:
        _number("temperature", self.temperature, 0.0, 10.0)
        _whole("top_k", self.top_k, 0, 1 << 20)
        _whole("seed", self.seed, -_SEED, _SEED - 1)
        _number("repetition_penalty", self.repetition_penalty, 0.1, 10.0)
        _whole("repetition_window", self.repetition_window, 0, FRAME_CAP)
        _number("stop_threshold", self.stop_threshold, 0.0, 1.0)
        _whole("max_frames", self.max_frames, 1, FRAME_CAP)
        _number("cfg_scale", self.cfg_scale, 0.0, 20.0)
        if self.cfg_frames is not None:
            _whole("cfg_frames", self.cfg_frames, 0, FRAME_CAP)
        if self.cfg_mode not in CFG_MODES:
            raise BadRequest(f"cfg_mode must be one of {', '.join(CFG_MODES)}", field="cfg_mode")
        if self.cfg_max_text_tokens is not None:
            _whole("cfg_max_text_tokens", self.cfg_max_text_tokens, 0, 1 << 20)

    @property
    def greedy(self) -> bool:
        """Whether the most likely codes are taken and the seed is of no matter."""
        return self.temperature == 0

    def guides(self, frame: int) -> bool:
        """Whether frame ``frame`` (from 0) of a request that has a second branch is guided."""
        return self.cfg_scale != 1.0 and (self.cfg_frames is None or frame < self.cfg_frames)

    def guided(self, text_tokens: int) -> bool:
        """Whether a text of ``text_tokens`` tokens (before they are repeated) needs the second branch."""
        gate = self.cfg_max_text_tokens
        return self.guides(0) and (gate is None or text_tokens <= gate)

    def as_extra_args(self) -> dict[str, Any]:
        """Plain numbers and strings by field name, without those that are None: for a wire, or vLLM."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Sampling:
        """The parameters that ``as_extra_args`` gave; names that are not ours are passed over.

        Raises:
            BadRequest: as for the class.
        """
        names = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in names})


def _number(name: str, value: object, low: float, high: float) -> None:
    fits = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not fits or not low <= value <= high:  # type: ignore[operator]
        raise BadRequest(f"{name} must be a number from {low:g} to {high:g}", field=name)


def _whole(name: str, value: object, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BadRequest(f"{name} must be a whole number from {low} to {high}", field=name)
