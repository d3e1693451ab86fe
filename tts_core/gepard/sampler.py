"""The frame sampler: heads in, frames and handles out, for all rows of a batch at once.

It knows neither vLLM nor requests, only *slots*: what a request needs between steps (its parameters, which
codes it used when, its place in a guided pair) lives in tensors that are indexed by slot, so that nothing in
a step loops over requests. The order of the rules is that of the seed runner: guidance, repetition penalty,
temperature, top-k, draw.

Wrong audio is impossible, an error is not: a row whose frames have been overwritten, whose half of a guided
pair is missing or whose logits are no numbers samples the FAULT id and ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from tts_core.errors import EngineError
from tts_core.nanocodec import fsq

from .layout import LOGITS, OFFSETS, SERIALS, Layout, age
from .noise import gumbel

WIDTH = max(fsq.LEVELS)

_FLOATS = ("temperature", "repetition_penalty", "stop_threshold", "cfg_scale")
_INTS = ("seed", "top_k", "window", "guided", "role", "count", "oldest")
_ALONE, _LEADER, _FOLLOWER = 0, 1, 2
_NEVER = -(1 << 30)
_NO_LIMIT = 1 << 30


class Drawn(NamedTuple):
    """What a step drew."""

    tokens: torch.Tensor
    """int64 ``[n]``: handles to feed back, or STOP or FAULT."""
    frames: torch.Tensor
    """int64 ``[n, 8]``: the frames as ids to send out (``layout.pack``)."""
    entropy: torch.Tensor
    """float32 ``[n]``: ``belief_entropy``."""


def code_index(device: torch.device | str = "cpu") -> torch.Tensor:
    """Where the heads hold code ``c`` of channel ``k``: int64 ``[32, 8]``, ``LOGITS`` where there is none."""
    index = torch.full((fsq.CHANNELS, WIDTH), LOGITS, dtype=torch.int64)
    first = 0
    for channel, levels in enumerate(fsq.LEVELS):
        index[channel, :levels] = torch.arange(first, first + levels)
        first += levels
    return index.to(device)


@lru_cache
def _shares(device: torch.device) -> torch.Tensor:
    """What a nat of each head's entropy counts: float32 ``[32]``."""
    levels: torch.Tensor = torch.tensor(fsq.LEVELS, dtype=torch.float32, device=device).log()
    return 1.0 / (fsq.CHANNELS * levels)


def belief_entropy(logits: torch.Tensor) -> torch.Tensor:
    """Mean over the heads of the entropy of their belief, each as a share of its maximum: float32 ``[n]``.

    ``logits`` float32 ``[n, 32, 8]``, minus infinity where a head has no code. A head that knows gives 0, one
    that knows nothing 1. Taken before penalty and temperature: it says what the model believes, not how it
    is sampled.
    """
    # log(sum e^x) - sum(x e^x) / sum(e^x), about the largest: half as many operations as by way of softmax.
    # What has no code counts e^-80, which is nothing.
    above = (logits - logits.amax(-1, keepdim=True)).clamp_(min=-80.0)
    weights = above.exp()
    whole = weights.sum(-1)
    entropy = whole.log() - above.mul_(weights).sum(-1).div_(whole)
    share: torch.Tensor = entropy @ _shares(logits.device)
    return share


@dataclass(slots=True)
class _Row:
    """A slot's values that wait to be copied to the device."""

    floats: list[float]
    ints: list[int]
    frames: torch.Tensor | None


