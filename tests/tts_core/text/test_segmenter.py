from __future__ import annotations

import random
import time
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tts_core.errors import BadRequest
from tts_core.text import segmenter
from tts_core.text.alignment import Alignment, Span
from tts_core.text.segment import Segment, TextMode, TextOptions
from tts_core.text.segmenter import TextFrontEnd

CASES = [
    tuple(line.split("\t"))
    for line in (Path(__file__).parent / "segments.tsv").read_text(encoding="utf-8").splitlines()
    if line and (not line.startswith("# ") or line.startswith("# Title"))
]

# Pieces that interact: any order of them is a text worth trying.
FRAGMENTS = r"""
Hi·there,· how·are·you?· It·costs·$3.50.· 3 ·5 . , .. … · ⏎ ⏎⏎ -·item⏎ 1.·First⏎ *· ** * _ __ ` ``` ```python⏎
⏎```⏎ ~~~⏎ ~ < <b> </b> <break·time="500ms"/> <br eak/> <spell> </spell> <|im _start|> <<h| ə>> <!--·c·--> <p>
<speed·ratio='1.2'/> <speed·ratio='2'> </speed> [ ]( http://x.com/a_(b) ) ] ![ [1] [^1] 【4†s】 & amp; &lt; #
#·Head⏎ | |·a·|·b·|⏎ ---·|·---⏎ - — ·-· Dr.· St.· p.m.· The· U.S.· J.· e.g.· No.· a B word· Word· é e ! ? \ "
' ” ( because· and·I· 你好。 。 12345.Let· www.x.com/?Q=1· jo@example.com· 한 = ===⏎ >· https://a.b/c,d·
1️⃣ 👩‍👩‍👧
"""
PIECES = [f.replace("·", " ").replace("⏎", "\n") for f in FRAGMENTS.split()]
PIECES += [
    "\u0301",
    "\u200d",
    "\ufe0f",
    "\u200b",
    "\u202e",
    "\ud83d",
    "\ude00",
    "\u1161",
    "\u0345",
    "\x00",
    "\t",
]
PIECES += ["\u00a0", "\u2028", "\U0001f600", "\U0001f3fb", "\U0001d15e", "x" * 50, "1" * 30, " " * 5]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=60).map("".join) | st.text(max_size=200)
OPTIONS = st.builds(
    TextOptions,
    mode=st.just(TextMode.DELTA),
    clean=st.booleans(),
    tags=st.booleans(),
    max_segment=st.sampled_from([20, 40, 280]),
)


def speak(text: str, options: TextOptions | None = None, step: int = 1_000_000) -> list[Segment]:
    front = TextFrontEnd(options)
    out = [s for at in range(0, len(text), step) for s in front.feed(text[at : at + step])]
    return out + front.end()


def texts(segments: list[Segment]) -> list[str]:
    return [s.text for s in segments]


def facts(segments: list[Segment]) -> list[tuple[Segment, tuple[Span, ...]]]:
    """Everything a segment says, comparable."""
    return [(replace(s, alignment=Alignment(())), s.alignment.spans) for s in segments]


def check(source: str, segments: list[Segment]) -> None:
    """All that holds for every text in every mode."""
    at = 0
    for n, s in enumerate(segments):
        assert s.index == n
        assert s.source_start == at <= s.source_end
        at = s.source_end
        derived, mapped = 0, s.source_start
        for span in s.alignment.spans:
            assert span.start == derived < span.end
            assert mapped <= span.source_start <= span.source_end <= s.source_end
            derived, mapped = span.end, span.source_end
            if span.exact:
                assert source[span.source_start : span.source_end] == s.text[span.start : span.end]
        assert derived == len(s.text)
        assert all(0 <= a < b <= len(s.text) for a, b in s.spell)
        assert s.text == s.text.strip()
        assert not any(unicodedata.category(c) in {"Cc", "Cf", "Cs"} for c in s.text)
        assert unicodedata.is_normalized("NFC", s.text)
        assert "<|" not in s.text
        assert 0 <= s.pause_before_ms <= 5000
        assert 0.5 <= s.speed <= 2
    assert at == len(source)
    assert sum(s.pause_before_ms for s in segments) <= 60_000


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0][:40])
@pytest.mark.parametrize("step", [1, 3, 1_000_000])
def test_table(case: tuple[str, str], step: int) -> None:
    source = case[0].replace("\\n", "\n")
    segments = speak(source, step=step)
    assert [t for t in texts(segments) if t] == case[1].split(" ¦ ")
    check(source, segments)


