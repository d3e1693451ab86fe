"""Structured logs that cannot leak.

A record of ours is a constant event name and fields given as ``extra={...}``; only fields on the allow-list
below are written, each made one safe line. Arguments interpolated into messages are never written, nor are
texts of exceptions, because both may hold what a client sent (trust.md S15, S27). A record of a library is
reduced to its logger, level, place and the type of its exception: aiohttp, for one, puts the offending header
line into the exception of a bad request. This holds at every level.

``sessions``, ``tts_core`` and ``telephony`` log by the standard library alone::

    _log = logging.getLogger(__name__)
    _log.info("context done", extra={"context": context_id, "audio_s": 1.25})
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO

FIELDS = frozenset(
    {
        # who
        "session", "session_id", "context", "context_id", "request", "tenant", "key_id", "dialect", "leg",
        "provider", "call", "voice",
        # what
        "reason", "code", "status", "method", "route", "outcome", "signal", "state", "engine",
        "revision", "origin_ok", "format", "version", "setting", "did_you_mean", "worker", "pid",
        "peer",
        # how much
        "ms", "seconds", "audio_s", "first_audio_ms", "queue_ms", "rtf", "underruns", "characters",
        "segments", "bytes", "samples", "count", "contexts", "sockets", "lag_ms", "port", "workers",
        "retry_after", "xrt", "free", "queued", "alive", "attempt", "streams", "requests", "frames",
        "after_s", "again",
    }
)  # fmt: skip
OURS = ("gateway", "sessions", "tts_core", "telephony", "voxwire")
_LONGEST = 200
_bound: ContextVar[dict[str, object]] = ContextVar("voxwire_log_fields", default={})  # noqa: B039 - never mutated


@contextmanager
def bound(**values: object) -> Iterator[None]:
    """Add fields to every record made in this block and in tasks started from it."""
    token = _bound.set({**_bound.get(), **values})
    try:
        yield
    finally:
        _bound.reset(token)


def safe(value: object) -> object:
    """A value fit for a log line: numbers and flags as they are, everything else short one-line text."""
    if isinstance(value, bool | int | float) or value is None:
        return value
    text = str(value)
    if len(text) > _LONGEST:
        text = text[:_LONGEST] + "..."
    return "".join(char if char.isprintable() else "?" for char in text)


class Formatter(logging.Formatter):
    """One record, one line: ``text`` is key=value for people, ``json`` for machines.

    ``log_text`` additionally lets the field ``text`` (what is spoken) through.
    """

    def __init__(self, style: str = "text", *, log_text: bool = False) -> None:
        super().__init__()
        self._json = style == "json"
        self._allowed = FIELDS | {"text"} if log_text else FIELDS

    def format(self, record: logging.LogRecord) -> str:
        """Make the line; never raises on odd records."""
        line: dict[str, object] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if record.name.partition(".")[0] in OURS:
            line["event"] = safe(record.msg)
            given: dict[str, Any] = {**_bound.get(), **record.__dict__}
            named = sorted(self._allowed & given.keys())
            line.update((name, safe(given[name])) for name in named if given[name] is not None)
        else:
            line["event"] = "library message"
            line["at"] = f"{record.module}:{record.lineno}"
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            line["trace"] = _trace(record.exc_info[2])
        if self._json:
            return json.dumps(line, ensure_ascii=True)
        head = f"{line.pop('time')} {line.pop('level')!s:7} {line.pop('logger')}: {line.pop('event')}"
        return head + "".join(f" {name}={_shown(value)}" for name, value in line.items())


def _shown(value: object) -> str:
    text = str(value)
    return json.dumps(text) if not text or any(char in ' "=\\' for char in text) else text


def _trace(traceback: Any) -> str:
    """Where it happened, innermost last: modules and lines only, no source, no values, no paths."""
    steps: list[str] = []
    while traceback is not None:
        frame = traceback.tb_frame
        steps.append(f"{frame.f_globals.get('__name__', '?')}:{traceback.tb_lineno}")
        traceback = traceback.tb_next
    return " > ".join(steps[-6:])


def setup(level: str, style: str, *, log_text: bool = False, stream: TextIO | None = None) -> logging.Handler:
    """Send all logging through the one handler (standard error by default); replaces what was there."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(Formatter(style, log_text=log_text))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(True)
    logging.raiseExceptions = False  # a broken record must not print its arguments
    return handler
