from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tts_core.embedded.phones import SpokenWord
from tts_core.embedded.pieces import FIRST, LONG, MAX_PHONEMES, Piece, split

spoken = st.builds(
    SpokenWord,
    text=st.sampled_from(["Word", "word", "5", "Dr"]),
    phonemes=st.builds(
        "".join,
        st.tuples(
            st.text(alphabet="abcˈ ", min_size=1, max_size=12).map(lambda s: s.strip() or "a"),
            st.sampled_from(["", "", "", "", ",", ".", "?", "—", '."', "..."]),
        ),
    ),
)


def said(pieces: list[Piece]) -> str:
    return "".join("".join(w.phonemes for w in p.words).replace(" ", "") for p in pieces)


@given(st.lists(spoken, max_size=200))
def test_pieces_hold_every_word_once_in_order_and_fit_the_network(words: list[SpokenWord]) -> None:
    pieces = split(words)
    at = 0
    for piece in pieces:
        assert piece.first == at
        assert piece.words == tuple(words[at : at + len(piece.words)])
        assert 0 < len(piece.phonemes) <= MAX_PHONEMES
        at += len(piece.words)
    assert at == len(words)


@given(st.integers(401, 2000), st.text(alphabet="ab ", min_size=1, max_size=9))
def test_a_word_longer_than_the_network_is_cut_inside(length: int, unit: str) -> None:
    phonemes = (unit * length)[:length].strip() or "a" * length
    word = SpokenWord("w", phonemes)
    pieces = split([SpokenWord("x", "ab"), word, SpokenWord("y", "cd")])
    assert all(len(p.phonemes) <= MAX_PHONEMES for p in pieces)
    assert said(pieces) == ("ab" + phonemes + "cd").replace(" ", "")


def word(phonemes: str, text: str = "Word") -> SpokenWord:
    return SpokenWord(text, phonemes)


def test_sentences_are_cut_but_not_at_an_unknown_abbreviation() -> None:
    assert [p.ending for p in split([word("hˈI."), word("jˈu?")])] == ["sentence", "sentence"]
    assert len(split([word("skw."), word("fˈit", "feet")])) == 1


def test_a_sentence_of_usual_length_is_one_piece() -> None:
    assert len(split([word("abcdef,")] * (LONG // 8))) == 1


def test_a_long_sentence_starts_with_a_short_piece_at_a_pause() -> None:
    words = [word("abcdefg" + (",", "")[i % 6 != 5]) for i in range(60)]
    pieces = split(words)
    assert FIRST <= len(pieces[0].phonemes) <= 2 * FIRST
    assert all(p.ending == "clause" for p in pieces[:-1])
    assert all(len(p.phonemes) >= FIRST for p in pieces)


def test_without_any_pause_a_sentence_stays_whole_while_it_fits() -> None:
    assert len(split([word("abcdefg")] * 45)) == 1
    assert [p.ending for p in split([word("abcdefg")] * 60)] == ["word", "word"]
