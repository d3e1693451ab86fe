"""A gateway with the tests' tone engine as a process of its own; prints its address, ends with SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from gateway.collector import settle
from gateway.logs import setup
from tests.peers.gateway import open_gateway
from tests.tone import ToneEngine


async def main() -> None:
    """Serve until told to end."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    setup("error", "text")
    with tempfile.TemporaryDirectory(prefix="voxwire-bench-") as folder:
        async with contextlib.AsyncExitStack() as stack:
            engine = ToneEngine(slots=400, xrt=2000.0, work_s=0.0, chunk_s=0.4)
            gateway = await open_gateway(
                stack, Path(folder) / "data", engine=engine, max_contexts=400, wyoming="127.0.0.1:0"
            )
            assert gateway.services.wyoming is not None
            settle()  # as the real one does when it has started
            print(gateway.url, *urlsplit(gateway.services.wyoming.url).netloc.split(":"), flush=True)
            await stop.wait()


asyncio.run(main())
