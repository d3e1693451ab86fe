"""Turns what a client sends, in pieces of any size, into clean text with offsets.

The cleaner is an incremental lexer: ``items`` yields what the text so far has decided and stops where more
text could still change the reading. A decision depends on the text alone and on a bounded look-ahead, never
on how the text was cut into messages, and is never taken back.

Markdown after CommonMark 0.31 and GFM as language models write it, which is laxer than the standard: only
what is not spoken is recognised. With ``clean`` off everything stays but what no option lets through: control,
bidi, zero-width characters and surrogates, control tokens of language models, phoneme blocks and speech tags.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from . import markup
from .characters import MAX_MARKS, ORDINARY, compose, extends, is_hidden, is_picture, is_space
from .markup import Kind, Tag
from .segment import TextOptions

_CHUNK = 1024
"""Longest piece: bounds the work on what waits behind it."""
_MAX_RUN = 64
_MAX_RULE = 200
_MAX_INFO = 100
_MAX_LINK = 2000
_MAX_ROW = 500
MAX_SPELL = 200
"""Source characters after which an open ``<spell>`` ends by itself."""
_MAX_NESTING = 16
_WRAP = 50
"""A line at least this long that ends without a blank line is taken to be wrapped, a shorter one to end there."""

_INDENT = re.compile(r"[ \t\r\f\v]*")
_SPACES = re.compile(r"[ \t\r\f\v]+")
_HASHES = re.compile(r"#{1,6}")
_RULE = re.compile(r"[-*_=:|+ \t]+")
_ORDER = re.compile(r"\d{1,3}")
_TASK = re.compile(r"\[[ xX]\][ \t]")
_ENTITY = re.compile(r"&(?:#\d{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
_OPEN_ENTITY = re.compile(r"&(?:#\d{0,7}|#[xX][0-9A-Fa-f]{0,6}|[A-Za-z][A-Za-z0-9]{0,30})?")
_CITATION = re.compile(r"\[(?:\d{1,3}|\^[^\]\[\s]{1,20})\]|【[^】\n]{0,60}】")
_OPEN_CITATION = re.compile(r"\[(?:\d{0,3}|\^[^\]\[\s]{0,20})|【[^】\n]{0,60}")
_TARGET = (
    r"\([ \t]*<?[^()\s<>]*(?:\([^()\s]*\)[^()\s]*)*>?"
    r"""(?:[ \t]+(?:"[^"\n]*"|'[^'\n]*'))?[ \t]*\)"""
)
_OPEN_TARGET = (
    r"\([ \t]*<?[^()\s<>]*(?:\([^()\s]*\)[^()\s]*)*(?:\([^()\s]*)?>?"
    r"""(?:[ \t]+(?:"[^"\n]*"?|'[^'\n]*'?)?)?[ \t]*"""
)
_LINK_END = re.compile(rf"\](?:{_TARGET}|\[[^\]\[\s]{{0,60}}\])")
_OPEN_LINK_END = re.compile(rf"\](?:{_OPEN_TARGET}|\[[^\]\[\s]{{0,60}})?")
_IMAGE = re.compile(rf"!\[[^\]\[\n]{{0,300}}\]{_TARGET}")
_OPEN_IMAGE = re.compile(rf"!(?:\[[^\]\[\n]{{0,300}}(?:\](?:{_OPEN_TARGET})?)?)?")
_ESCAPABLE = frozenset("!\"#$%'()*+,-./:;=>?@[\\]^_`{|}~")
_BULLETS = frozenset("-*+•‣◦▪●–—·")


class Level(IntEnum):
    """How final the end of the text is.

    MORE: text will follow. RELEASE: it paused; plain characters at the end stand as they are. FLUSH: all is
    to be spoken now, but an open ``<...`` may still be completed. END: nothing follows.
    """

    MORE = 0
    RELEASE = 1
    FLUSH = 2
    END = 3


@dataclass(frozen=True, slots=True)
class Piece:
    """Clean ``text`` from the source ``[start, end)``; ``exact`` when it is that slice unchanged.

    White space is one blank, or one line feed where a short line ends.
    """

    text: str
    start: int
    end: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Stop:
    """A sentence ends before source offset ``at``, whatever its words say (paragraph, list item, heading)."""

    at: int


@dataclass(frozen=True, slots=True)
class Break:
    """A tag at source offset ``at`` asks for a pause."""

    at: int
    ms: int


