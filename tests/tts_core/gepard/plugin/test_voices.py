from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tts_core.errors import Busy
from tts_core.gepard.frames import SpeakerPrefix
from tts_core.gepard.plugin.voices import Place, VoiceTable

PREFIXES = [SpeakerPrefix.of(np.full((1, 4), value, np.float32)) for value in range(7)]
SIZE = 4


class Table(RuleBasedStateMachine):
    """Requests come and go; a place that is read is never another voice's."""

    def __init__(self) -> None:
        super().__init__()
        self.table = VoiceTable(SIZE)
        self.written: dict[int, str] = {}
        self.held: list[Place] = []

    @rule(prefix=st.sampled_from(PREFIXES))
    def take(self, prefix: SpeakerPrefix) -> None:
        try:
            place, fresh = self.table.take(prefix)
        except Busy:
            assert len({held.slot for held in self.held}) == SIZE
            return
        if fresh:
            assert place.slot not in {held.slot for held in self.held}
            self.written[place.slot] = prefix.fingerprint
        self.held.append(place)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        self.table.give_back(self.held.pop(data.draw(st.integers(0, len(self.held) - 1))))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        self.table.drop(data.draw(st.sampled_from(self.held)))

    @rule(prefix=st.sampled_from(PREFIXES))
    def forget(self, prefix: SpeakerPrefix) -> None:
        held = [place for place in self.held if place.prefix is prefix]
        place = self.table.forget(prefix.fingerprint)
        assert self.table.forget(prefix.fingerprint) is None
        if place is not None:
            assert place.erase
            assert place.users == held.count(place)

    @invariant()
    def each_reads_its_own_rows(self) -> None:
        for place in self.held:
            assert self.written[place.slot] == place.prefix.fingerprint
            assert 0 <= place.slot < SIZE


TestTable = Table.TestCase


def test_the_least_recently_used_gives_way() -> None:
    table = VoiceTable(2)
    first, _ = table.take(PREFIXES[0])
    second, _ = table.take(PREFIXES[1])
    table.give_back(first)
    table.give_back(second)
    again, fresh = table.take(PREFIXES[0])
    assert not fresh
    third, fresh = table.take(PREFIXES[2])
    assert fresh
    assert third.slot == second.slot
    with pytest.raises(Busy):
        table.take(PREFIXES[1])
    assert again.slot == first.slot
    assert len(table) == 2
