# ruff: noqa: PLR0911 - a rule is easiest to check as a list of cases, each with its answer
"""Turns what a client sends, in pieces of any size, into clean text with offsets.

The cleaner is an incremental lexer: ``items`` yields what the text so far has decided and stops where more
text could still change the reading. A decision depends on the text alone and on a bounded look-ahead, never
on how the text was cut into messages, and is never taken back.

Markdown after CommonMark 0.31 and GFM as language models write it, which is laxer than the standard: only
what is not spoken is recognised. With ``clean`` off everything stays but what no option lets through: control
bidi, zero-width characters and surrogates, control tokens of language models, phoneme blocks and speech tags.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

from . import markdown, markup
from .characters import MAX_MARKS, ORDINARY, compose, extends, is_hidden, is_picture, is_space
from .items import Break, Item, Level, Manner, Piece, Spell, Stop
from .markdown import Block
from .markup import Kind, Tag
from .segment import TextOptions

_CHUNK = 1024
"""Longest piece: bounds the work on what waits behind it."""
MAX_SPELL = 200
"""Source characters after which an open ``<spell>`` ends by itself."""
_MAX_INDENT = 200
_MAX_NESTING = 16
_WRAP = 50
"""A line this long that ends without a blank line is taken to be wrapped, a shorter one to end there."""

_TIGHT = frozenset(".,;:!?…)")
"""Signs that stand close to the word before them: the blank before an emoji goes with it."""
_INDENT = re.compile(r"[ \t\r\f\v]*")


class Cleaner:
    """The lexer. ``feed`` text, then read ``items``; all before source offset ``at`` is decided."""

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
        self._heading = False
        self._table = False
        self._code = False
        self._escape: int | None = None
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
        if self._line_start or self._fence or self._row or self._spelling:
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
        if self._i >= len(self._buf) and not self._fence:
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

    # -- one decision ----------------------------------------------------------------------------------

    def _step(self, level: Level) -> bool:
        """Take one decision, put its items out and move on; False if more text is needed for it."""
        if self._fence:
            return self._skip_fence(level)
        if self._row:
            return self._skip_row()
        if self._spelling and self.at >= self._spelling:
            self._set_spelling(False, self.at)
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

    # -- output ----------------------------------------------------------------------------------------

    def _put(self, text: str, start: int, end: int, *, exact: bool | None = None) -> None:
        """Put out visible text from the buffer's ``[start, end)``, after any white space due before it."""
        base = self._base
        if self._glue is not None:
            if self._seam is None or text[0] not in _TIGHT:
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

    # -- lines -----------------------------------------------------------------------------------------

    def _blank(self) -> bool:
        m = _INDENT.match(self._buf, self._i)
        assert m is not None
        self._space(self._i, self._i + 1, exact=self._buf[self._i] == " ")
        return self._drop(m.end())

    def _newline(self) -> bool:
        i = self._i
        if self._heading:
            self._stop(i)
        self._heading = self._code = False
        short = self._base + i - self._line_from < _WRAP
        self._space(i, i + 1, exact=False, char="\n" if short else " ")
        self._line_start, self._lines = True, 1
        self._line_from = self._base + i + 1
        return self._drop(i + 1)

    def _begin_line(self, level: Level) -> bool:
        """Look at the first characters of a line: blank lines, then block markers, then plain text."""
        buf, i = self._buf, self._i
        m = _INDENT.match(buf, i, i + _MAX_INDENT)
        assert m is not None
        j = m.end()
        if j - i == _MAX_INDENT or (j == len(buf) and level >= Level.FLUSH):
            self._space(i, i + 1, exact=False)
            return self._drop(j)
        if j == len(buf):
            return False
        if buf[j] == "\n":
            self._lines += 1
            if self._lines == 2:
                self._stop(j + 1)
            self._table = False
            self._line_from = self._base + j + 1
            return self._drop(j + 1)
        kind, end = Block.PLAIN, j
        if self._clean and not self._spelling:
            kind, end = markdown.block(buf, j, level, table=self._table)
        if kind is Block.MORE:
            return False
        if kind is Block.SKIP:
            return self._drop(end)
        self._line_start, self._lines = False, 0
        if kind is Block.PLAIN:
            self._table = False
            if j > i:
                self._space(i, i + 1, exact=False)
            return self._drop(j)
        self._stop(j)
        self._table = kind in (Block.ROW, Block.DELIMITER)
        self._row = kind is Block.ROW
        self._heading = kind is Block.HEADING
        if kind is Block.FENCE:
            self._open_fence(j)
        return self._drop(end)

    # -- what is skipped whole -------------------------------------------------------------------------

    def _skip_row(self) -> bool:
        end = self._buf.find("\n", self._i)
        self._row = end < 0
        return self._drop(end if end >= 0 else len(self._buf))

    def _open_fence(self, at: int) -> None:
        self._fence = self._buf[at : markdown.run(self._buf, at)]
        self._line_start = self._code = False

    def _skip_fence(self, level: Level) -> bool:
        """Drop code up to the line that closes it; nothing of it is kept."""
        buf, i = self._buf, self._i
        if not self._line_start:
            end = buf.find("\n", i)
            self._line_start = end >= 0
            return self._drop(end + 1 if end >= 0 else len(buf))
        closes, end = markdown.fence_end(buf, i, self._fence, level)
        if closes is None:
            return self._drop(len(buf)) if level is Level.END else False
        self._line_start = False
        if closes:
            self._fence = ""
            self._line_from = self._base + end
        return self._drop(end)

    # -- inline ----------------------------------------------------------------------------------------

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
            address = self._buf[i + 1 : found.end - 1]
            if not (address.isascii() and address.isprintable()):
                return self._drop(i + 1)
            self._put(address, i + 1, found.end - 1)
            return self._drop(found.end)
        # A sign. The blank after it keeps what follows from ever reading as a tag or a control token.
        self._put("<", i, i + 1)
        self._i = i + 1
        self._glue = (" ", self.at, self.at, False)
        return True

    def _apply(self, tag: Tag, start: int, end: int) -> None:
        """Do what a tag asks for; one that asks for nothing we know is dropped."""
        at = self._base + start
        seam = (at, self._base + end)
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
            self._set_spelling(not tag.closing and not tag.empty, self._base + end)
        elif self._tags and tag.name in {"speed", "volume", "prosody"}:
            self._set_manner(tag, at)
            self._seam = self._seam or seam
        elif tag.name not in markup.INLINE_TAGS:
            self._seam = self._seam or seam

    def _set_spelling(self, on: bool, at: int) -> None:
        if on != bool(self._spelling):
            if on and self._glue is not None:
                self._out.append(Piece(*self._glue))
                self._glue = None
            self._out.append(Spell(on))
        self._spelling = at + MAX_SPELL if on else 0

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
        kind, end = (Block.PLAIN, i) if self._code else markdown.fence(buf, i, level)
        if kind is Block.FENCE:
            self._stop(i)
            self._open_fence(i)
            return self._drop(end)
        end = markdown.run(buf, i)
        if kind is Block.MORE or (markdown.may_grow(buf, i, end) and level < Level.FLUSH):
            return False
        self._code = not self._code
        return self._drop(end)

    def _emphasis(self, level: Level) -> bool:
        buf, i = self._buf, self._i
        end = markdown.run(buf, i)
        before, after = self._prev, buf[end : end + 1]
        # A pause settles a closing mark, but not what may be "2*3" or "snake_case" cut apart.
        settled = level >= Level.FLUSH or (level is Level.RELEASE and buf[i] != "~" and not before.isalnum())
        if markdown.may_grow(buf, i, end) and not settled:
            return False
        if markdown.is_sign(buf[i], end - i, before, after):
            self._put(buf[i:end], i, end)
        return self._drop(end)

    def _entity(self, level: Level) -> bool:
        buf, i = self._buf, self._i
        m = markdown.ENTITY.match(buf, i)
        if m is None:
            if level < Level.FLUSH and markdown.OPEN_ENTITY.fullmatch(buf, i):
                return False
            return self._character(level)
        text = html.unescape(m[0])
        if text == m[0]:
            return self._character(level)
        if len(text) == 1 and is_space(text):
            self._space(i, m.end(), exact=False)
            return self._drop(m.end())
        text = compose("".join(c for c in text if not (is_hidden(c) or extends(c) or is_picture(c))))
        if text:
            self._put(text, i, m.end(), exact=False)
        if text == "<":
            self._glue = (" ", self._base + m.end(), self._base + m.end(), False)
        return self._drop(m.end())

    def _link(self, level: Level) -> bool:
        """``[text](target)`` keeps its text, ``![image](target)`` and citations go."""
        buf, i = self._buf, self._i
        char = buf[i]
        verdict = markdown.bracket(buf, i, after_word=bool(self._prev.strip()))
        patience = Level.RELEASE if len(buf) == i + 1 and char == "!" else Level.FLUSH
        if verdict is None and level < patience:
            return False
        if verdict:
            return self._drop(verdict)
        return self._drop(i + 1) if char in "[]" else self._character(level)

    def _backslash(self, level: Level) -> bool:
        buf, i = self._buf, self._i
        if i + 1 == len(buf):
            return False if level < Level.FLUSH else self._character(level)
        if buf[i + 1] in markdown.ESCAPABLE:
            self._escape = self._base + i + 1
            return self._drop(i + 1)
        return self._drop(i + 1) if buf[i + 1] == "\n" else self._character(level)