@settings(max_examples=400, deadline=None)
@given(text=TEXTS, options=OPTIONS, seed=st.integers(0, 2**32))
@example(text="caf" + "e\u0301 \ud83d\ude00 x", options=TextOptions(), seed=0)
@example(text="\\[1]```python\n<😀", options=TextOptions(), seed=1)
def test_any_split_gives_the_same_segments(text: str, options: TextOptions, seed: int) -> None:
    whole = speak(text, options)
    check(text, whole)
    assert facts(speak(text, options, step=1)) == facts(whole)
    rng = random.Random(seed)
    for longest in (3, 40):
        front = TextFrontEnd(options)
        out: list[Segment] = []
        at = 0
        while at < len(text):
            end = at + rng.randint(0, longest)
            out += front.feed(text[at:end])
            at = min(end, len(text))
        assert facts(out + front.end()) == facts(whole)


@settings(max_examples=300, deadline=None)
@given(
    parts=st.lists(
        st.tuples(
            st.sampled_from(PIECES) | st.text(max_size=30), st.sampled_from(["", "", "", "flush", "release"])
        ),
        max_size=30,
    ),
    mode=st.sampled_from([TextMode.DELTA, TextMode.SEGMENT]),
    options=OPTIONS,
)
def test_any_order_of_calls_keeps_the_text_whole(
    parts: list[tuple[str, str]], mode: TextMode, options: TextOptions
) -> None:
    front = TextFrontEnd(TextOptions(mode, options.clean, options.tags, max_segment=options.max_segment))
    out: list[Segment] = []
    for text, call in parts:
        out += front.feed(text)
        if call == "flush":
            out += front.flush()
        elif call == "release":
            out += front.release()
    out += front.end()
    source = "".join(text for text, _ in parts)
    assert front.source == source
    assert not front.held
    check(source, out)


TOKENS = [
    "$3.50",
    "12.4.1",
    "p.m.",
    "Dr.",
    "J.",
    "1,250",
    "2:30",
    "a.b@c.de",
    "St.",
    "e.g.",
    "0.5",
    "No.",
    "word",
]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(TOKENS)))
def test_a_release_never_cuts_after_what_must_go_on(tokens: list[str]) -> None:
    """Released after every character, a cut is at a sign that may end a sentence, not after a title."""
    text = " ".join(tokens)
    front = TextFrontEnd()
    out: list[Segment] = []
    for char in text:
        out += front.feed(char)
        out += front.release()
    out += front.end()
    check(text, out)
    for s in out[:-1]:
        assert s.text[-1] in ".!?,"
        assert s.text.split()[-1] not in {"Dr.", "J.", "e.g.", "St.", "a."}


# -- timeliness ----------------------------------------


def when(text: str, wanted: str) -> str:
    """How much of ``text`` had been fed, character by character, when a segment ``wanted`` came."""
    front = TextFrontEnd()
    for at, char in enumerate(text):
        if any(s.text == wanted for s in front.feed(char)):
            return text[: at + 1]
    raise AssertionError("never came")


def test_the_first_clause_comes_with_the_next_word() -> None:
    assert when("Hi there, how are you?", "Hi there,") == "Hi there, how"
    assert when("Hello! We are here.", "Hello!") == "Hello! We"
    assert when("Sure thing, Ben. Wait.", "Sure thing,") == "Sure thing, Ben"  # TX would be a state
    assert when("One.\n\nTwo", "One.") == "One.\n\n"


