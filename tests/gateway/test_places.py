from __future__ import annotations

import pytest

from gateway.places import Places
from tts_core.errors import Busy


def test_places_are_few_and_free_again_whatever_happens() -> None:
    places = Places(2, "others are at it", retry_after=3.0)
    for _ in range(3):
        with places.one(), places.one():
            with pytest.raises(Busy, match="others are at it") as error, places.one():
                pass
            assert error.value.retry_after == 3.0
            assert places.taken == 2
        with pytest.raises(KeyError), places.one():
            raise KeyError
    assert places.taken == 0
