"""Which speaker prefix lies in which place of the model's voice table. No I/O, no vLLM.

A place is taken while a request uses it; those that nobody uses are kept, the least recently used is given
away first. A place that is in use is never given away: its rows may still be read.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from tts_core.errors import Busy

from ..frames import SpeakerPrefix


@dataclass(slots=True, eq=False)
class Place:
    """A place of the voice table: which, whose, and by how many requests it is used.

    ``erase``: its rows are to be overwritten when nobody uses it any more.
    """

    slot: int
    prefix: SpeakerPrefix
    users: int = 0
    erase: bool = False


class VoiceTable:
    """Places by fingerprint, least recently used first.

    Args:
        size: places in all; at least as many as requests may run, or some of them are refused.
    """

    def __init__(self, size: int) -> None:
        self._free = list(range(size))
        self._places: OrderedDict[str, Place] = OrderedDict()

    def __len__(self) -> int:
        return len(self._places)

    def take(self, prefix: SpeakerPrefix) -> tuple[Place, bool]:
        """Use the place of ``prefix``; True if its rows must be written first.

        Raises:
            Busy: every place is in use by other voices.
        """
        place = self._places.get(prefix.fingerprint)
        fresh = place is None
        if place is None:
            place = Place(self._slot(), prefix)
            self._places[prefix.fingerprint] = place
        self._places.move_to_end(prefix.fingerprint)
        place.users += 1
        return place, fresh

    def give_back(self, place: Place) -> None:
        """One request less uses ``place``."""
        place.users -= 1
        if place.users == 0 and self._places.get(place.prefix.fingerprint) is not place:
            self._free.append(place.slot)  # it had been dropped

    def drop(self, place: Place) -> None:
        """Forget ``place``, whose rows could not be written: the next user writes them elsewhere."""
        if self._places.get(place.prefix.fingerprint) is place:
            del self._places[place.prefix.fingerprint]
            if place.users == 0:
                self._free.append(place.slot)

    def forget(self, fingerprint: str) -> Place | None:
        """Drop the place of a voice that was deleted; None where it has none.

        Its rows are the caller's to overwrite: at once where nobody uses it, else when ``users`` is 0.
        """
        place = self._places.get(fingerprint)
        if place is not None:
            place.erase = True
            self.drop(place)
        return place

    def _slot(self) -> int:
        if self._free:
            return self._free.pop()
        for name, place in self._places.items():
            if place.users == 0:
                del self._places[name]
                return place.slot
        raise Busy("too many voices are in use at once", retry_after=1.0)
