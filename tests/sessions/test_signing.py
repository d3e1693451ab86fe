"""Signed documents: any change is seen."""

from __future__ import annotations

import base64
import json

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from sessions.secret import DeploymentSecret
from sessions.signing import Signed, Signer, canonical, verify

SIGNER = Signer(DeploymentSecret(b"deployment secret of these tests"))


class Paper(Signed, frozen=True):
    text: str
    number: int
    names: tuple[str, ...] = ()


@given(st.text(), st.integers(-(2**53), 2**53), st.lists(st.text(max_size=5), max_size=3))
def test_signed_papers_verify_and_survive_json(text: str, number: int, names: list[str]) -> None:
    paper = SIGNER.sign("paper", Paper(text, number, tuple(names)))
    again = msgspec.json.decode(msgspec.json.encode(paper), type=Paper)
    assert SIGNER.verify("paper", again)
    assert not SIGNER.verify("other paper", again)
    assert not SIGNER.verify("paper", msgspec.structs.replace(again, number=number + 1))
    assert not SIGNER.verify("paper", msgspec.structs.replace(again, text=text + "x"))
    assert not SIGNER.verify("paper", msgspec.structs.replace(again, names=("", *names)))


def test_the_signature_itself_has_one_spelling() -> None:
    paper = SIGNER.sign("paper", Paper("a", 1))
    for change in (
        "",
        "x",
        paper.signature[:-1],
        paper.signature + "=",
        paper.signature + "A",
        "é",
        "!" * 86,
    ):
        assert not SIGNER.verify("paper", msgspec.structs.replace(paper, signature=change))
    raw = bytearray(base64.urlsafe_b64decode(paper.signature + "=="))
    for i in range(64):
        raw[i] ^= 1
        text = base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
        assert not SIGNER.verify("paper", msgspec.structs.replace(paper, signature=text))
        raw[i] ^= 1
    assert not SIGNER.verify("paper", msgspec.structs.replace(paper, kid="0" * 16))


def test_another_deployment_is_another_key() -> None:
    other = Signer(DeploymentSecret(b"another deployment's very secret"))
    paper = SIGNER.sign("paper", Paper("a", 1))
    assert not other.verify("paper", paper)
    assert Signer(DeploymentSecret(b"deployment secret of these tests")).verify("paper", paper)


def test_anybody_can_verify_with_the_published_bytes_and_a_json_library() -> None:
    paper = SIGNER.sign("paper", Paper("Grüße", 7, ("b", "a")))
    public = Ed25519PublicKey.from_public_bytes(SIGNER.public_bytes)
    assert verify(public, "paper", paper)
    fields = json.loads(msgspec.json.encode(paper))
    signature = base64.urlsafe_b64decode(fields["signature"] + "==")
    fields["signature"] = ""
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    public.verify(signature, b"paper\n" + text.encode())


def test_canonical_is_sorted_at_every_depth() -> None:
    assert canonical({"b": {"d": 1, "c": 2}, "a": [1]}) == b'{"a":[1],"b":{"c":2,"d":1}}'
