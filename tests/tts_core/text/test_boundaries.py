from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_core.text.boundaries import SLACK, decide, ends_sentence, releasable
from tts_core.text.clauses import HARD_FACTOR, LOOKAHEAD
from tts_core.text.cuts import Cut, Reason, Wait


def look(text: str, *, first: bool = False, final: bool = False, limit: int = 280) -> Cut | Wait:
    return decide(text, 0, first=first, final=final, limit=limit, shields=[])


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("It is so. T", 9),
        ('He said "so." T', 13),
        ("Is it so? t", 9),
        ("It is 5 p.m. The d", 12),
        ("It was 2024. 1", 12),
        ("so it is. a word", 9),
        ("It is done. iPhone", 11),
        ("Ends here\nN", 9),
        ("So be it… N", 9),
        ("How are you?I'm", 12),
        ("It is $5. $6 is", 9),
        ("你好。再", 3),
        ("A nice e-mail. (T", 14),
    ],
)
def test_sentences(text: str, at: int) -> None:
    assert look(text) == Cut(at, Reason.SENTENCE)


@pytest.mark.parametrize(
    "text",
    [
        "It is so.",
        "It is so. ",
        'It is so."',
        "It is so. “",
        "It is 5 p.m. Th",
        "It is 3. 5 o",
        "It is so. but then",
        "Call Dr. Smith",
        "It is No. 5 o",
        "1. First",
        "J. R. R. T",
        "e.g. T",
        "see a.b.C",
        "v1.2.3 i",
        "... T",
        "Hm . t",
        "goes on\nbelow",
        "ends,\nB",
        "How are you?I",
        "see google.Com n",
        'he said "so." t',
        "x. .y",
        "It was so... but",
    ],
)
def test_no_sentence_yet(text: str) -> None:
    assert isinstance(look(text), Wait)


def test_at_the_end_of_the_text_what_is_left_is_decided() -> None:
    assert look("It is so.", final=True) == Cut(9, Reason.SENTENCE)
    assert look("It is 5 p.m. The", final=True) == Cut(12, Reason.SENTENCE)
    assert look("It is so.I", final=True) == Wait(10)


def test_a_first_clause_is_taken_only_when_it_is_the_first() -> None:
    assert look("Hi there, we", first=True) == Cut(9, Reason.CLAUSE)
    assert isinstance(look("Hi there, we"), Wait)
    assert look("we have looked at all of your data and we see", first=True) == Cut(35, Reason.CLAUSE)
    assert isinstance(look("salt and we are here", first=True), Wait)


def test_shields() -> None:
    text = "A. So it is. Then"
    assert decide(text, 0, first=False, final=False, limit=280, shields=[(3, 30)]) == Wait(len(text))


def test_a_wait_says_where_to_go_on_and_whether_the_next_character_may_decide() -> None:
    assert look("It is so.") == Wait(8, eager=True)
    assert look("It is so") == Wait(8)


@pytest.mark.parametrize("text", ["Done.", "Done", 'So "it is."', "So?"])
def test_complete(text: str) -> None:
    assert ends_sentence(text)


@pytest.mark.parametrize("text", ["Hi there,", "So: ", "wait —", 'He said "so,"', "a -"])
def test_incomplete(text: str) -> None:
    assert not ends_sentence(text)


@pytest.mark.parametrize(
    "text",
    [
        "It costs 3.",
        "So...",
        "Is it?",
        "Hi there,",
        "Sure,",
        "at 5 p.m.",
        "No.",
        "I said no.",
        "你好。",
        "he sat.",
    ],
)
def test_releasable(text: str) -> None:
    assert releasable(text)


@pytest.mark.parametrize(
    "text",
    [
        "It costs 3",
        "1,",
        "Apples,",
        "Dr.",
        "St.",
        "J.",
        "a.",
        "e.g.",
        "1.",
        "...",
        "",
        "room No.",
        "on Sat.",
        "Jan.",
    ],
)
def test_not_releasable(text: str) -> None:
    assert not releasable(text)


WORDS = "Hi there, Dr. Smith p.m. The St. J. 3. 50 2024. 5 so. so? so! yes: we — I'm and we because … ... (a)"
MORE_WORDS = ["“b”", "é", "你好。", "U.S.", "No.", "\n", "?I'm", "x" * 60]


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.sampled_from([*WORDS.split(), *MORE_WORDS]), max_size=30),
    st.booleans(),
    st.sampled_from([20, 40, 280]),
)
def test_a_decision_never_changes_with_the_text_that_follows(
    words: list[str], first: bool, limit: int
) -> None:
    text = " ".join(words).replace(" \n ", "\n").strip()
    settled: Cut | None = None
    scan = 0
    for end in range(1, len(text) + 1):
        if text[end - 1] in " \n":
            continue  # white space comes with the word behind it
        fresh = look(text[:end], first=first, limit=limit)
        resumed = decide(text[:end], scan, first=first, final=False, limit=limit, shields=[])
        if settled is not None:
            assert fresh == settled
            continue
        assert isinstance(fresh, Cut) is isinstance(resumed, Cut)
        if isinstance(resumed, Wait):
            scan = resumed.scan
        else:
            assert resumed == fresh
            settled = resumed
    assert settled is not None or len(text) < limit * HARD_FACTOR + SLACK + LOOKAHEAD