def test_a_later_sentence_comes_with_the_next_word() -> None:
    assert when("Hi. It costs 3.50. Then, go.", "It costs 3.50.") == "Hi. It costs 3.50. Th"
    assert when("Hi. At 5 p.m. The door.", "At 5 p.m.") == "Hi. At 5 p.m. The do"


@pytest.mark.parametrize(
    ("text", "released"),
    [
        ("It costs 3.", ["It costs 3."]),
        ("It costs 3. ", ["It costs 3."]),
        ("Come at 5 p.m.", ["Come at 5 p.m."]),
        ("Is it on Main St.", ["Is it on Main St."]),
        ("Hi there,", ["Hi there,"]),
        ("Sure,", ["Sure,"]),
        ("Done!", ["Done!"]),
        ("So **be it.**", ["So be it."]),
        ('He said "no."', ['He said "no."']),
        ("Fine. <bre", ["Fine."]),
        ("你好。", ["你好。"]),
        ("It costs 3", []),
        ("It costs 3,", []),
        ("Call Dr.", []),
        ("I live in St.", []),
        ("It was J.", []),
        ("We use e.g.", []),
        ("1.", []),
        ("Take room No.", []),
        ("It was I.", ["It was I."]),
        ("Let me check", []),
        ("...", []),
        ("", []),
    ],
)
def test_release(text: str, released: list[str]) -> None:
    front = TextFrontEnd()
    out = front.feed(text)
    before = len(out)
    out += front.release()
    assert before == 0
    assert texts(out) == released
    check(text, out + front.end())


def test_a_pause_inside_a_mark_or_token_changes_nothing() -> None:
    for text, at in (
        ("2*3 is it, ok", 2),
        ("snake_case, ok", 6),
        ("AT&amp;T, ok", 3),
        ("caf\u0065\u0301, ok", 4),
    ):
        front = TextFrontEnd()
        out = front.feed(text[:at]) + front.release()
        out += front.feed(text[at:]) + front.end()
        assert texts(out) == texts(speak(text))


def test_flush_gives_out_what_is_held_but_an_open_tag() -> None:
    front = TextFrontEnd()
    assert texts(front.feed("Let me che")) == []
    assert [front.held, texts(front.flush()), front.held] == [True, ["Let me che"], False]
    assert front.flush() == []
    assert texts(front.feed("ck <bre")) == []
    assert texts(front.flush()) == ["ck"]
    assert front.held
    out = front.feed("ak time='1s'/>done.") + front.end()
    assert [(s.text, s.pause_before_ms) for s in out] == [("done.", 1000)]


def test_ends() -> None:
    front = TextFrontEnd()
    front.feed("Hi")
    assert texts(front.end()) == ["Hi"]
    assert front.end() == front.flush() == front.release() == []
    with pytest.raises(BadRequest) as error:
        front.feed("more")
    assert error.value.field == "text"


def test_final_mode_takes_one_message() -> None:
    front = TextFrontEnd(TextOptions(mode=TextMode.FINAL))
    assert texts(front.feed("Hi there, you. Bye.")) == ["Hi there,", "you."]
    with pytest.raises(BadRequest):
        front.feed("more")
    assert texts(front.end()) == ["Bye."]


def test_nothing_gives_nothing_and_blanks_are_accounted_for() -> None:
    assert TextFrontEnd().end() == []
    assert [(s.text, s.source_end) for s in speak("  \n ")] == [("", 4)]
    front = TextFrontEnd()
    front.feed("Hi.")
    out = front.flush() + front.feed(" ") + front.end()
    assert [(s.text, s.source_start, s.source_end) for s in out] == [("Hi.", 0, 3), ("", 3, 4)]


def test_what_cannot_be_spoken_goes_with_its_neighbour() -> None:
    assert [(s.text, s.source_start, s.source_end) for s in speak("Hi. 😀 Bye. 😀")] == [
        ("Hi.", 0, 6),
        ("Bye.", 6, 12),
    ]
    assert texts(speak("... Hi.")) == ["... Hi."]
    assert [(s.text, s.source_end) for s in speak("😀")] == [("", 1)]
    assert texts(speak("...")) == ["..."]


