"""What is put in a listener's place once nobody is to be told anything any more.

A listener and the one that tells it refer to each other: without this a collector would have to find both.
"""

from __future__ import annotations


def unheard(*_: object) -> None:
    """Do nothing, where a listener would be called."""


async def untold(*_: object) -> None:
    """Do nothing, where a listener would be awaited."""