@dataclass(frozen=True, slots=True)
class Manner:
    """From source offset ``at`` on, these factors hold."""

    at: int
    speed: float
    volume: float


@dataclass(frozen=True, slots=True)
class Spell:
    """Reading out sign by sign begins (``on``) or ends."""

    on: bool


Item = Piece | Stop | Break | Manner | Spell


class Cleaner:
    """The lexer. ``feed`` text, then read ``items``; ``at`` is the source offset up to which all is decided."""

    def __init__(self, options: TextOptions) -> None:
        self._clean = options.clean
        self._tags = options.tags
        self._buf = ""
        self._base = 0
        self._i = 0
        self._out: list[Item] = []
        self._prev = ""
        self._glue: tuple[str, int, int, bool] | None = None
        self._seam: tuple[int, int] | None = None
        self._line_start = True
        self._line_from = 0
        self._lines = 0
        self._line_end = (0, 0)
        self._heading = False
        self._table = False
        self._code = False
        self._escape: int | None = None
        self._skip: re.Pattern[str] | None = None
        self._fence = ""
        self._row = False
        self._spelling = 0
        self._manner = (1.0, 1.0)
        self._outer: list[tuple[str, tuple[float, float]]] = []

    @property
    def at(self) -> int:
        """Source offset of the first character that is not decided yet."""
        return self._base + self._i

    @property
    def waiting(self) -> str:
        """The undecided tail of the text."""
        return self._buf[self._i :]

    @property
    def calm(self) -> bool:
        """Whether letters that follow cannot decide anything: only a word is waiting."""
        if self._line_start or self._fence or self._row or self._skip is not None or self._spelling:
            return False
        return self._i >= len(self._buf) or self._buf[self._i :].isalnum()

    def feed(self, text: str) -> None:
        """Take more text; it is looked at by ``items``."""
        if self._i:
            self._buf = self._buf[self._i :]
            self._base += self._i
            self._i = 0
        self._buf += text

    def new_message(self) -> None:
        """A message of its own begins: its first characters may be a list item, heading or fence."""
        if self._i >= len(self._buf) and not self._fence and self._skip is None:
            self._row = False
            self._line_start, self._lines, self._code, self._heading = True, 0, False, False
            self._line_from = self.at

    def forget_space(self) -> None:
        """White space so far belongs to a segment that is already cut."""
        self._glue = self._seam = None
        self._lines = 0

    def items(self, level: Level) -> Iterator[Item]:
        """Yield all that can be decided at this ``level``."""
        out = self._out
        while self._i < len(self._buf):
            if not self._step(level):
                break
            if out:
                yield from out
                out.clear()
        if out:
            yield from out
            out.clear()

    # -- one decision ----------------------------------------------------------------------------------------

    def _step(self, level: Level) -> bool:
        """Take one decision, put its items out and move on; False if more text is needed for it."""
        if self._skip is not None:
            return self._skip_raw(level)
        if self._fence:
            return self._skip_fence(level)
        if self._row:
            return self._skip_row()
        if self._spelling and self.at >= self._spelling:
            self._set_spelling(False)
        if self._line_start:
            return self._begin_line(level)
        if self._escape == self.at:
            return self._character(level)
        return self._ordinary(level) or self._special(level)

    def _ordinary(self, level: Level) -> bool:
        """Copy a run of ordinary characters; False if there is none."""
        buf, i = self._buf, self._i
        m = ORDINARY.match(buf, i, i + _CHUNK)
        if m is None:
            return False
        end = m.end()
        if self._spelling:
            end = min(end, self._spelling - self._base)
        if (end == len(buf) and self._growing(buf[-1], level)) or (end < len(buf) and extends(buf[end])):
            end -= 1  # the last one may yet become the base of a combining mark
        if end <= i:
            return False
        text = buf[i:end]
        if text[-1] == " ":
            text = text[:-1]
            end -= 1
        self._put(text, i, end, exact=True)
        self._i = end
        return True

    @staticmethod
    def _growing(last: str, level: Level) -> bool:
        """Whether a mark may still come for the last character; a pause settles it only for signs."""
        return level is Level.MORE or (level is Level.RELEASE and last.isalnum())

    def _special(self, level: Level) -> bool:
        char = self._buf[self._i]
        if char == "<":
            return self._bracket(level)
        if char in " \t\r\f\v":
            return self._blank()
        if char == "\n":
            return self._newline()
        if self._clean and not self._spelling:
            if char == "`":
                return self._ticks(level)
            if not self._code:
                if char in "*_~":
                    return self._emphasis(level)
                if char == "&":
                    return self._entity(level)
                if char in "[]!【":
                    return self._link(level)
                if char == "\\":
                    return self._backslash(level)
        return self._character(level)

    def _character(self, level: Level) -> bool:
        """One character with the marks that sit on it."""
        buf, i = self._buf, self._i
        char, width = buf[i], 1
        if "\ud800" <= char <= "\udbff":
            if i + 1 >= len(buf) and level is not Level.END:
                return False
            if i + 1 < len(buf) and "\udc00" <= buf[i + 1] <= "\udfff":
                # A JSON escape cut apart by a message border: put the pair together again.
                char = (char + buf[i + 1]).encode("utf-16", "surrogatepass").decode("utf-16")
                width = 2
        if is_space(char):
            self._space(i, i + width, exact=False)
            self._i += width
            return True
        picture = self._clean and is_picture(char)
        if picture or is_hidden(char) or extends(char):
            if picture:
                self._seam = self._seam or (self._base + i, self._base + i + width)
            return self._drop(i + width)
        end = i + width
        while end < len(buf) and end - i <= MAX_MARKS and extends(buf[end]):
            end += 1
        if end == len(buf) and end - i <= MAX_MARKS and self._growing(buf[-1], level):
            return False
        marks = "".join(c for c in buf[i + width : end] if not (self._clean and is_picture(c)))
        self._put(compose(char + marks), i, end)
        self._i = end
        return True

    # -- output ----------------------------------------------------------------------------------------------

    def _put(self, text: str, start: int, end: int, *, exact: bool | None = None) -> None:
        """Put out visible text from the buffer's ``[start, end)``, after any white space due before it."""
        base = self._base
        if self._glue is not None:
            self._out.append(Piece(*self._glue))
        elif self._seam is not None and text[0].isalnum() and self._prev.isalnum():
            self._out.append(Piece(" ", *self._seam, False))
        self._glue = self._seam = None
        if exact is None:
            exact = text == self._buf[start:end]
        self._out.append(Piece(text, base + start, base + end, exact))
        self._prev = text[-1]

    def _space(self, start: int, end: int, *, exact: bool, char: str = " ") -> None:
        if self._glue is None or (char == "\n" and self._glue[0] == " "):
            self._glue = (char, self._base + start, self._base + end, exact)
        self._prev = " "

    def _stop(self, at: int) -> None:
        self._out.append(Stop(self._base + at))
        self._glue = self._seam = None
        self._prev = " "

    def _drop(self, end: int) -> bool:
        self._i = end
        return True

    def _run(self, start: int, char: str) -> int:
        """End of the run of ``char`` that begins at ``start``, at most ``_MAX_RUN`` long."""
        end = start
        limit = min(len(self._buf), start + _MAX_RUN)
        while end < limit and self._buf[end] == char:
            end += 1
        return end

    # -- lines -----------------------------------------------------------------------------------------------

    def _blank(self) -> bool:
        m = _SPACES.match(self._buf, self._i)
        assert m is not None
        self._space(self._i, self._i + 1, exact=self._buf[self._i] == " ")
        self._i = m.end()
        return True

    def _newline(self) -> bool:
        i = self._i
        if self._heading:
            self._stop(i)
        self._heading = self._code = False
        self._line_end = (self._base + i, self._base + i + 1)
        short = self._base + i - self._line_from < _WRAP
        self._space(i, i + 1, exact=False, char="\n" if short else " ")
        self._lines = 1
        self._line_start = True
        self._i = i + 1
        self._line_from = self.at
        return True

    def _begin_line(self, level: Level) -> bool:
        """Look at the first characters of a line: blank lines, then block markers, then plain text."""
        buf = self._buf
        m = _INDENT.match(buf, self._i)
        assert m is not None
        j = m.end()
        if j >= len(buf):
            if level >= Level.FLUSH:
                return self._drop(j)
            return False
        if buf[j] == "\n":
            self._lines += 1
            if self._lines == 2:
                self._stop(j + 1)
            self._table = False
            self._line_from = self._base + j + 1
            return self._drop(j + 1)
        if not self._clean or self._spelling:
            return self._plain_line(j)
        done = self._block(j, level)
        return done if done is not None else self._plain_line(j)

    def _plain_line(self, j: int) -> bool:
        self._line_start = False
        self._lines = 0
        if j > self._i:
            self._space(self._i, self._i + 1, exact=False)
        return self._drop(j)

    def _block(self, j: int, level: Level) -> bool | None:
        """A block marker at ``j``: True when dealt with, False when undecided, None when it is none."""
        buf = self._buf
        final = level >= Level.FLUSH
        char = buf[j]
        after = buf[j + 1] if j + 1 < len(buf) else ""
        if char == "|":
            return self._open_row(j)
        if self._table:
            return self._loose_row(j, level)
        if char == "#":
            return self._head(j, final)
        if char == ">":
            if not after and not final:
                return False
            if after in " >\n" and after:
                return self._drop(j + 1)
            return None
        if char in "`~":
            return self._open_fence(j, final) if buf.startswith(char * 3, j) or len(buf) - j < 3 else None
        if char in "-*_=:+":
            return self._rule_or_bullet(j, final)
        if char in _BULLETS:
            if not after and not final:
                return False
            return self._item(j) if after and after in " \t\u00a0" else None
        if char.isdigit():
            return self._ordered(j, level)
        return None

    def _head(self, j: int, final: bool) -> bool | None:
        m = _HASHES.match(self._buf, j)
        assert m is not None
        k = m.end()
        if k >= len(self._buf):
            return None if final else False
        if self._buf[k] not in " \t":
            return None
        self._stop(j)
        self._line_start, self._lines, self._heading = False, 0, True
        return self._drop(k + 1)

    def _rule_or_bullet(self, j: int, final: bool) -> bool | None:
        buf = self._buf
        m = _RULE.match(buf, j, j + _MAX_RULE)
        assert m is not None
        k = m.end()
        if k - j >= _MAX_RULE:
            self._stop(j)
            return self._drop(k)
        after = buf[j + 1] if j + 1 < len(buf) else ""
        bullet = buf[j] in "-*+" and after in " \t" and after != ""
        if k >= len(buf) and not final:
            return False
        if k >= len(buf) or buf[k] == "\n":
            run = buf[j:k]
            if sum(run.count(c) for c in "-*_=") >= 3 or "|" in run:
                self._table = "|" in run
                self._stop(j)
                self._line_start, self._lines = False, 0
                return self._drop(k)
            if not bullet and run.strip() not in _BULLETS:
                return None
            self._stop(j)
            self._line_start, self._lines = False, 0
            return self._drop(k)
        if not bullet:
            return None
        if buf[k] == "[":
            m = _TASK.match(buf, k)
            if m is None and len(buf) - k < 4 and not final:
                return False
            if m is not None:
                self._stop(j)
                self._line_start, self._lines = False, 0
                return self._drop(m.end())
        return self._item(j)

    def _item(self, j: int) -> bool:
        self._stop(j)
        self._line_start, self._lines = False, 0
        return self._drop(j + 2)

    def _ordered(self, j: int, level: Level) -> bool | None:
        """Begin a new sentence at "1. Item"; the number stays, it is said."""
        buf = self._buf
        m = _ORDER.match(buf, j)
        if m is None:
            return None
        k = m.end()
        if k + 1 >= len(buf):
            undecided = k - j < 4 and (k >= len(buf) or buf[k] in ".)")
            return False if undecided and level is Level.MORE else None
        if buf[k] in ".)" and buf[k + 1] in " \t":
            self._stop(j)
            self._line_start, self._lines = False, 0
            return self._drop(j)
        return None

    # -- what is skipped whole -------------------------------------------------------------------------------

    def _open_row(self, j: int) -> bool:
        self._stop(j)
        self._table = self._row = True
        self._line_start, self._lines = False, 0
        return self._drop(j)

    def _loose_row(self, j: int, level: Level) -> bool | None:
        """A line after ``--- | ---``: still the table if it has a bar."""
        end = self._buf.find("\n", j, j + _MAX_ROW)
        bar = self._buf.find("|", j, end if end >= 0 else j + _MAX_ROW)
        if bar >= 0:
            return self._open_row(j)
        if end < 0 and len(self._buf) - j < _MAX_ROW and level < Level.FLUSH:
            return False
        self._table = False
        return self._block(j, level)

    def _skip_row(self) -> bool:
        end = self._buf.find("\n", self._i)
        self._row = end < 0
        return self._drop(end if end >= 0 else len(self._buf))

    def _open_fence(self, j: int, final: bool) -> bool | None:
        """Three or more backticks (or tildes at the start of a line): a code block, or inline code."""
        buf = self._buf
        char = buf[j]
        k = self._run(j, char)
        if k >= len(buf) and k - j < _MAX_RUN and not final:
            return False
        if k - j < 3:
            return None
        end = buf.find("\n", k, k + _MAX_INFO)
        tick = buf.find(char, k, end if end >= 0 else k + _MAX_INFO)
        if tick >= 0 or (end < 0 and len(buf) - k >= _MAX_INFO):
            return None
        if end < 0 and not final:
            return False
        self._stop(j)
        self._fence = buf[j:k]
        self._line_start, self._lines, self._code = False, 0, False
        return self._drop(end if end >= 0 else len(buf))

    def _skip_fence(self, level: Level) -> bool:
        """Drop code up to the line that closes it; nothing of it is kept."""
        buf, i = self._buf, self._i
        if not self._line_start:
            end = buf.find("\n", i)
            self._line_start = end >= 0
            return self._drop(end + 1 if end >= 0 else len(buf))
        m = _INDENT.match(buf, i, i + _MAX_RUN)
        assert m is not None
        j = m.end()
        k = self._run(j, self._fence[0])
        final = level >= Level.FLUSH and k - j >= len(self._fence)
        if k >= len(buf) and k - j < _MAX_RUN and not final:
            return self._drop(len(buf)) if level is Level.END else False
        self._line_start = False
        if k - j >= len(self._fence) and (k >= len(buf) or buf[k].isspace()):
            self._fence = ""
            self._line_from = self._base + k
        return self._drop(k)

    def _skip_raw(self, level: Level) -> bool:
        """Drop the content of ``<script>`` or ``<style>``."""
        assert self._skip is not None
        m = self._skip.search(self._buf, self._i)
        if m is not None:
            self._skip = None
            return self._drop(m.end())
        keep = 0 if level is Level.END else 20
        end = max(self._i, len(self._buf) - keep)
        moved = end > self._i
        self._i = end
        return moved

    # -- inline ----------------------------------------------------------------------------------------------

    def _bracket(self, level: Level) -> bool:
        i = self._i
        found = markup.scan(self._buf, i, closed=level is Level.END)
        if found.kind is Kind.MORE:
            return False
        tag = found.tag
        if found.kind is Kind.TAG and tag is not None and (self._clean or tag.name in markup.SPEECH_TAGS):
            self._apply(tag, i, found.end)
            return self._drop(found.end)
        if found.kind is Kind.DROP:
            self._seam = self._seam or (self._base + i, self._base + found.end)
            return self._drop(found.end)
        if found.kind is Kind.AUTOLINK and self._clean:
            return self._drop(i + 1)
        # A sign. The blank after it keeps what follows from ever reading as a tag or a control token.
        self._put("<", i, i + 1)
        self._i = i + 1
        self._glue = (" ", self.at, self.at, False)
        return True

    def _apply(self, tag: Tag, start: int, end: int) -> None:
        """Do what a tag asks for; one that asks for nothing we know is dropped."""
        at = self._base + start
        seam = (at, self._base + end)
        if tag.name in markup.RAW_TAGS and not tag.closing and not tag.empty:
            self._skip = re.compile(rf"</{tag.name}\s{{0,8}}>", re.IGNORECASE)
        if self._tags and tag.name == "break":
            if not tag.closing:
                self._out.append(Break(at, markup.pause_ms(tag)))
                self._glue = self._seam = None
                self._prev = " "
        elif tag.name == "br":
            self._space(start, end, exact=False, char="\n")
        elif tag.name in markup.BLOCK_TAGS:
            self._stop(start)
        elif self._tags and (markup.spells(tag) or (tag.closing and tag.name == "say-as")):
            self._set_spelling(not tag.closing and not tag.empty)
        elif self._tags and tag.name in {"speed", "volume", "prosody"}:
            self._set_manner(tag, at)
            self._seam = self._seam or seam
        elif tag.name not in markup.INLINE_TAGS:
            self._seam = self._seam or seam

    def _set_spelling(self, on: bool) -> None:
        if on != bool(self._spelling):
            if on and self._glue is not None:
                self._out.append(Piece(*self._glue))
                self._glue = None
            self._out.append(Spell(on))
        self._spelling = self.at + MAX_SPELL if on else 0

    def _set_manner(self, tag: Tag, at: int) -> None:
        """``<speed ratio="1.2"/>`` holds from here on; with an end tag it holds in between."""
        if tag.closing:
            for n in range(len(self._outer) - 1, -1, -1):
                if self._outer[n][0] == tag.name:
                    self._manner = self._outer[n][1]
                    del self._outer[n:]
                    break
            else:
                return
        else:
            speed, volume = markup.speed_of(tag), markup.volume_of(tag)
            if not tag.empty and len(self._outer) < _MAX_NESTING:
                self._outer.append((tag.name, self._manner))
            self._manner = (
                self._manner[0] if speed is None else speed,
                self._manner[1] if volume is None else volume,
            )
        self._out.append(Manner(at, *self._manner))

    def _ticks(self, level: Level) -> bool:
        """Inline code keeps its text; three backticks before the end of a line open a block."""
        buf, i = self._buf, self._i
        k = self._run(i, "`")
        if k >= len(buf) and k - i < _MAX_RUN and level < Level.FLUSH:
            return False
        if k - i >= 3 and not self._code:
            fence = self._open_fence(i, level >= Level.FLUSH)
            if fence is not None:
                return fence
        self._code = not self._code
        return self._drop(k)

    def _emphasis(self, level: Level) -> bool:
        """Drop ``*``, ``_`` and ``~~`` that mark words; keep "3 * 4", "2*3" and "snake_case"."""
        buf, i = self._buf, self._i
        char = buf[i]
        k = self._run(i, char)
        before, after = self._prev, buf[k] if k < len(buf) else ""
        settled = level >= Level.FLUSH or (level is Level.RELEASE and char != "~" and not before.isalnum())
        if not after and k - i < _MAX_RUN and not settled:
            return False
        if char == "*":
            product = k - i <= 2 and before.isdigit() and after.isdigit()
            keep = product or (k - i == 1 and before == " " and after == " ")
        elif char == "_":
            keep = k - i < 3 and before.isalnum() and after.isalnum()
        else:
            keep = k - i == 1
        if keep:
            self._put(buf[i:k], i, k)
        return self._drop(k)

    def _entity(self, level: Level) -> bool:
        buf, i = self._buf, self._i
        m = _ENTITY.match(buf, i)
        if m is None:
            if level < Level.FLUSH and _OPEN_ENTITY.fullmatch(buf, i):
                return False
            return self._character(level)
        text = html.unescape(m[0])
        if text == m[0]:
            return self._character(level)
        if len(text) == 1 and is_space(text):
            self._space(i, m.end(), exact=False)
        else:
            self._put_decoded("".join(c for c in text if not self._unwanted(c)), i, m.end())
        return self._drop(m.end())

    def _unwanted(self, char: str) -> bool:
        return is_hidden(char) or extends(char) or is_picture(char)

    def _put_decoded(self, text: str, start: int, end: int) -> None:
        if text:
            self._put(compose(text), start, end, exact=False)
        if text == "<":
            self._glue = (" ", self._base + end, self._base + end, False)

    def _link(self, level: Level) -> bool:
        """``[text](target)`` keeps its text, ``![image](target)`` and citations go."""
        buf, i = self._buf, self._i
        char = buf[i]
        if char == "!":
            whole, start = _IMAGE, _OPEN_IMAGE
        elif char == "]":
            whole, start = _LINK_END, _OPEN_LINK_END
        else:
            whole, start = _CITATION, _OPEN_CITATION
        m = whole.match(buf, i, i + _MAX_LINK)
        if m is not None and not (char == "[" and m[0][1] != "^" and not self._prev.strip()):
            return self._drop(m.end())
        patience = Level.RELEASE if len(buf) == i + 1 and char == "!" else Level.FLUSH
        if m is None and level < patience and len(buf) < i + _MAX_LINK and start.fullmatch(buf, i):
            return False
        if char in "[]":
            return self._drop(i + 1)
        return self._character(level)

    def _backslash(self, level: Level) -> bool:
        buf, i = self._buf, self._i
        if i + 1 >= len(buf):
            if level < Level.FLUSH:
                return False
        elif buf[i + 1] == "\n":
            return self._drop(i + 1)
        elif buf[i + 1] in _ESCAPABLE:
            self._escape = self._base + i + 1
            return self._drop(i + 1)
        return self._character(level)
