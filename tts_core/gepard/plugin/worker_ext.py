"""What the client may ask of the worker between steps (engine argument ``worker_extension_cls``).

The calls come by ``collective_rpc`` between steps, so that what they write is there for every request that
is sent after they return. They carry plain bytes: little-endian float32 and uint8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tts_core.nanocodec import fsq


class GepardWorkerExtension:
    """Mixed into vLLM's worker; the names are prefixed so as not to meet its own."""

    model_runner: Any

    def gepard_set_voice(self, slot: int, rows: bytes) -> None:
        """Write a prefix, float32 ``[prefix_rows, hidden]``, into place ``slot`` of the voice table."""
        backbone = self.model_runner.get_model().model
        table, count = backbone.voice_table, backbone.layout.prefix_rows
        values = np.frombuffer(rows, "<f4").reshape(count, -1).copy()
        first = slot * count
        table[first : first + count] = torch.from_numpy(values).to(table.device, table.dtype)

    def gepard_put_frames(self, codes: bytes) -> list[int]:
        """Write frames, uint8 ``[n, 32]``, into fresh rows of the frame table; returns their handles."""
        frames = np.frombuffer(codes, np.uint8).reshape(-1, fsq.CHANNELS).copy()
        handles: list[int] = self.model_runner.sampler.core.put(torch.from_numpy(frames))
        return handles

    def gepard_stats(self) -> dict[str, int]:
        """Counters of the sampler and which model runner it serves (1 or 2)."""
        sampler = self.model_runner.sampler
        runner = 2 if getattr(self, "use_v2_model_runner", False) else 1
        return {"runner": runner, **sampler.core.stats()}