# -- modes ----------------------------------------


def test_segment_mode_speaks_every_message_as_it_stands() -> None:
    front = TextFrontEnd(TextOptions(mode=TextMode.SEGMENT))
    got = [
        texts(front.feed(m))
        for m in ("Hi there, you. And you.", "It costs 3.", "50 or so ", "- item", "😀", " ")
    ]
    assert got == [["Hi there, you. And you."], ["It costs 3."], ["50 or so"], ["item"], [""], []]
    out = front.end()
    assert [(s.text, s.source_end) for s in out] == [("", len(front.source))]


def test_segment_mode_joins_a_tag_over_messages() -> None:
    front = TextFrontEnd(TextOptions(mode=TextMode.SEGMENT))
    out = front.feed("Hello <bre") + front.feed('ak time="250ms"/> you') + front.end()
    assert [(s.text, s.pause_before_ms) for s in out] == [("Hello", 0), ("you", 250)]
    check(front.source, out)


def test_segment_mode_cuts_only_what_is_too_long() -> None:
    options = TextOptions(mode=TextMode.SEGMENT, max_segment=40)
    long = "This is one. This is the second one. And this is the third one of them."
    out = speak(long, options)
    assert texts(out) == ["This is one.", "This is the second one.", "And this is the third one of them."]
    assert texts(speak("One. Two. Three.", options)) == ["One. Two. Three."]


def test_a_long_sentence_is_cut_at_the_best_place() -> None:
    clause = "this goes on and on without an end; "
    tail = "here we have a comma, and then some more words that follow it"
    out = speak("Hi. " + clause.capitalize() + tail, TextOptions(max_segment=60))
    assert texts(out)[1] == clause.capitalize().strip()
    assert not out[1].ends_sentence
    assert all(len(s.text) <= 60 + 24 for s in out)
    words = "word " * 200
    assert all(
        len(s.text) <= 60 + 24 and s.text.endswith("word") for s in speak(words, TextOptions(max_segment=60))
    )
    digits = speak("Hi. The number is " + "123 456 " * 40, TextOptions(max_segment=60))
    check("Hi. The number is " + "123 456 " * 40, digits)


def test_cleaning_can_be_switched_off() -> None:
    text = "**Hi** 😀 [a](b) <b>x</b> <break time='1s'/> <|end|> &amp; \u202eok\u200b"
    out = speak(text, TextOptions(clean=False))
    assert [(s.text, s.pause_before_ms) for s in out] == [
        ("**Hi** 😀 [a](b) < b>x< /b>", 0),
        ("&amp; ok", 1000),
    ]


# -- tags ----------------------------------------


def test_breaks() -> None:
    out = speak("One <break time='1.5s'/>two <break/><break strength='weak'/> three <break time='90s'/>")
    assert [(s.text, s.pause_before_ms) for s in out] == [
        ("One", 0),
        ("two", 1500),
        ("three", 750),
        ("", 5000),
    ]
    assert out[0].source_end == 4
    assert speak("<break/>" * 40)[0].pause_before_ms == 5000
    pauses = [s.pause_before_ms for s in speak("a <break time='5s'/>" * 30)]
    assert sum(pauses) == 60_000
    dropped = speak("One <break/>two", TextOptions(tags=False))
    assert [(s.text, s.pause_before_ms) for s in dropped] == [("One two", 0)]


def test_a_flush_gives_out_a_pause() -> None:
    front = TextFrontEnd()
    out = front.feed("One <break/>") + front.flush() + front.feed("two") + front.end()
    assert [(s.text, s.pause_before_ms) for s in out] == [("One", 0), ("", 500), ("two", 0)]


