"""Text to phonemes, word by word.

Uses the pronouncer of hibari-tts (lexicon, part-of-speech tags, a small net for unknown words), but keeps
which word every phoneme came from, reads no inline phoneme markup out of untrusted text, and never splits
sentences at abbreviations: a segment is read as a whole, so that context rules see all of it.
"""

from __future__ import annotations

import gzip
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from hibari.g2p import G2P
from hibari.g2p.lexicon import Lexicon
from hibari.g2p.normalize import normalize
from hibari.g2p.tagger import Tagger
from hibari.g2p.token import Tok
from hibari.g2p.tokenize import Tokenizer

log = logging.getLogger(__name__)

PAUSES = frozenset(';:,.!?—…"()“”')
"""Phoneme characters that are pauses or melody, not speech."""

# The package's abbreviation table reads "no." as "number" and the like even at the end of a sentence ("I said
# no."). These mean an abbreviation only before a number.
_NOT_ABBREVIATED = re.compile(r"(?<!\w)((?:no|nos|vol|fig|ch|ed|eds|est|pp)|(?<=the )Sun)\.(?!\s*\d)")

# Larger numbers have no name in the package's table and make it fail; they are read digit by digit.
_HUGE = re.compile(r"\d(?:,?\d){14,}")


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word as it is read: its text after the pronouncer's own rewriting and its phonemes."""

    text: str
    phonemes: str

    @property
    def speech(self) -> int:
        """Number of phoneme characters that are speech."""
        return sum(c not in PAUSES and c != " " for c in self.phonemes)


class Pronouncer:
    """Reads text in one kind of English. Loading takes about 0.3 s; not for use from several threads."""

    def __init__(self, assets: Path, *, british: bool = False) -> None:
        self._g2p = _FastG2P(assets, british=british)
        # Loads the net for unknown words now and not within the first call that needs it.
        self.words("Zyqovrian.")

    def words(self, text: str) -> list[SpokenWord]:
        """Words of ``text`` in order; those without any phoneme are left out."""
        text = _HUGE.sub(lambda m: " ".join(m.group().replace(",", "")), text)
        text = _NOT_ABBREVIATED.sub(r"\1 .", text)
        try:
            return self._read(normalize(text))
        except Exception:
            # Text of strangers: whatever its tables cannot take, the rest is still read.
            log.warning("the pronouncer failed on a text; reading it word by word", exc_info=True)
        out: list[SpokenWord] = []
        for word in text.split():
            try:
                out.extend(self._read(word))
            except Exception:
                log.warning("a word was left out: the pronouncer cannot read it")
        return out

    def _read(self, ready: str) -> list[SpokenWord]:
        pairs = self._g2p.tokenizer(ready)
        if not pairs:
            return []
        tags = self._g2p.tagger([t for t, _ in pairs])
        tokens = self._g2p.phonemize_tokens(
            [Tok(t, tag, space) for (t, space), tag in zip(pairs, tags, strict=True)]
        )
        out: list[SpokenWord] = []
        written, phonemes = "", ""
        for token in tokens:
            written += token.text
            phonemes += token.phonemes or ""
            if token.whitespace:
                _add(out, written, phonemes)
                written, phonemes = "", ""
        _add(out, written, phonemes)
        return out


def _add(out: list[SpokenWord], written: str, phonemes: str) -> None:
    phonemes = phonemes.strip()
    if phonemes:
        out.append(SpokenWord(written, phonemes))


class _FastG2P(G2P):  # type: ignore[misc]
    """The package's G2P with its tables read by a faster JSON decoder: it halves the start of a worker."""

    def __init__(self, assets: Path, *, british: bool) -> None:
        accent = "gb" if british else "us"
        self.lexicon = Lexicon(
            _table(assets / f"lexicon_{accent}_gold.json.gz"),
            _table(assets / f"lexicon_{accent}_silver.json.gz"),
            british,
        )
        self.tokenizer = Tokenizer(msgspec.json.decode((assets / "tokenizer_exceptions.json").read_bytes()))
        self.tagger = Tagger(_table(assets / "tagger.json.gz"))
        self._oov = None
        self.unk = ""
        self.british = british


def _table(path: Path) -> Any:
    return msgspec.json.decode(gzip.decompress(path.read_bytes()))


def vocabulary(assets: Path) -> Mapping[str, int]:
    """Phoneme character -> id of the network."""
    return msgspec.json.decode((assets / "vocab.json").read_bytes(), type=dict[str, int])
