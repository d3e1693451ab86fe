"""A gateway of this checkout as a process of its own, with a tiny GEPARD: noise, by the whole path."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
import torch

from tests.peers.process import GatewayProcess
from tests.peers.redis import RedisServer
from tts_core.gepard.tiny import make_tiny
from tts_core.nanocodec.tiny import make_tiny_nemo

torch.set_num_threads(1)

GREEDY = {
    "gepard_dtype": "float32",
    "gepard_temperature": "0",
    "gepard_streams": "8",
    "gepard_compile": "off",
    "voice_aliases": "heart=default",
    "resume_s": "1",
    "mark": "off",
}
"""The likeliest codes, no chance and no mark: what is heard can be worked out beforehand."""


class ModelGateway(GatewayProcess):
    """One that loads a model, which takes a while, and keeps voices in a Redis of its own."""

    ready_s = 300.0

    def __init__(self, **settings: str) -> None:
        self._redis_folder = tempfile.TemporaryDirectory(prefix="voxwire-redis-")
        self.redis = RedisServer(Path(self._redis_folder.name))
        super().__init__(redis_url=self.redis.url, secret="s" * 40, **settings)

    def __enter__(self) -> Self:
        self.redis.start()
        return super().__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self.redis.kill()
            self._redis_folder.cleanup()

    def children(self) -> dict[int, str]:
        """Its processes and theirs: id -> command line."""
        parents: dict[int, list[int]] = {}
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                try:
                    stat = Path(f"/proc/{entry}/stat").read_text()
                except OSError:
                    continue
                parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(entry))
        found: dict[int, str] = {}
        waiting = list(parents.get(self.process.pid, []))
        while waiting:
            pid = waiting.pop()
            waiting += parents.get(pid, [])
            try:
                found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
        return found


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with its codec beside it; not to be changed."""
    folder = make_tiny(tmp_path_factory.mktemp("model") / "tiny")
    make_tiny_nemo(folder / "codec.nemo")
    return folder


@pytest.fixture(scope="session")
def on_torch(model: Path) -> Iterator[ModelGateway]:
    with ModelGateway(engine="gepard-torch", gepard_checkpoint=str(model), **GREEDY) as gateway:
        yield gateway


@pytest.fixture(scope="session")
def on_vllm(model: Path) -> Iterator[ModelGateway]:
    with ModelGateway(engine="gepard", gepard_checkpoint=str(model), **GREEDY) as gateway:
        yield gateway


@pytest.fixture(params=["on_torch", pytest.param("on_vllm", marks=pytest.mark.slow)])
def gateway(request: pytest.FixtureRequest) -> ModelGateway:
    """Each of the two engines."""
    made = request.getfixturevalue(request.param)
    assert isinstance(made, ModelGateway)
    return made
