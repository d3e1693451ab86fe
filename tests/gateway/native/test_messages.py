from __future__ import annotations

import json
import re
from importlib.resources import files

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.native import messages as m
from gateway.native.outbox import ResumeGap
from gateway.speaking import CannotClone
from sessions.session import UnknownContext
from tts_core import errors


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"type":"open","context":""}', "context"),
        ('{"type":"open","context":"a","speed":9}', "speed"),
        ('{"type":"open","context":"a","format":{"encoding":"mp3"}}', "format.encoding"),
        ('{"type":"text","context":"a"}', "text"),
        ('{"type":"text","context":5,"text":"x"}', "context"),
        ('{"type":"nope"}', "nope"),
        ("[]", "object"),
        ("{", ""),
    ],
)
def test_faults_are_named(text: str, field: str) -> None:
    with pytest.raises(msgspec.DecodeError) as error:
        m.decode(text)
    assert field in str(error.value)


def test_unknown_fields_are_ignored() -> None:
    assert m.decode('{"type":"cancel","context":"a","later":1}') == m.Cancel("a")


@given(st.text(max_size=200))
def test_any_text_is_a_message_or_a_decode_error(text: str) -> None:
    try:
        m.decode(text.encode("utf-8", "surrogatepass"))
    except msgspec.DecodeError:
        pass
    else:
        assert json.loads(text)["type"]


def test_the_schema_names_every_message_of_both_directions() -> None:
    schema = m.schema()
    definitions = schema["$defs"]
    for union, side in ((m.Incoming, "FromClient"), (m.Outgoing, "FromGateway")):
        names = {t.__name__ for t in union.__args__}
        assert names <= set(definitions)
        assert {ref["$ref"].rsplit("/", 1)[1] for ref in definitions[side]["anyOf"]} == names


PAGE = files("gateway.native").joinpath("PROTOCOL.md").read_text("utf-8")


def test_the_documentation_names_every_code_that_a_client_may_see() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    ours = {kind.code for kind in kinds if issubclass(kind, errors.VoxwireError)}
    inside = {errors.LegError.code, errors.PeerViolation.code, errors.SettingsError.code}
    paragraph = next(part for part in PAGE.split("\n\n") if part.startswith("`code` of an `error`"))
    told = set(re.findall(r"`([a-z]+(?:_[a-z]+)*)`", paragraph)) - {"code", "error", "retry_after"}
    assert told == ours - inside | {UnknownContext.code, ResumeGap.code, CannotClone.code}


def test_the_documentation_names_every_message() -> None:
    for union in (m.Incoming, m.Outgoing):
        for kind in union.__args__:
            assert f"`{kind.__struct_config__.tag}`" in PAGE or f'"{kind.__struct_config__.tag}"' in PAGE


def test_terminal_is_left_out_unless_true() -> None:
    assert json.loads(m.encode(m.ErrorMessage("a", "b"))) == {"type": "error", "code": "a", "message": "b"}
