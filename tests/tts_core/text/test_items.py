from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from tts_core.text.items import Break, Level, Manner, Piece, Spell, Stop


def test_levels_are_ordered_by_how_final_they_are() -> None:
    assert Level.MORE < Level.RELEASE < Level.FLUSH < Level.END


@pytest.mark.parametrize(
    "item", [Piece("a", 0, 1, True), Stop(1), Break(0, 500), Manner(0, 1.0, 1.0), Spell(True)]
)
def test_items_are_values(item: object) -> None:
    name = type(item).__slots__[0]  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError):
        setattr(item, name, None)
