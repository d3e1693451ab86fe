"""Which rule is tested for which dialect. A rule's tests have its name in theirs: ``..._r5``, ``..._fact_9``.

The numbers are those of the reference on protocols: the bug reports of other servers' users (r), the facts
that shape the design (fact), what the frameworks do and rely on (trap). Where a dialect is missing in a row,
the rule says nothing about it: there is no context to cancel in an HTTP request, no id on Deepgram's wire, no
key in Wyoming. Tests of one dialect are in its own modules; what holds at every door is tried at every door
by ``test_rules_sockets`` and ``test_rules_text``; a framework's services are tried by the module of its name.

====================  ============================================================================
r1                    native cartesia elevenlabs openai deepgram vapi jambonz wyoming
r2                    native cartesia elevenlabs
r3                    deepgram jambonz
r4                    native cartesia elevenlabs deepgram jambonz
r5                    native cartesia elevenlabs deepgram jambonz
r6                    native cartesia elevenlabs deepgram jambonz
r7                    native cartesia elevenlabs deepgram jambonz
r8                    native cartesia elevenlabs deepgram jambonz wyoming
r10                   native cartesia elevenlabs deepgram jambonz wyoming
r11                   native cartesia elevenlabs deepgram jambonz wyoming
r12                   native cartesia elevenlabs openai deepgram vapi jambonz
r13                   native cartesia elevenlabs openai deepgram vapi jambonz wyoming
r14                   native cartesia elevenlabs openai deepgram vapi jambonz wyoming
r15                   native cartesia elevenlabs openai deepgram vapi jambonz wyoming
r16                   native cartesia elevenlabs openai deepgram vapi jambonz wyoming
r17                   native cartesia elevenlabs openai deepgram vapi jambonz wyoming
r19                   native cartesia elevenlabs deepgram jambonz wyoming
r20                   native cartesia elevenlabs deepgram jambonz wyoming
r22                   native cartesia elevenlabs deepgram jambonz wyoming
r23                   native cartesia elevenlabs deepgram jambonz wyoming
r24                   native cartesia elevenlabs openai deepgram vapi jambonz wyoming
r25                   native cartesia elevenlabs
r27                   native cartesia elevenlabs openai deepgram vapi jambonz wyoming
r28                   native cartesia elevenlabs deepgram jambonz wyoming
r29                   cartesia openai
r30                   native cartesia elevenlabs openai deepgram vapi jambonz wyoming
r31                   native cartesia elevenlabs openai deepgram vapi jambonz wyoming
r33                   native cartesia elevenlabs openai deepgram vapi jambonz wyoming
r34                   native cartesia elevenlabs openai deepgram vapi jambonz wyoming
fact_1                cartesia
fact_2                cartesia elevenlabs openai deepgram
fact_3                cartesia elevenlabs node
fact_4                native cartesia elevenlabs deepgram jambonz
fact_5                native cartesia elevenlabs deepgram jambonz
fact_6                native cartesia elevenlabs openai deepgram vapi jambonz wyoming
fact_7                cartesia
fact_8                native cartesia elevenlabs openai deepgram vapi jambonz
fact_9                cartesia
fact_10               elevenlabs
trap_text_feed        native cartesia elevenlabs deepgram jambonz
trap_spacing          native cartesia elevenlabs deepgram jambonz
trap_cleaning         native cartesia elevenlabs deepgram jambonz
trap_end_of_turn      native cartesia elevenlabs deepgram jambonz
trap_keep_alive       elevenlabs
trap_context          native cartesia elevenlabs
trap_interruption     native cartesia elevenlabs deepgram jambonz
trap_receive_timeout  native cartesia elevenlabs deepgram jambonz
trap_ttfb             native cartesia elevenlabs deepgram jambonz
trap_leading_silence  native cartesia elevenlabs deepgram jambonz
trap_word_timestamps  cartesia
trap_unknown_context  native cartesia elevenlabs
trap_reconnect        native cartesia elevenlabs deepgram jambonz
trap_message_limit    native cartesia elevenlabs deepgram jambonz
trap_deflate          native cartesia elevenlabs deepgram jambonz
====================  ============================================================================
"""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path
from types import ModuleType

import aiohttp
import pytest

from tests.peers.gateway import Running, on_gateway

