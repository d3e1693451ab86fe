from __future__ import annotations

from tts_core.embedded.trim import Trim


def test_what_is_kept_after_a_piece_depends_on_its_end_and_place() -> None:
    trim = Trim(tail_ms=10, sentence_ms=40, clause_ms=30, word_ms=20)
    kept = [trim.after(e, last=False) for e in ("sentence", "clause", "word")]
    assert kept == [40, 30, 20]
    assert {trim.after(e, last=True) for e in ("sentence", "clause", "word")} == {10}
