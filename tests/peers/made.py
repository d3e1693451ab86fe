"""What a gateway of this process made for its clients, turn by turn, to compare with what they got."""

from __future__ import annotations

import base64
import json
from collections.abc import Hashable
from typing import Any

ENDS = frozenset({"done", "Flushed", "Cleared", "SpeechMetadata", "SpeechInterrupted"})
"""Types of messages that end a turn: Cartesia's, then those of both of Deepgram's protocols."""


class Made:
    """Audio by turn, the ends of turns in order, messages of errors, and the sockets that carried anything.

    A turn is a context where the protocol has them (Cartesia, ElevenLabs), the part of a socket up to the end
    of a turn where it has not (Deepgram), and a response over HTTP (OpenAI).
    """

    def __init__(self) -> None:
        self.audio: dict[Hashable, bytes] = {}
        self.ends: list[Hashable] = []
        self.errors: list[Any] = []
        self.sockets: set[Hashable] = set()

    def note(self, data: str | bytes) -> None:
        """A message of a socket."""
        if not isinstance(data, str):
            self.hear(len(self.ends), data)
            return
        message = json.loads(data)
        kind = message.get("type")
        if "error" in message or kind == "Error":
            self.errors.append(message)
        context = message.get("contextId") or message.get("context_id") or len(self.ends)
        if sound := message.get("audio") or message.get("data"):
            self.hear(context, base64.b64decode(sound))
        # The turn-based protocol of Deepgram goes on after its Flushed.
        if message.get("isFinal") or (kind in ENDS and (kind != "Flushed" or "speech_id" not in message)):
            self.ends.append(context)

    def hear(self, turn: Hashable, sound: bytes) -> None:
        """Audio of a turn."""
        self.audio[turn] = self.audio.get(turn, b"") + sound