def test_spelling() -> None:
    (out,) = speak("Code <spell> A1.B C</spell> now")
    assert out.text == "Code A1.B C now"
    assert [out.text[a:b] for a, b in out.spell] == ["A1.B C"]
    first, second = speak("Code <spell>A1. The B2</spell>. Then more.")
    assert first.text == "Code A1. The B2."
    assert second.spell == ()
    (out,) = speak("x <say-as interpret-as='characters'>AB</say-as> y")
    assert [out.text[a:b] for a, b in out.spell] == ["AB"]
    front = TextFrontEnd()
    halves = front.feed("<spell>AB") + front.flush() + front.feed("CD</spell> x") + front.end()
    assert [[s.text[a:b] for a, b in s.spell] for s in halves] == [["AB"], ["CD"]]
    unclosed = speak("<spell>" + "A" * 300)
    assert sum(b - a for s in unclosed for a, b in s.spell) == 200
    assert speak("<spell>AB</spell>", TextOptions(tags=False))[0].spell == ()


def test_speed_and_volume() -> None:
    out = speak("One <speed ratio='1.5'/>two <volume ratio='0.5'/>three. <speed value='9'/>Four")
    assert [(s.text, s.speed, s.volume) for s in out] == [
        ("One", 1.0, 1.0),
        ("two", 1.5, 1.0),
        ("three.", 1.5, 0.5),
        ("Four", 2.0, 0.5),
    ]
    out = speak("<prosody rate='fast'>a <prosody rate='80%'>b</prosody> c</prosody> d")
    assert [(s.text, s.speed) for s in out] == [("a", 1.2), ("b", 0.8), ("c", 1.2), ("d", 1.0)]
    assert texts(speak("A <emotion value='happy'/>nice day, we")) == ["A nice day,", "we"]


def test_a_tag_cut_into_dust_is_never_spoken() -> None:
    text = "Wait <break time='300ms'/>a bit <emotion value='sad'> more </emotion>."
    for step in (1, 2, 7):
        assert texts(speak(text, step=step)) == ["Wait", "a bit more."]


@pytest.mark.parametrize(
    "nested", ["<|im_st<|im_start|>art|>", "<br<b>eak/>", "<|a", "<|<b>im|>", "&lt;|im_start|>"]
)
def test_markup_cannot_be_put_together_by_dropping_other_markup(nested: str) -> None:
    for clean in (True, False):
        said = " ".join(texts(speak(f"x {nested} y", TextOptions(clean=clean))))
        assert "<|" not in said
        assert "<b" not in said


# -- cost ----------------------------------------


UNITS = [
    "Some words here, and more of them. ",
    "[",
    "<",
    "<a ",
    "1 ",
    "*",
    "`",
    "&a",
    "!",
    ".",
    "![a](",
    "](",
    "<<a",
]
UNITS += [
    "<!--",
    "\n",
    "- ",
    "|a\n",
    "e\u0301",
    "\u0301",
    "\ud83d",
    "<spell>",
    "a\u2014",
    "St. ",
    "```\n",
    "1. ",
    " ",
    "x",
]


@pytest.mark.parametrize("unit", UNITS)
def test_what_is_held_is_bounded(unit: str) -> None:
    """Work for each delta is on what is held, so a bound on that is a bound on the work."""
    front = TextFrontEnd()
    most = 0
    for char in (unit * 6000)[:6000]:
        front.feed(char)
        most = max(most, len(front._cleaner.waiting) + len(front._draft.text))
    front.end()
    assert most <= 280 * 4 + 2000 + segmenter.MAX_CALM


def test_cost_grows_with_the_length_alone() -> None:
    unit = (
        "Hi there, it costs $3.50 and **ships** on Jan. 5, see https://example.com/a?b=1 for more. <break/>"
    )

    def cost(size: int) -> float:
        text = (unit * (size // len(unit) + 1))[:size]
        best = float("inf")
        for _ in range(3):
            began = time.process_time()
            speak(text, step=1)
            best = min(best, time.process_time() - began)
        return best

    # 8 times the text: linear is 8, quadratic 64.
    assert cost(48_000) < 24 * cost(6_000)
