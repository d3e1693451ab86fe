"""Reads requests with a recording: a form with a file (RFC 7578), or JSON that names where a clip is.

Its size is counted while it is read, so that no more than the limit is ever held (trust.md S10). The clip
lies in one buffer of ours, which is overwritten after use (V13). Only sound is taken: there is no field for
anything that a model has made (S13), and a part or field that we do not know is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Annotated, TypeVar

import msgspec
from aiohttp import hdrs, web
from aiohttp.web_protocol import RequestPayloadError
from msgspec import Meta

from gateway import fault
from gateway.body import BodyTimeout, read_body
from gateway.form import FormError, FormParts, boundary_of
from gateway.intake.clip import overwrite
from gateway.voice_api import strict
from tts_core.errors import BadRequest, LegClosed, TextTooLong

MAX_CLIP = 10_000_000
"""Bytes: a minute of stereo at 44.1 kHz is as long as that uncompressed."""
MAX_FORM = MAX_CLIP + 65_536
MAX_FIELD = 2048
MAX_JSON = 8192
_CHUNK = 1 << 16
UPLOAD_S = 60.0
"""For the whole of it; a phone on a slow line sends 10 MB in that."""


class Enrolment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked for besides the clip.

    ``consent``: the id of a consent record. ``session``: of a native session or a call that the voice is to
    end with. ``ttl``: seconds that it lives; without either it stays until it is deleted. ``url``: where the
    clip is, in place of a file.
    """

    consent: Annotated[str, Meta(max_length=64)] = ""
    name: Annotated[str, Meta(max_length=100)] = ""
    language: Annotated[str, Meta(max_length=35)] = ""
    session: Annotated[str, Meta(max_length=64)] = ""
    ttl: Annotated[float, Meta(ge=1, le=366 * 86_400)] | None = None
    url: Annotated[str, Meta(max_length=2000)] = ""


T = TypeVar("T", bound=msgspec.Struct)


class Upload:
    """A clip as it came, in one buffer, and what is asked for."""

    def __init__(self, asked: Enrolment, clip: bytearray) -> None:
        self.asked = asked
        self.clip = clip

    def wipe(self) -> None:
        """Overwrite the clip."""
        overwrite(memoryview(self.clip))


async def read_upload(request: web.Request) -> Upload:
    """Read a form, or JSON (then the clip is empty and ``asked.url`` says where it is).

    Raises BadRequest, BodyTimeout, TextTooLong for too much, LegClosed for a client that went. On any of them
    what had been read of a clip is overwritten.
    """
    if request.content_type == "application/json":
        return await _read_json(request)
    clip = bytearray()
    return Upload(await read_form(request, Enrolment, clip, besides={"url"}), clip)


async def read_form(
    request: web.Request, kind: type[T], clip: bytearray, *, besides: Collection[str] = ()
) -> T:
    """Read a form: its part ``file`` into ``clip``, its fields as a ``kind`` without those of ``besides``.

    Raises as :func:`read_upload`; then ``clip`` is overwritten.
    """
    if request.content_type != "multipart/form-data":
        raise BadRequest("send the clip as the part 'file' of multipart/form-data", field="Content-Type")
    if (request.content_length or 0) > MAX_FORM:
        raise _too_large()
    known = frozenset({"file", *(f.encode_name for f in msgspec.structs.fields(kind))} - set(besides))
    try:
        async with asyncio.timeout(UPLOAD_S):
            fields = await _read_fields(request, clip, known)
    except BaseException as error:
        overwrite(memoryview(clip))
        raise _ours(error) from None
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        overwrite(memoryview(clip))
        raise fault.bad_request(error) from None


async def _read_json(request: web.Request) -> Upload:
    asked = strict.decode(await read_body(request, MAX_JSON), Enrolment)
    if not asked.url:
        raise BadRequest("JSON names a clip by its url; send a file as multipart/form-data", field="url")
    return Upload(asked, bytearray())


async def _read_fields(request: web.Request, clip: bytearray, known: frozenset[str]) -> dict[str, str]:
    parts = FormParts(boundary_of(request.headers[hdrs.CONTENT_TYPE]))
    values: dict[str, bytearray] = {}
    name, into = "", bytearray()
    async for chunk in request.content.iter_chunked(_CHUNK):
        for met in parts.feed(chunk):
            if isinstance(met, str):
                name = _new(met, values, known)
                into = values[name] = clip if name == "file" else bytearray()
                continue
            into += met
            if len(into) > (MAX_CLIP if name == "file" else MAX_FIELD):
                raise _too_large()
        if parts.done:
            break
    if not parts.done:
        raise FormError("it ends too soon")
    values.pop("file", None)
    if not clip:
        raise BadRequest("the clip is missing: send it as the part 'file'", field="file")
    return {name: value.decode("utf-8") for name, value in values.items()}


def _new(name: str, values: Collection[str], known: frozenset[str]) -> str:
    """A field's name, if there is such a field and it was not there yet. Raises BadRequest."""
    if name not in known:
        raise BadRequest(f"the fields of the form are {', '.join(sorted(known))}")
    if name in values:
        raise BadRequest("the form has a field twice", field=name)
    return name


def _too_large() -> TextTooLong:
    return TextTooLong(f"a clip has at most {MAX_CLIP // 1_000_000} MB", field="file")


def _ours(error: BaseException) -> BaseException:
    """What reading raises for a form that is none, in our words (S16)."""
    if isinstance(error, TimeoutError):
        return BodyTimeout("the clip did not come in time")
    if isinstance(error, (ConnectionError, RequestPayloadError)):
        return LegClosed("the connection is closed")
    if isinstance(error, ValueError):
        return BadRequest("the form could not be read")
    return error


__all__ = ["MAX_CLIP", "MAX_FORM", "Enrolment", "Upload", "read_form", "read_upload"]
