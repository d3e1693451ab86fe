"""Text to tokens, as the published runner does it: no special tokens added, nothing normalised by us."""

from __future__ import annotations

from pathlib import Path

import tokenizers

from tts_core.errors import SettingsError

from .config import GepardConfig

MAX_BYTES = 64 << 20
"""The published file is about 20 MB."""


class Tokenizer:
    """The tokenizer of a checkpoint. Safe for threads.

    The names of special tokens are taken as ordinary text: whoever writes ``<|im_end|>`` into a text gets it
    spelled, and cannot end it.
    """

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        self._inner = inner

    @classmethod
    def read(cls, path: Path, config: GepardConfig) -> Tokenizer:
        """Read ``tokenizer.json``.

        Raises:
            SettingsError: it cannot be read, or has tokens that the model has no row for.
        """
        try:
            if path.stat().st_size > MAX_BYTES:
                raise SettingsError(f"{path.name} is too large to be a tokenizer")
            data = path.read_bytes()
        except OSError:
            raise SettingsError(f"the checkpoint has no readable {path.name}") from None
        try:
            inner = tokenizers.Tokenizer.from_buffer(data)
        except Exception:
            # The library raises plain Exception; its text quotes the file.
            raise SettingsError(f"{path.name} is not a tokenizer") from None
        inner.no_padding()
        inner.no_truncation()
        inner.encode_special_tokens = True
        if max(inner.get_vocab().values(), default=0) >= config.backbone.vocab_size:
            raise SettingsError(f"{path.name} has tokens that the model has no row for")
        return cls(inner)

    def encode(self, text: str) -> list[int]:
        """Token ids of ``text``; none for an empty one."""
        ids: list[int] = self._inner.encode(text, add_special_tokens=False).ids
        return ids
