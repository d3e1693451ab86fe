from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twilio.request_validator import RequestValidator  # type: ignore[import-untyped]

from telephony.media_streams.signature import public_url, sign, validate
from tts_core.errors import BadRequest, SettingsError

TOKEN = "12345"
URL = "wss://voice.example.com/media/twilio"


def official(url: str, params: dict[str, str] | None = None, token: str = TOKEN) -> str:
    signature = RequestValidator(token).compute_signature(url, params or {})
    assert isinstance(signature, str)
    return signature


def test_twilios_own_signature_is_taken() -> None:
    assert validate(TOKEN, URL, official(URL))
    params = {"CallSid": "CA1", "To": "+1", "From": "+2"}
    assert validate(
        TOKEN,
        "https://voice.example.com/answer",
        official("https://voice.example.com/answer", params),
        params,
    )


@given(
    path=st.text(st.characters(codec="ascii", min_codepoint=33, max_codepoint=126), max_size=30),
    token=st.text(min_size=1, max_size=40),
    params=st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4),
)
def test_we_sign_as_the_official_package_does(path: str, token: str, params: dict[str, str]) -> None:
    try:
        token.encode()
        "".join([*params, *params.values()]).encode()
    except UnicodeEncodeError:
        return
    url = f"wss://voice.example.com/{path}"
    assert sign(token, url, params) == official(url, params, token)
    assert validate(token, url, official(url, params, token), params)


@pytest.mark.parametrize(
    "signed",
    [
        "https://voice.example.com/media/twilio",
        "wss://voice.example.com/media/twilio/",
        "wss://voice.example.com/media/twilio?a=b",
        "wss://other.example.com/media/twilio",
        "wss://voice.example.com:80/media/twilio",
        "wss://voice.example.com:8443/media/twilio",
    ],
)
def test_another_url_is_refused(signed: str) -> None:
    assert not validate(TOKEN, URL, official(signed))


def test_the_standard_port_makes_no_difference() -> None:
    with_port = "wss://voice.example.com:443/media/twilio"
    assert validate(TOKEN, URL, official(with_port))
    assert validate(TOKEN, with_port, official(URL))
    other = "wss://voice.example.com:8443/media/twilio"
    assert validate(TOKEN, other, official(other))
    assert not validate(TOKEN, other, official(URL))


@pytest.mark.parametrize(
    "signature", [None, "", "nonsense", "é", "\udc80", official(URL)[:-1], official(URL) + "="]
)
def test_wrong_signatures_are_refused(signature: str | None) -> None:
    assert not validate(TOKEN, URL, signature)


def test_another_or_no_token_is_refused() -> None:
    assert not validate("other", URL, official(URL))
    assert not validate("", URL, official(URL, token=""))


def test_the_url_is_made_of_the_configured_origin() -> None:
    assert public_url("wss://voice.example.com", "/media/twilio") == URL
    assert public_url("https://voice.example.com/", "/media/twilio?a=%20b") == URL + "?a=%20b"
    assert public_url("wss://voice.example.com:8443", "/") == "wss://voice.example.com:8443/"
    assert public_url("http://127.0.0.1:8080", "/x") == "ws://127.0.0.1:8080/x"


@pytest.mark.parametrize(
    "origin", ["", "voice.example.com", "ftp://x", "wss://", "wss://x/path", "wss://x?y"]
)
def test_an_origin_that_is_none_is_refused(origin: str) -> None:
    with pytest.raises(SettingsError):
        public_url(origin, "/media/twilio")


def test_a_target_that_is_no_path_is_refused() -> None:
    with pytest.raises(BadRequest, match="path"):
        public_url("wss://voice.example.com", "@evil.example.com/")
