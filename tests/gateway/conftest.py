from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.peers.gateway import Running, Start, open_gateway


@pytest.fixture
async def start_gateway(tmp_path: Path) -> AsyncIterator[Start]:
    """A function that starts a gateway with the given settings; all are stopped at the end."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(**values: Any) -> Running:
            return await open_gateway(stack, tmp_path / "data", **values)

        yield start


@pytest.fixture
async def gateway(start_gateway: Start) -> Running:
    """A gateway as a fresh install has it."""
    return await start_gateway()
