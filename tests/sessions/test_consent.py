"""Consent records: what may be stated, what is covered, what a change does."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.consent import DOMAIN, ConsentRecord, ConsentTerms, How, Reach, check_terms, is_id, new_record
from sessions.secret import DeploymentSecret
from sessions.signing import Signer
from tts_core.errors import BadRequest

SIGNER = Signer(DeploymentSecret(b"deployment secret of these tests"))
TERMS = ConsentTerms(
    subject="person:17",
    kind=Reach.PERMANENT,
    purposes=("calls", "files"),
    languages=("en", "de-DE"),
    how=How.WRITTEN,
    evidence="5f" * 32,
    until=2000.0,
)
PAPER = frozenset({How.WRITTEN, How.LICENSED})


def _refusal(terms: ConsentTerms) -> str | None:
    try:
        check_terms(terms, verified=PAPER, now=1000.0)
    except BadRequest as error:
        return error.field
    return None


def test_good_terms() -> None:
    assert _refusal(TERMS) is None
    assert _refusal(replace(TERMS, until=None, languages=("*",), how=How.LICENSED)) is None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"subject": ""}, "subject"),
        ({"subject": "Ida Müller"}, "subject"),
        ({"subject": "x" * 129}, "subject"),
        ({"evidence": "see attachment"}, "evidence"),
        ({"evidence": "5F" * 32}, "evidence"),
        ({"purposes": ()}, "purposes"),
        ({"purposes": ("all sorts",)}, "purposes"),
        ({"purposes": ("calls",) * 17}, "purposes"),
        ({"languages": ()}, "languages"),
        ({"languages": ("english",)}, "languages"),
        ({"until": 1000.0}, "until"),
        ({"until": float("nan")}, "until"),
        ({"until": float("inf")}, "until"),
    ],
)
def test_bad_terms_are_named(change: dict[str, object], field: str) -> None:
    assert _refusal(replace(TERMS, **change)) == field  # type: ignore[arg-type]


@pytest.mark.parametrize("how", [How.SPOKEN, How.SELF_VOICE])
def test_what_needs_ears_says_so(how: How) -> None:
    with pytest.raises(
        BadRequest, match=r"needs the verifier.*lacks speech recognition.*use licensed or written"
    ) as error:
        check_terms(replace(TERMS, how=how), verified=PAPER, now=1000.0)
    assert error.value.field == "how"
    check_terms(replace(TERMS, how=how), verified=frozenset(How), now=1000.0)


def test_a_record_holds_until_its_end_or_revocation() -> None:
    record = new_record(SIGNER, "acme", TERMS, 1000.0)
    assert is_id(record.id)
    assert SIGNER.verify(DOMAIN, record)
    assert record.holds(1999.9)
    assert not record.holds(2000.0)
    assert not msgspec.structs.replace(record, revoked_at_ms=1).holds(1500.0)
    endless = new_record(SIGNER, "acme", replace(TERMS, until=None), 1000.0)
    assert endless.holds(1e10)


@pytest.mark.parametrize(
    ("changes", "use", "covered"),
    [
        ({}, {"kind": Reach.PERMANENT}, True),
        ({}, {"kind": Reach.SESSION, "language": "en-US", "purpose": "calls"}, True),
        ({}, {"kind": Reach.SESSION, "language": "DE-de"}, True),
        ({}, {"kind": Reach.SESSION, "language": "de-AT"}, False),
        ({}, {"kind": Reach.SESSION, "language": "eng"}, False),
        ({}, {"kind": Reach.SESSION, "language": "fr"}, False),
        ({}, {"kind": Reach.SESSION, "purpose": "advertising"}, False),
        ({"kind": Reach.SESSION}, {"kind": Reach.SESSION}, True),
        ({"kind": Reach.SESSION}, {"kind": Reach.PERMANENT}, False),
        ({"languages": ("*",)}, {"kind": "session", "language": "fr"}, True),
    ],
)
def test_what_is_covered(changes: dict[str, object], use: dict[str, str], covered: bool) -> None:
    record = new_record(SIGNER, "acme", replace(TERMS, **changes), 1000.0)  # type: ignore[arg-type]
    assert record.covers(**use) is covered


@given(st.data())
def test_any_change_of_any_field_breaks_the_signature(data: st.DataObject) -> None:
    record = new_record(SIGNER, "acme", TERMS, 1000.0)
    field = data.draw(st.sampled_from([f.name for f in msgspec.structs.fields(ConsentRecord)]))
    old = getattr(record, field)
    strategies = {str: st.text(max_size=70), int: st.integers(0, 2**53), type(None): st.integers(0, 2**53)}
    new = data.draw(
        st.lists(st.text(max_size=3), max_size=3).map(tuple)
        if isinstance(old, tuple)
        else strategies[type(old)]
    )
    changed = msgspec.structs.replace(record, **{field: new})
    assert SIGNER.verify(DOMAIN, changed) is (new == old)


def test_ids() -> None:
    for bad in ("", "cn_", "cn_" + "G" * 32, "vc_" + "0" * 32, "cn_" + "0" * 32 + "\n", "I have consent"):
        assert not is_id(bad)
