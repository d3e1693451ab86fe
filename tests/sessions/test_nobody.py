"""Whatever is told to nobody is let go at once."""

from __future__ import annotations

import weakref

from sessions.nobody import unheard, untold


class Word:
    """Something to tell."""


async def test_nobody_takes_anything_and_keeps_nothing() -> None:
    word = Word()
    gone = weakref.ref(word)
    unheard()
    unheard(word, 1)
    await untold()
    await untold(word, "two")
    del word
    assert gone() is None
