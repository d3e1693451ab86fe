from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.form import MAX_HEAD, FormError, FormParts, boundary_of

BOUNDARY = b"b0un-dary"


def made(parts: list[tuple[str, bytes]], boundary: bytes = BOUNDARY) -> bytes:
    out = [
        b'--%s\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (boundary, name.encode(), body)
        for name, body in parts
    ]
    return b"".join(out) + b"--%s--\r\n" % boundary


def read(body: bytes, sizes: list[int], boundary: bytes = BOUNDARY) -> list[tuple[str, bytes]]:
    """What comes out when it goes in in pieces of these sizes, over and over."""
    parts, found, at, turn = FormParts(boundary), list[tuple[str, bytes]](), 0, 0
    while at < len(body) and not parts.done:
        size = sizes[turn % len(sizes)]
        for met in parts.feed(body[at : at + size]):
            if isinstance(met, str):
                found.append((met, b""))
            else:
                found[-1] = found[-1][0], found[-1][1] + met
        at, turn = at + size, turn + 1
    if not parts.done:
        raise FormError
    return found


NAMES = st.text(st.sampled_from("abcxyz09_ é"), min_size=1, max_size=12)
# What is nearly a delimiter must come out as it went in.
BODIES = st.lists(
    st.one_of(st.binary(max_size=40), st.sampled_from([b"\r\n", b"--", b"\r\n--", b"\r\n--b0un-", BOUNDARY])),
    max_size=8,
).map(b"".join)


@given(
    st.lists(st.tuples(NAMES, BODIES.filter(lambda b: b"\r\n--" + BOUNDARY not in b"\r\n" + b)), max_size=6),
    st.lists(st.integers(1, 50), min_size=1, max_size=5),
)
def test_what_went_in_comes_out_however_it_was_cut(parts: list[tuple[str, bytes]], sizes: list[int]) -> None:
    assert read(made(parts), sizes) == parts
    assert read(b"\r\n" + made(parts) + b"what follows", sizes) == parts


@given(st.binary(max_size=300), st.integers(1, 80))
def test_anything_is_read_or_refused(body: bytes, size: int) -> None:
    for text in (body, b"--" + BOUNDARY + b"\r\n" + body, made([("a", body)])[:-9] + body):
        try:
            read(text, [size])
        except FormError:
            continue


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"Content-Type: audio/wav",
        b"Content-Disposition: attachment; name=file",
        b"Content-Disposition: form-data",
        b'Content-Disposition: form-data; name=""',
        b'Content-Disposition: form-data; name="a"; name="b"',
        b'Content-Disposition: form-data; name="a" x',
        b'Content-Disposition: form-data; name="a\r\nContent-Disposition: form-data; name="b"',
        b'Content-Disposition: form-data; name="a"\r\nContent-Disposition: form-data; name="a"',
        b'Content-Disposition: form-data; name="a"\r\nContent-Transfer-Encoding: base64',
        b'Content-Disposition: form-data; name="a"\r\n folded: x',
        b'Content-Disposition: form-data; name="a"\r\nno colon',
        b'Content-Disposition: form-data; name="a"' + b"\r\nX: y" * 8,
        b'Content-Disposition: form-data; name="a"\r\nX: ' + b"y" * MAX_HEAD,
    ],
)
def test_a_part_that_is_no_field_is_refused(head: bytes) -> None:
    with pytest.raises(FormError):
        read(b"--%s\r\n%s\r\n\r\nx\r\n--%s--\r\n" % (BOUNDARY, head, BOUNDARY), [64])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"preamble\r\n" + made([("a", b"1")]),
        b"\r\n\r\n" + made([("a", b"1")]),
        made([("a", b"1")])[:-4],
        made([("a", b"1")], b"other"),
        made([("a", b"1")]).replace(b"dary\r\n", b"dary \r\n", 1),
        made([("a", b"1")]).replace(b"\r\n", b"\n"),
    ],
)
def test_what_is_no_form_is_refused(body: bytes) -> None:
    with pytest.raises(FormError):
        read(body, [7])


def test_names_are_read_as_browsers_write_them() -> None:
    head = b'content-disposition: Form-Data; filename="C:\\\\me;name=x"; name="fi\\"le"\r\nContent-Type: a/b'
    assert read(b"--b\r\n%s\r\n\r\nx\r\n--b--" % head, [9], b"b") == [('fi"le', b"x")]
    assert read(b"--b\r\nContent-Disposition: form-data; name=file\r\n\r\n\r\n--b--", [9], b"b") == [
        ("file", b"")
    ]


@pytest.mark.parametrize(
    ("header", "boundary"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('multipart/form-data; charset=utf-8; boundary="a b/c"', b"a b/c"),
        ("multipart/form-data;BOUNDARY=----WebKitFormBoundary7MA4", b"----WebKitFormBoundary7MA4"),
    ],
)
def test_boundaries(header: str, boundary: bytes) -> None:
    assert boundary_of(header) == boundary


@pytest.mark.parametrize(
    "rest",
    [
        *("", "; boundary=", '; boundary=""', "; boundary=" + "a" * 71, '; boundary="a "'),
        *(
            "; boundary=a; boundary=b",
            '; boundary="a',
            "; boundary=é",
            "; boundary=a b",
            '; boundary="a\\\r"',
        ),
    ],
)
def test_bad_boundaries(rest: str) -> None:
    with pytest.raises(FormError):
        boundary_of("multipart/form-data" + rest)


@pytest.mark.parametrize("piece", [b"\n", b"\r\n", b"\r\n--", b"\r\n--b0un-dar", b"-", b"\0"])
def test_what_looks_like_lines_or_delimiters_is_one_piece(piece: bytes) -> None:
    parts = FormParts(BOUNDARY)
    assert list(parts.feed(made([("a", b"")])[: -len(BOUNDARY) - 8])) == ["a"]
    body = piece * (65_536 // len(piece))
    (got,) = parts.feed(body)
    assert len(body) - len(BOUNDARY) - 4 <= len(got) <= len(body) + 2