class FrameSampler:
    """Draws frames for the slots of one engine.

    Args:
        table: the model's frame table, uint8 ``[layout.frame_rows, 32]``; written in place.
        layout: the id ranges.
        slots: how many requests can be known at once.
        device: where logits arrive.

    Not safe for threads: it belongs to the worker's loop.
    """

    def __init__(
        self, table: torch.Tensor, layout: Layout, slots: int, device: torch.device | str = "cpu"
    ) -> None:
        self.table, self.layout, self.slots, self.device = table, layout, slots, torch.device(device)
        self.cursor = 0
        self.steps = 0
        self.resumed = 0
        self._floats = torch.zeros(slots, len(_FLOATS), device=device)
        self._ints = torch.zeros(slots, len(_INTS), dtype=torch.int64, device=device)
        self._ints[:, _INTS.index("oldest")] = -1
        # When each code was last used, by frame index; so a window of any length costs the same.
        self._used = torch.full((slots, fsq.CHANNELS, WIDTH), _NEVER, dtype=torch.int64, device=device)
        # Where in it each slot's channels begin.
        first = torch.arange(slots * fsq.CHANNELS, device=device) * WIDTH
        self._first = first.view(slots, fsq.CHANNELS)
        self._partner = torch.full((slots,), -1, dtype=torch.int64, device=device)
        self._index = code_index(device).view(-1)
        self._radix = torch.tensor([1, 8, 56, 336], device=device)
        self._group = torch.tensor(OFFSETS, device=device)
        self._staged: dict[int, _Row] = {}
        # What the slots ask for, known without asking the device: steps skip the rules that nobody uses.
        self._sampled: set[int] = set()
        self._penalised: set[int] = set()
        self._truncated: set[int] = set()
        self._known: set[int] = set()
        self._referring: set[int] = set()
        self._roles: dict[int, tuple[str, int]] = {}
        self._pairs: dict[str, dict[int, int]] = {}

    def join(
        self, slot: int, params: Mapping[str, Any], prompt: Sequence[int] = (), output: Sequence[int] = ()
    ) -> None:
        """Begin a request in ``slot``, or go on with one that was preempted.

        Args:
            slot: a free slot.
            params: the fields of ``Sampling`` by name, and for half of a guided pair ``pair`` (its name) and
                ``role`` ("leader" or "follower"). Missing ones are neutral.
            prompt: token ids of the prompt; frame handles among them are checked.
            output: token ids sampled so far; frame handles among them are checked and their frames counted.
        """
        self.leave(slot)
        handles = self.layout.serials(output)
        referred = (*self.layout.serials(prompt), *handles)
        oldest = max(referred, key=lambda serial: age(self.cursor, serial), default=-1)
        frames = None
        if handles:
            self.resumed += 1
            rows = torch.tensor(handles, device=self.device) & (self.layout.frame_rows - 1)
            frames = self.table[rows].long()
        temperature = float(params.get("temperature", 0.0))
        penalty = float(params.get("repetition_penalty", 1.0))
        top_k = int(params.get("top_k", 0) or 0)
        limit = params.get("cfg_frames")
        role = {"leader": _LEADER, "follower": _FOLLOWER}.get(str(params.get("role", "")), _ALONE)
        for wanted, asking in (
            (True, self._known),
            (oldest >= 0, self._referring),
            (temperature > 0.0, self._sampled),
            (penalty != 1.0, self._penalised),
            (top_k > 0, self._truncated),
        ):
            if wanted:
                asking.add(slot)
        self._staged[slot] = _Row(
            [
                temperature,
                penalty,
                float(params.get("stop_threshold", 0.5)),
                float(params.get("cfg_scale", 1.0)),
            ],
            [
                int(params.get("seed", 0)),
                min(top_k, WIDTH) or WIDTH,
                int(params.get("repetition_window", 0)) or _NO_LIMIT,
                _NO_LIMIT if limit is None else int(limit),
                role,
                len(handles),
                oldest,
            ],
            frames,
        )
        if role:
            name = str(params["pair"])
            self._roles[slot] = (name, role)
            members = self._pairs.setdefault(name, {})
            members[role] = slot
            if len(members) == 2:
                self._partner[members[_LEADER]] = members[_FOLLOWER]

    def leave(self, slot: int) -> None:
        """Forget the request in ``slot``; nothing happens where there is none."""
        self._staged.pop(slot, None)
        for asking in (self._known, self._referring, self._sampled, self._penalised, self._truncated):
            asking.discard(slot)
        name, _ = self._roles.pop(slot, ("", _ALONE))
        if name:
            members = self._pairs.pop(name, {})
            for other in members.values():
                self._partner[other] = -1

    def put(self, codes: torch.Tensor) -> list[int]:
        """Write frames uint8 ``[n, 32]`` from outside into fresh rows and return their handles (token ids).

        They stay good for ``layout.frame_rows`` further frames.

        Raises:
            EngineError: more frames than there are rows.
        """
        n = codes.shape[0]
        if n > self.layout.frame_rows:
            raise EngineError("too many frames at once")
        serials = self._allocate(n)
        self.table[serials & (self.layout.frame_rows - 1)] = codes.to(self.device)
        return [self.layout.frame + int(serial) for serial in serials.tolist()]

    def stats(self) -> dict[str, int]:
        """Counters: steps, frames allocated, requests resumed, requests known."""
        return {"steps": self.steps, "cursor": self.cursor, "resumed": self.resumed}

    def _allocate(self, n: int) -> torch.Tensor:
        serials = (torch.arange(n, device=self.device) + self.cursor) % SERIALS
        self.cursor = (self.cursor + n) % SERIALS
        return serials

    def _flush(self) -> None:
        if not self._staged:
            return
        slots = torch.tensor(list(self._staged), device=self.device)
        rows = list(self._staged.values())
        self._floats[slots] = torch.tensor([row.floats for row in rows], device=self.device)
        self._ints[slots] = torch.tensor([row.ints for row in rows], device=self.device)
        self._used[slots] = _NEVER
        for slot, row in self._staged.items():
            if row.frames is not None:
                order = torch.arange(len(row.frames), device=self.device)[None, :].expand(fsq.CHANNELS, -1)
                self._used[slot].scatter_reduce_(1, row.frames.T.contiguous(), order, "amax")
        self._staged.clear()

    @torch.inference_mode()
    def sample(self, raw: torch.Tensor, slots: torch.Tensor, valid: torch.Tensor) -> Drawn:
        """Draw one frame, or the end, for every row.

        Args:
            raw: ``[n, 217]`` outputs of the fused heads.
            slots: int64 ``[n]``, the slot of each row.
            valid: bool ``[n]``, False for rows whose prompt is not read to its end: they draw nothing that
                counts.

        Nothing in here waits for the device.
        """
        self._flush()
        self.steps += 1
        n = raw.shape[0]
        ints, floats = self._ints.index_select(0, slots), self._floats.index_select(0, slots)
        columns = (*ints.unbind(-1), *floats.unbind(-1))
        asked = dict(zip(_INTS + _FLOATS, columns, strict=True))
        count = asked["count"]
        raw = raw.float()
        stop_logit = raw[:, -1]
        # The prompt has been read, so this is the latest moment at which its frames were needed: what is
        # still there now was there all along. One check per (re)start; afterwards `oldest` is -1.
        fault = ~torch.isfinite(raw.sum(-1))  # no sum of numbers so small is without bounds
        if self._referring:
            oldest = asked["oldest"]
            fault |= (oldest >= 0) & ((self.cursor - oldest) % SERIALS >= self.layout.frame_rows)
        leader: torch.Tensor | None = None
        if self._roles:
            raw, leader, fault = self._guide(raw, slots, valid, fault, asked)
        padded = torch.nn.functional.pad(raw[:, :-1], (0, 2), value=float("-inf"))
        logits = padded.index_select(1, self._index).view(n, fsq.CHANNELS, WIDTH)
        entropy = belief_entropy(logits)
        codes = self._draw(logits, slots, asked)
        stop = (torch.sigmoid(stop_logit) > asked["stop_threshold"]) & (count > 0)
        serials = self._allocate(n)
        if leader is not None:
            codes, stop, serials, entropy = codes[leader], stop[leader], serials[leader], entropy[leader]
        self.table.index_copy_(0, serials & (self.layout.frame_rows - 1), codes.to(torch.uint8))
        tokens = torch.where(stop, self.layout.stop, self.layout.frame + serials)
        tokens = torch.where(fault, self.layout.fault, tokens)
        live = valid & ~stop & ~fault
        self._remember(slots, codes, count, live, valid)
        packed = (codes.view(n, fsq.GROUPS, -1) * self._radix).sum(-1).add_(self._group)
        return Drawn(tokens, packed, entropy)

    def _guide(
        self,
        raw: torch.Tensor,
        slots: torch.Tensor,
        valid: torch.Tensor,
        fault: torch.Tensor,
        asked: dict[str, torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Mix the halves of pairs: the new ``raw``, the row whose draw each row takes, the new ``fault``.

        Both halves must be here, at the same frame and sound; else both end.
        """
        n, count, scale = len(raw), asked["count"], asked["cfg_scale"]
        rows = torch.arange(n, device=raw.device)
        row_of = torch.full((self.slots,), -1, dtype=torch.int64, device=raw.device)
        row_of[slots] = rows
        partner = self._partner[slots]
        partner = torch.where(partner >= 0, row_of[partner.clamp(min=0)], -1)
        other = partner.clamp(min=0)
        guided = (asked["role"] == _LEADER) & (count < asked["guided"])
        paired = guided & (partner >= 0)
        broken = ~paired | (valid != valid[other]) | (count != count[other]) | fault[other]
        fault = fault | (guided & broken)
        mixed = raw[other] + scale[:, None] * (raw - raw[other])
        raw = torch.where(paired[:, None], mixed, raw)
        # A scratch row takes what is scattered for rows without a follower: no count need be known here.
        leader = torch.arange(n + 1, device=raw.device)
        leader = leader.scatter(0, torch.where(paired, partner, n), rows)[:n]
        lost = (asked["role"] == _FOLLOWER) & (leader == rows)
        return raw, leader, fault[leader] | fault | lost

    def _draw(
        self, logits: torch.Tensor, slots: torch.Tensor, asked: dict[str, torch.Tensor]
    ) -> torch.Tensor:
        """Penalty, temperature, top-k, draw: codes int64 ``[n, 32]``."""
        if self._penalised:
            seen = (
                self._used.index_select(0, slots)
                >= (asked["count"] - asked["window"]).clamp(min=0)[:, None, None]
            )
            penalty = asked["repetition_penalty"][:, None, None]
            logits = torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)
        if not self._sampled:
            return logits.argmax(-1)
        temperature = asked["temperature"]
        mixed = self._sampled != self._known
        if mixed:
            greedy = temperature <= 0.0
            temperature = torch.where(greedy, 1.0, temperature)
        scaled = logits / temperature[:, None, None]
        if self._truncated:
            ordered = scaled.sort(-1, descending=True).values
            last = (asked["top_k"] - 1)[:, None, None].expand(-1, fsq.CHANNELS, 1)
            scaled = scaled.masked_fill(scaled < ordered.gather(2, last), float("-inf"))
        noisy = gumbel(asked["seed"], asked["count"], fsq.CHANNELS, WIDTH).add_(scaled)
        if mixed:
            # Greedy rows take the logits untouched: a division by 1 is exact, a draw is not wanted.
            noisy = torch.where(greedy[:, None, None], logits, noisy)
        return noisy.argmax(-1)

    def _remember(
        self,
        slots: torch.Tensor,
        codes: torch.Tensor,
        count: torch.Tensor,
        live: torch.Tensor,
        valid: torch.Tensor,
    ) -> None:
        """Count the frames that were drawn for good."""
        self._ints[slots, _INTS.index("count")] = count + live.long()
        if self._referring:
            oldest = self._ints[slots, _INTS.index("oldest")]
            self._ints[slots, _INTS.index("oldest")] = torch.where(valid, -1, oldest)
        if self._penalised:
            # One number a channel is written, where a code of it lies among all the slots'.
            places = (codes + self._first.index_select(0, slots)).view(-1)
            used = self._used.view(-1)
            before = used.index_select(0, places).view(codes.shape)
            used.index_copy_(0, places, torch.where(live[:, None], count[:, None], before).view(-1))
