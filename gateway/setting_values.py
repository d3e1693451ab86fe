"""How a raw value of a setting is read: from the text of a variable, or from what TOML made of it."""

from __future__ import annotations

from collections.abc import Callable


class Bad(ValueError):
    """A value that is not accepted; the text says why."""


def whole(low: int, high: int) -> Callable[[object], int]:
    """Reads a whole number from ``low`` to ``high``."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise Bad("is not a whole number")
        try:
            found = int(value)
        except ValueError:
            raise Bad("is not a whole number") from None
        if not low <= found <= high:
            raise Bad("is out of range")
        return found

    return read


def number(low: float, high: float) -> Callable[[object], float]:
    """Reads a number from ``low`` to ``high``."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise Bad("is not a number")
        try:
            found = float(value)
        except ValueError:
            raise Bad("is not a number") from None
        if not low <= found <= high:  # also false for nan
            raise Bad("is out of range")
        return found

    return read


def flag(value: object) -> bool:
    """On or off, in one of the usual words. Raises Bad."""
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in {"1", "true", "yes", "on"}:
        return True
    if word in {"0", "false", "no", "off"}:
        return False
    raise Bad("is neither on nor off")


def word(*choices: str) -> Callable[[object], str]:
    """Reads one of ``choices``, in either case."""

    def read(value: object) -> str:
        said = value.strip().lower() if isinstance(value, str) else ""
        if said not in choices:
            raise Bad("is not one of these words")
        return said

    return read


def text(value: object) -> str:
    """A line of text without blanks at its ends. Raises Bad."""
    if not isinstance(value, str):
        raise Bad("is not text")
    if any(ord(char) < 32 for char in value):
        raise Bad("contains a control character")
    return value.strip()


def items(value: object) -> list[object]:
    """A list, or a text with commas. Raises Bad."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    if isinstance(value, list):
        return value
    raise Bad("is not a list")


__all__ = ["Bad", "flag", "items", "number", "text", "whole", "word"]
