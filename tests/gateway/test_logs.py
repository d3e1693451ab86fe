from __future__ import annotations

import ast
import asyncio
import io
import json
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.logs import FIELDS, Formatter, bound, safe, setup

CANARY = "canary-4f1c"
ROOT = Path(__file__).parents[2]


def record(name: str, message: object, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord(name, logging.INFO, "some/where.py", 7, message, args, None)
    made.__dict__.update(extra)
    return made


def as_json(made: logging.LogRecord, **options: bool) -> dict[str, object]:
    line: dict[str, object] = json.loads(Formatter("json", **options).format(made))
    return line


def test_a_record_of_ours_has_its_event_and_its_listed_fields() -> None:
    line = as_json(
        record("sessions.runner", "context ended", context="c1", audio_s=1.5, text="hello", api_key="x")
    )
    assert line["event"] == "context ended"
    assert (line["context"], line["audio_s"]) == ("c1", 1.5)
    assert "text" not in line
    assert "api_key" not in line


def test_nobody_logs_arguments_that_would_not_be_written() -> None:
    """What is interpolated into a message never reaches the log, so it must be a field."""
    wrong = []
    for package in ("gateway", "sessions", "tts_core", "telephony"):
        for path in (ROOT / package).rglob("*.py"):
            for call in ast.walk(ast.parse(path.read_text("utf-8"))):
                if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                    continue
                if call.func.attr not in LOGGING:
                    continue
                if isinstance(call.func.value, ast.Name) and call.func.value.id in {"log", "_log"}:
                    wrong += [(path.name, ast.unparse(argument)) for argument in call.args[1:]]
                for node in call.keywords:
                    if node.arg == "extra" and isinstance(node.value, ast.Dict):
                        names = {str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)}
                        wrong += [(path.name, name) for name in sorted(names - FIELDS)]
    assert wrong == []


LOGGING = {"debug", "info", "warning", "error", "exception", "critical", "log"}


def test_every_field_that_is_logged_is_on_the_list() -> None:
    wrong = []
    for package in ("gateway", "sessions", "tts_core", "telephony"):
        for path in (ROOT / package).rglob("*.py"):
            for call in ast.walk(ast.parse(path.read_text("utf-8"))):
                if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
                    continue
                for node in call.keywords if call.func.attr in LOGGING else ():
                    if node.arg == "extra" and isinstance(node.value, ast.Dict):
                        names = {str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)}
                        wrong += [(path.name, name) for name in sorted(names - FIELDS)]
    assert wrong == []


def test_text_only_when_asked() -> None:
    made = record("sessions.runner", "spoke", text="hello")
    assert as_json(made, log_text=True)["text"] == "hello"


@pytest.mark.parametrize("style", ["json", "text"])
@pytest.mark.parametrize("level", [logging.DEBUG, logging.ERROR])
def test_arguments_and_exception_texts_never_leave(style: str, level: int) -> None:
    formatter = Formatter(style)
    try:
        raise ValueError(CANARY)
    except ValueError as error:
        info = (ValueError, error, error.__traceback__)
    for name in ("gateway.app", "aiohttp.server", "asyncio"):
        made = record(name, "failed on %s", CANARY, peer_name=CANARY)
        made.exc_info, made.levelno = info, level
        line = formatter.format(made)
        assert CANARY not in line
        assert "ValueError" in line
    assert CANARY not in formatter.format(record("aiohttp.server", f"bad line {CANARY}"))


def test_traces_name_modules_not_paths() -> None:
    made = record("gateway.app", "failed")
    try:
        json.loads("{")
    except ValueError as error:
        made.exc_info = (type(error), error, error.__traceback__)
    line = as_json(made)
    assert "json.decoder" in str(line["trace"])
    assert "/" not in str(line["trace"])


@given(st.text(max_size=300), st.sampled_from(["json", "text"]))
def test_no_value_breaks_a_line_or_invents_a_field(value: str, style: str) -> None:
    line = Formatter(style).format(record("gateway.x", "event", context=value))
    assert len(line.splitlines()) == 1
    assert all(char.isprintable() for char in line)
    if style == "json":
        assert set(json.loads(line)) == {"time", "level", "logger", "event", "context"}


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()))
def test_safe_values_are_short_and_printable(value: object) -> None:
    made = safe(value)
    if isinstance(made, str):
        assert len(made) <= 123
        assert made.isprintable()
    else:
        assert made is value


async def test_bound_fields_follow_into_tasks_and_end_with_the_block() -> None:
    formatter = Formatter("json")

    async def task() -> str:
        return formatter.format(record("gateway.x", "inside"))

    with bound(session="s1"), bound(dialect="native"):
        inside = json.loads(await asyncio.create_task(task()))
    assert (inside["session"], inside["dialect"]) == ("s1", "native")
    assert "session" not in json.loads(formatter.format(record("gateway.x", "after")))


def test_setup_routes_everything_through_the_one_formatter(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    before, level, raising = root.handlers[:], root.level, logging.raiseExceptions
    stream = io.StringIO()
    try:
        setup("info", "json", stream=stream)
        logging.getLogger("gateway.t").info("hello", extra={"port": 5})
        logging.getLogger("gateway.t").debug("not this")
        logging.getLogger("other").warning("secret %s", CANARY)
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        logging.raiseExceptions = raising
        logging.captureWarnings(False)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["event"] for line in lines] == ["hello", "library message"]
    assert lines[0]["port"] == 5
    assert CANARY not in stream.getvalue()


def test_no_field_of_a_log_record_is_listed_by_accident() -> None:
    assert not FIELDS & set(record("a", "b").__dict__)
