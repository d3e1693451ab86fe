"""The helper process of the general library: answers, order, deadlines, death."""

from __future__ import annotations

import asyncio

import pytest

from tts_core.text.library import MAX_CHARS, MAX_WAITING, Library, acceptable


@pytest.fixture
async def library():  # type: ignore[no-untyped-def]
    lib = Library(deadline=10.0)
    await lib.start()
    yield lib
    await lib.close()


async def test_answers_in_order_and_remembers(library: Library) -> None:
    texts = ["5 kg/m³", "7 cwt", "100 rpm"]
    answers = await asyncio.gather(*(library.read(t) for t in texts))
    assert answers[0] == "five kilograms per cubic meter"
    assert answers[1] == "seven hundredweight"
    assert answers[2] == "one hundred revolutions per minute"
    process = library._process
    assert process is not None
    process.kill()
    await process.wait()
    assert await library.read("7 cwt") == "seven hundredweight"


async def test_bad_answers_are_no_answers(library: Library) -> None:
    assert await library.read("5 N·m") is None  # comes back with the unit unread
    assert await library.read("₺20") is None  # the library raises
    assert library.alive
    assert await library.read("x" * (MAX_CHARS + 1)) is None


async def test_dead_helper_comes_back(library: Library) -> None:
    process = library._process
    assert process is not None
    pending = asyncio.create_task(library.read("9 cwt"))
    process.kill()
    await process.wait()
    assert await asyncio.wait_for(pending, 10) in (None, "nine hundredweight")
    reader = library._reader
    if reader is not None:
        await asyncio.wait_for(reader, 10)
    assert await library.read("3 cwt") is None  # asks for a restart, does not wait for it
    starting = library._starting
    assert starting is not None
    await asyncio.wait_for(starting, 30)
    assert await library.read("3 cwt") == "three hundredweight"


async def test_late_answer_does_not_shift_the_next(library: Library) -> None:
    library._deadline = 0.0
    assert await library.read("11 cwt") is None
    library._deadline = 10.0
    assert await library.read("12 cwt") == "twelve hundredweight"


async def test_queue_is_bounded(library: Library) -> None:
    answers = await asyncio.gather(*(library.read(f"{n} cwt") for n in range(2, MAX_WAITING + 6)))
    assert answers[:MAX_WAITING].count(None) == 0
    assert answers[MAX_WAITING:] == [None] * 4


async def test_closed_library_gives_nothing() -> None:
    lib = Library()
    await lib.close()
    assert await lib.read("5 cwt") is None
    assert lib._starting is None and not lib.alive


@pytest.mark.parametrize(
    ("text", "answer", "good"),
    [
        ("5 kg", "five kilograms", True),
        ("5 N·m", "five N·m", False),
        ("5", "", False),
        ("5", None, False),
        ("5 pF", "five pF", False),
        ("5", "five " * 50, False),
        ("5", "5 things", False),
    ],
)
def test_acceptable(text: str, answer: str | None, good: bool) -> None:
    assert acceptable(text, answer) == (answer if good else None)
