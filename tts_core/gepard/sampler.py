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
from .noise import keys, lowering
from .sampling import FRAME_CAP

WIDTH = max(fsq.LEVELS)

_FLOATS = ("temperature", "repetition_penalty", "stop_threshold", "cfg_scale")
_INTS = ("seed", "top_k", "window", "guided", "role", "count", "oldest")
_ALONE, _LEADER, _FOLLOWER = 0, 1, 2
_NEVER = -(1 << 30)

AHEAD = 4
"""Frames whose noise is made at once."""

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
    """Where the heads hold code ``c`` of channel ``k``: int64 ``[8, 32]``, ``LOGITS`` where there is none.

    Codes before channels, here as everywhere in a step: what is done over the eight codes of a channel is
    then done for 32 channels at once, in a third of the time.
    """
    index = torch.full((WIDTH, fsq.CHANNELS), LOGITS, dtype=torch.int64)
    first = 0
    for channel, levels in enumerate(fsq.LEVELS):
        index[:levels, channel] = torch.arange(first, first + levels)
        first += levels
    return index.to(device)


@lru_cache
def _heads(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Where in the fused heads each code is, int64 ``[256]``, and which of them are none, bool ``[256]``."""
    index = code_index(device).view(-1)
    none = index == LOGITS
    return index.masked_fill(none, 0), none


@lru_cache
def _shares(device: torch.device) -> torch.Tensor:
    """The part of each code's ``p log p`` in the belief entropy: float32 ``[256]``."""
    levels: torch.Tensor = torch.tensor(fsq.LEVELS, dtype=torch.float32, device=device).log()
    return (-1.0 / (fsq.CHANNELS * levels)).repeat(WIDTH)


def belief_entropy(logits: torch.Tensor) -> torch.Tensor:
    """Mean over the heads of the entropy of their belief, each as a share of its maximum: float32 ``[n]``.

    ``logits`` float32 ``[n, 8, 32]``, minus infinity where a head has no code. A head that knows gives 0, one
    that knows nothing 1. Taken before penalty and temperature: it says what the model believes, not how it
    is sampled.
    """
    # What has no code counts e^-80, which is nothing.
    logs = logits.log_softmax(1).clamp_(min=-80.0)
    entropy: torch.Tensor = logs.exp().mul_(logs).view(len(logits), -1) @ _shares(logits.device)
    return entropy


@dataclass(slots=True)
class _Row:
    """A slot's values that wait to be copied to the device."""

    floats: list[float]
    ints: list[int]
    length: int
    frames: torch.Tensor | None


class Rows:
    """The slots of a batch's rows, and what does not change while they are the same.

    Args:
        slots: int64 ``[n]``, the slot of each row.
        columns: each slot's values by name.
        changes: how often a request had begun or ended when these were the slots' requests.
    """

    __slots__ = ("_columns", "_had", "ahead", "changes", "from_count", "left", "slots")

    def __init__(self, slots: torch.Tensor, columns: Mapping[str, torch.Tensor], changes: int) -> None:
        self.slots, self.changes, self._columns = slots, changes, columns
        self._had: dict[str, torch.Tensor] = {}
        # Noise that is made ahead, how many steps it is for, and what a row's count lacks to its place in it.
        self.left = 0
        self.ahead: torch.Tensor | None = None
        self.from_count: torch.Tensor | None = None

    def __getitem__(self, name: str) -> torch.Tensor:
        """A value of every row as it is now."""
        return self._columns[name].index_select(0, self.slots)

    def given(self, name: str, dims: int = 1) -> torch.Tensor:
        """A value of every row that a request was begun with, ``[n]`` and as many 1s as ``dims`` asks for."""
        had = self._had.get(name)
        if had is None:
            had = self[name]
            had = self._had[name] = had.view(*had.shape, *(1,) * (dims - had.ndim))
        return had


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
        self._floats = torch.zeros(len(_FLOATS), slots, device=device)
        self._ints = torch.zeros(len(_INTS), slots, dtype=torch.int64, device=device)
        # Where in them each slot's channels begin, and its frames.
        first = torch.arange(slots, device=device)[:, None] * (WIDTH * fsq.CHANNELS)
        # The noise of a request's frames; a row more, as the frame after the last is looked up as well.
        self._keys = torch.zeros(slots + 1, FRAME_CAP, dtype=torch.int64, device=device)
        self._columns = {
            **dict(zip(_INTS + _FLOATS, (*self._ints.unbind(0), *self._floats.unbind(0)), strict=True)),
            "channels": first + torch.arange(fsq.CHANNELS, device=device),
            "keys": torch.arange(slots, device=device) * FRAME_CAP,
        }
        self._columns["oldest"].fill_(-1)
        self._ahead = torch.arange(AHEAD, device=device)
        self._every = torch.arange(0, slots * AHEAD, AHEAD, device=device)
        # When each code was last used, by frame index; so a window of any length costs the same.
        self._used = torch.full((slots, WIDTH, fsq.CHANNELS), _NEVER, dtype=torch.int64, device=device)
        self._partner = torch.full((slots,), -1, dtype=torch.int64, device=device)
        self._radix = torch.tensor([1, 8, 56, 336], device=device)
        self._group = torch.tensor(OFFSETS, device=device)
        self._staged: dict[int, _Row] = {}
        self._changes = 0
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
            min(int(params.get("max_frames", FRAME_CAP)), FRAME_CAP),
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
        self._changes += 1
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
        first = self.cursor
        self.cursor = (first + n) % SERIALS
        serials = torch.arange(first, first + n, device=self.device)
        return serials if first + n <= SERIALS else serials % SERIALS

    def _flush(self) -> None:
        if not self._staged:
            return
        slots = torch.tensor(list(self._staged), device=self.device)
        rows = list(self._staged.values())
        self._floats[:, slots] = torch.tensor([row.floats for row in rows], device=self.device).T
        self._ints[:, slots] = torch.tensor([row.ints for row in rows], device=self.device).T
        frames = torch.arange(max(row.length for row in rows), device=self.device)
        self._keys[slots, : len(frames)] = keys(self._columns["seed"].index_select(0, slots)[:, None], frames)
        self._used[slots] = _NEVER
        for slot, row in self._staged.items():
            if row.frames is not None:
                order = torch.arange(len(row.frames), device=self.device)[:, None].expand(-1, fsq.CHANNELS)
                self._used[slot].scatter_reduce_(0, row.frames, order, "amax")
        self._staged.clear()

    def rows(self, slots: torch.Tensor) -> Rows:
        """Rows for ``sample``, to be used again as long as they are those of a batch."""
        return Rows(slots, self._columns, self._changes)

    @torch.inference_mode()
    def sample(self, raw: torch.Tensor, rows: Rows, valid: torch.Tensor) -> Drawn:
        """Draw one frame, or the end, for every row.

        Args:
            raw: ``[n, 217]`` outputs of the fused heads.
            rows: the slot of each row.
            valid: bool ``[n]``, False for rows whose prompt is not read to its end: they draw nothing that
                counts.

        Nothing in here waits for the device. A step is many small operations between two large ones, and
        each costs more than its numbers do: what is known ahead is not asked for again.
        """
        self._flush()
        if rows.changes != self._changes:
            rows = self.rows(rows.slots)
        self.steps += 1
        n = raw.shape[0]
        count = rows["count"]
        raw = raw.float()
        # No sum of numbers so small is without bounds; less itself it is 0, or no number.
        total = raw.sum(-1)
        fault = (total - total) != 0.0
        # The prompt has been read, so this is the latest moment at which its frames were needed: what is
        # still there now was there all along. One check per (re)start; afterwards `oldest` is -1.
        if self._referring:
            oldest = rows["oldest"]
            fault |= (oldest >= 0) & ((self.cursor - oldest) % SERIALS >= self.layout.frame_rows)
        stop_logit = raw[:, -1]
        leader: torch.Tensor | None = None
        if self._roles:
            raw, leader, fault = self._guide(raw, rows, valid, fault, count)
        index, none = _heads(raw.device)
        logits = raw.index_select(1, index).masked_fill_(none, float("-inf")).view(n, WIDTH, fsq.CHANNELS)
        entropy = belief_entropy(logits)
        codes = self._draw(logits, rows, count)
        stop = (torch.sigmoid(stop_logit) > rows.given("stop_threshold")) & (count > 0)
        row = self.cursor & (self.layout.frame_rows - 1)
        serials = self._allocate(n)
        if leader is None and row + n <= self.layout.frame_rows:
            self.table[row : row + n] = codes
        else:
            if leader is not None:
                codes, stop, serials, entropy = codes[leader], stop[leader], serials[leader], entropy[leader]
            self.table.index_copy_(0, serials & (self.layout.frame_rows - 1), codes.to(torch.uint8))
        tokens = serials.add_(self.layout.frame)
        tokens.masked_fill_(stop, self.layout.stop).masked_fill_(fault, self.layout.fault)
        live = valid & (tokens >= self.layout.frame)
        self._remember(rows, codes, count, live, valid)
        packed = (codes.view(n, fsq.GROUPS, -1) * self._radix).sum(-1).add_(self._group)
        return Drawn(tokens, packed, entropy)

    def _guide(
        self,
        raw: torch.Tensor,
        asked: Rows,
        valid: torch.Tensor,
        fault: torch.Tensor,
        count: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Mix the halves of pairs: the new ``raw``, the row whose draw each row takes, the new ``fault``.

        Both halves must be here, at the same frame and sound; else both end.
        """
        n, slots, scale = len(raw), asked.slots, asked.given("cfg_scale", 2)
        rows = torch.arange(n, device=raw.device)
        row_of = torch.full((self.slots,), -1, dtype=torch.int64, device=raw.device)
        row_of[slots] = rows
        partner = self._partner[slots]
        partner = torch.where(partner >= 0, row_of[partner.clamp(min=0)], -1)
        other = partner.clamp(min=0)
        guided = (asked.given("role") == _LEADER) & (count < asked.given("guided"))
        paired = guided & (partner >= 0)
        broken = ~paired | (valid != valid[other]) | (count != count[other]) | fault[other]
        fault = fault | (guided & broken)
        mixed = raw[other] + scale * (raw - raw[other])
        raw = torch.where(paired[:, None], mixed, raw)
        # A scratch row takes what is scattered for rows without a follower: no count need be known here.
        leader = torch.arange(n + 1, device=raw.device)
        leader = leader.scatter(0, torch.where(paired, partner, n), rows)[:n]
        lost = (asked.given("role") == _FOLLOWER) & (leader == rows)
        return raw, leader, fault[leader] | fault | lost

    def _draw(self, logits: torch.Tensor, rows: Rows, count: torch.Tensor) -> torch.Tensor:
        """Penalty, temperature, top-k, draw: codes int64 ``[n, 32]``."""
        if self._penalised:
            used = self._used.index_select(0, rows.slots)
            seen = used >= (count - rows.given("window")).clamp_(min=0)[:, None, None]
            penalty = rows.given("repetition_penalty", 3)
            logits = torch.where(seen, torch.where(logits > 0, logits / penalty, logits * penalty), logits)
        if not self._sampled:
            return logits.max(1).indices
        temperature = rows.given("temperature", 3)
        mixed = self._sampled != self._known
        if mixed:
            greedy = temperature <= 0.0
            temperature = torch.where(greedy, 1.0, temperature)
        scaled = logits / temperature
        if self._truncated:
            ordered = scaled.sort(1, descending=True).values
            last = (rows.given("top_k", 3) - 1).expand(-1, 1, fsq.CHANNELS)
            scaled = scaled.masked_fill(scaled < ordered.gather(1, last), float("-inf"))
        noisy = scaled.sub_(self._noise(rows, count))
        if mixed:
            # Greedy rows take the logits untouched: a division by 1 is exact, a draw is not wanted.
            noisy = torch.where(greedy, logits, noisy)
        return noisy.max(1).indices

    def _noise(self, rows: Rows, count: torch.Tensor) -> torch.Tensor:
        """What the noise takes off each code's logit: float32 ``[n, 8, 32]``.

        For a batch that stays the same it is made for several frames at once: of a single frame it is made in
        as many operations.
        """
        if rows.left:
            assert rows.ahead is not None and rows.from_count is not None
            rows.left -= 1
            return rows.ahead.index_select(0, rows.from_count + count)
        place, keys_ = rows.given("keys") + count, self._keys.view(-1)
        if rows.from_count is None:
            rows.from_count = count  # once; who comes again gets more
            return lowering(keys_.index_select(0, place))
        places = (place[:, None] + self._ahead).view(-1)
        rows.ahead = lowering(keys_.index_select(0, places))
        rows.from_count = self._every[: len(count)] - count
        rows.left = AHEAD - 1
        return rows.ahead[::AHEAD]

    def _remember(
        self, rows: Rows, codes: torch.Tensor, count: torch.Tensor, live: torch.Tensor, valid: torch.Tensor
    ) -> None:
        """Count the frames that were drawn for good."""
        self._columns["count"].index_copy_(0, rows.slots, count + live)
        if self._referring:
            self._columns["oldest"].index_copy_(0, rows.slots, rows["oldest"].masked_fill_(valid, -1))
        if self._penalised:
            # One number a channel is written, where a code of it lies among all the slots'.
            places = torch.add(rows.given("channels"), codes, alpha=fsq.CHANNELS).view(-1)
            used = self._used.view(-1)
            before = used.index_select(0, places).view(codes.shape)
            used.index_copy_(0, places, torch.where(live[:, None], count[:, None], before).view(-1))
