from __future__ import annotations

import pytest

from gateway.places import Places
from tts_core.errors import Busy


def test_places_are_few_and_free_again_whatever_happens() -> None:
    places = Places(2, "others are at it", retry_after=3.0)
    for _ in range(3):
        with places.one("a"), places.one("b"):
            with pytest.raises(Busy, match="others are at it") as error, places.one("c"):
                pass
            assert error.value.retry_after == 3.0
            assert places.taken == 2
        with pytest.raises(KeyError), places.one("a"):
            raise KeyError
    assert places.taken == 0


def test_one_tenant_gets_half_of_them() -> None:
    places = Places(4, "others are at it", retry_after=3.0)
    with places.one("slow"), places.one("slow"):
        with pytest.raises(Busy), places.one("slow"):
            pass
        with places.one("other"), places.one("other"):
            assert places.taken == 4
    assert places.taken == 0
    with Places(1, "", retry_after=1.0).one("alone"):
        pass
