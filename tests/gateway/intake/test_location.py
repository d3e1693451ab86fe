from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from gateway.intake.location import MOST, HostList, Location, parse_location
from gateway.intake.refusal import ReferenceRefused
from tts_core.errors import SettingsError


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("https://media.example.com", Location("media.example.com", 443, "/", "")),
        ("https://MEDIA.Example.com/", Location("media.example.com", 443, "/", "")),
        ("https://media.example.com:8443/a.wav", Location("media.example.com", 8443, "/a.wav", "")),
        (
            "https://media.example.com/a%20b/c?x=1&y=%2F?",
            Location("media.example.com", 443, "/a%20b/c", "x=1&y=%2F?"),
        ),
        ("https://media.example.com/@evil.org/x", Location("media.example.com", 443, "/@evil.org/x", "")),
        ("https://media.example.com?x", Location("media.example.com", 443, "/", "x")),
        ("https://xn--bcher-kva.example/a", Location("xn--bcher-kva.example", 443, "/a", "")),
        ("https://1.example.com/a", Location("1.example.com", 443, "/a", "")),
    ],
)
def test_reads(url: str, location: Location) -> None:
    assert parse_location(url) == location


@given(st.text(st.sampled_from("htps:/\\@.#?%[]0127xaé~-_ \t\r\n\0;,&=＠／。"), max_size=40))
def test_what_it_reads_every_other_parser_reads_alike(rest: str) -> None:
    url = "https://" + rest
    try:
        found = parse_location(url)
    except ReferenceRefused as error:
        assert error.reason == "url_invalid"
        return
    other = URL(url, encoded=True)
    assert (other.scheme, other.host, other.port) == ("https", found.host, found.port)
    assert other.user is None and other.password is None and not other.fragment
    assert set(found.host) <= set(string.ascii_lowercase + string.digits + ".-")
    assert any(letter.isalpha() for letter in found.host.rsplit(".", 1)[1])


def test_length_is_bounded() -> None:
    start = "https://media.example.com/"
    assert parse_location(start + "a" * (MOST - len(start))).path
    for url in (start + "a" * MOST, "https://" + "a." * 130 + "com/", "https://" + "a" * 64 + ".com/"):
        with pytest.raises(ReferenceRefused):
            parse_location(url)


def test_lists_hosts() -> None:
    hosts = HostList(["media.example.com", "*.cdn.example.com", "Other.example.com:8443"])
    assert len(hosts) == 3 and len(HostList([])) == 0

    def listed(host: str, port: int = 443) -> bool:
        return Location(host, port, "/", "") in hosts

    assert listed("media.example.com")
    assert listed("a.cdn.example.com") and listed("a.b.cdn.example.com")
    assert listed("other.example.com", 8443)
    assert not listed("media.example.com", 8443)
    assert not listed("other.example.com")
    assert not listed("cdn.example.com")
    assert not listed("evilcdn.example.com") and not listed("a.evilcdn.example.com")
    assert not listed("media.example.com.evil.org") and not listed("x.media.example.com")


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "*",
        "*.com:0",
        "127.0.0.1",
        "[::1]",
        "localhost",
        "https://a.example.com",
        "a.example.com/",
        "a_b.example.com",
        "*.*.example.com",
        "a.example.com:99999",
        "169.254.169.254:80",
        "2130706433",
        "a.example.com.",
    ],
)
def test_a_wrong_entry_is_a_wrong_setting(entry: str) -> None:
    with pytest.raises(SettingsError):
        HostList([entry])
