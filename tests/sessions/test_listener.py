from __future__ import annotations

import asyncio

from sessions.listener import Listener
from sessions.memory_store import MemoryStore


async def test_it_hears_from_start_to_close_and_once() -> None:
    store, heard = MemoryStore(), []  # type: tuple[MemoryStore, list[bytes]]
    listener = Listener(store, "news", heard.append)

    async def tell(message: bytes) -> None:
        await store.publish("news", message)
        await asyncio.sleep(0)

    await tell(b"before")
    await listener.start()
    await listener.start()
    await tell(b"one")
    await listener.close()
    await listener.close()
    await tell(b"after")
    assert heard == [b"one"]
    await listener.start()
    await tell(b"two")
    assert heard == [b"one", b"two"]
    await listener.close()