HERE = Path(__file__).parent
ACROSS = ("test_rules_sockets", "test_rules_text", "test_livekit_clients", "test_pipecat_clients")
RULES = {
    f"r{n}" for n in (*range(1, 9), 10, 11, *range(12, 18), 19, 20, *range(22, 26), *range(27, 32), 33, 34)
}
FACTS = {f"fact_{n}" for n in range(1, 11)}
TRAPS = {
    *("trap_text_feed", "trap_spacing", "trap_cleaning", "trap_context", "trap_end_of_turn"),
    *("trap_interruption", "trap_keep_alive", "trap_receive_timeout", "trap_ttfb", "trap_leading_silence"),
    *("trap_word_timestamps", "trap_unknown_context", "trap_reconnect", "trap_message_limit", "trap_deflate"),
}

_RULE = re.compile(r"_(r\d+|fact_\d+|trap_[a-z_]+?)(?=_r\d|_fact|_trap|$)")


def rules_in(name: str) -> set[str]:
    """The rules that a test's name names."""
    return set(_RULE.findall(name))


def matrix() -> dict[str, set[str]]:
    """The table above: rule -> dialects."""
    rows = [line.split() for line in (__doc__ or "").splitlines()]
    return {
        row[0]: set(row[1:]) for row in rows if row and re.fullmatch(r"r\d+|fact_\d+|trap_[a-z_]+", row[0])
    }


def _names(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [node.name for node in ast.walk(tree) if isinstance(node, kinds) and node.name.startswith("test_")]


def _found() -> set[tuple[str, str]]:
    """(rule, dialect) of every test."""
    found: set[tuple[str, str]] = set()
    for path in HERE.glob("test_*.py"):
        if path.stem not in ACROSS:
            dialect = "cartesia" if path == Path(__file__) else path.stem.split("_")[1]
            found |= {(rule, dialect) for name in _names(path) for rule in rules_in(name)}
    for path in (HERE.parent / "wyoming").glob("test_*.py"):
        found |= {(rule, "wyoming") for name in _names(path) for rule in rules_in(name)}
    for module in (import_module(f"tests.gateway.dialects.{name}") for name in ACROSS):
        found |= {
            (rule, dialect)
            for name in _tests(module)
            for rule in rules_in(name)
            for dialect in _of(module, name)
        }
    return found


def _tests(module: ModuleType) -> list[str]:
    return [name for name in vars(module) if name.startswith("test_")]


def _of(module: ModuleType, name: str) -> set[str]:
    """The dialects of a test across them, of the services it is given, or the one that its name names."""
    test = getattr(module, name)
    dialects: set[str] = getattr(test, "dialects", set())
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "parametrize" and "service" in (names := mark.args[0]):
            given = [row if names == "service" else row[list(names).index("service")] for row in mark.args[1]]
            dialects = dialects | {service.partition("-")[0] for service in given}
    return dialects or {dialect for dialect in ("native", "cartesia") if f"_{dialect}_" in name}


@pytest.mark.parametrize("rule", matrix())
def test_the_rule_has_its_tests(rule: str) -> None:
    missing = matrix()[rule] - {dialect for known, dialect in _found() if known == rule}
    assert not missing, f"{rule} has no test for {', '.join(sorted(missing))}"


def test_no_rule_is_left_out() -> None:
    assert set(matrix()) == RULES | FACTS | TRAPS
    assert {rule for rule, _ in _found()} <= set(matrix()), "a test names a rule that is not in the table"


@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("test_x_r1_r2", {"r1", "r2"}),
        ("test_x_r10_fact_4_trap_reconnect", {"r10", "fact_4", "trap_reconnect"}),
        ("test_x_trap_word_timestamps_r3", {"trap_word_timestamps", "r3"}),
        ("test_r2d2_fact", set()),
        ("test_x_r1x", set()),
    ],
)
def test_rules_are_read_from_names(name: str, rules: set[str]) -> None:
    assert rules_in(name) == rules


@on_gateway()
async def test_what_users_of_the_models_makers_service_have_is_here_fact_1(gateway: Running) -> None:
    """The base address, the model's name, no language, raw samples at 22.05, 8 and 16 kHz, the two lists."""
    key = {"Authorization": "Bearer any"}
    async with aiohttp.ClientSession(gateway.url, headers=key) as http:
        async with http.get("/voices?limit=2") as response:
            listed = await response.json()
        assert all({"id", "name", "gender", "language"} <= set(voice) for voice in listed["data"])
        for rate in (22050, 8000, 16000):
            asked = {
                "model_id": "gepard-1.0",
                "transcript": "One two three.",
                "voice": {"mode": "id", "id": listed["data"][0]["id"]},
                "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": rate},
            }
            async with http.post("/tts/bytes", json=asked) as response:
                assert response.status == 200
                assert len(await response.read()) == round(0.6 * rate) * 2
        async with http.get("/health") as response:
            assert response.status == 200
