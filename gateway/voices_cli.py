"""``voxwire voices``: list the voices, consent aloud, make one from a recording, delete one."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import secrets
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gateway.deny_cli import add_deny
from gateway.remote import (
    RemoteGateway,
    ask,
    need_running,
    note,
    read_file,
    remote_options,
    running,
    runs,
    send,
    settings_of,
)
from tts_core.errors import VoxwireError

if TYPE_CHECKING:
    import aiohttp

STATEMENT = "This is my own voice. I agree that a voice is made from it here and speaks what I have it say."
"""What ``--self`` says; its SHA-256 is the evidence of the consent."""
ADD_S = 150.0
_PIECE = 65_536
_TICK_S = 0.2


def add_voices(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command ``voices`` to ``commands``."""
    voices = commands.add_parser("voices", help="list the voices; make or delete one of your own")
    remote_options(voices)
    voices.set_defaults(run=runs(_list))
    actions = voices.add_subparsers(dest="action", metavar="ACTION", parser_class=type(voices))

    listing = actions.add_parser("list", help="list the voices (the same without an action)")
    remote_options(listing, again=True)

    add = actions.add_parser("add", help="make a voice from a recording of 3 to 60 seconds")
    add.add_argument("file", type=Path, help="wav, flac, mp3, ogg or m4a, of one person in a quiet room")
    add.add_argument("--name", default="", help="what to call it")
    add.add_argument("--language", default="", help="what is spoken in it, as en-US")
    add.add_argument("--session", default="", help="end it with this session of the native protocol, or call")
    consent = add.add_mutually_exclusive_group(required=True)
    consent.add_argument("--consent", metavar="ID", help="the consent under which it is made")
    consent.add_argument(
        "--self", action="store_true", dest="own", help=f"you state this, and it is recorded: {STATEMENT}"
    )
    consent.add_argument(
        "--licensed", type=Path, metavar="DOCUMENT",
        help="you state that this contract or signed form allows it; its SHA-256 is recorded",
    )  # fmt: skip
    add.add_argument(
        "--subject", default="", help="your own code for the person, never a name (default: made)"
    )
    remote_options(add, again=True)
    add.set_defaults(run=runs(_add))

    add_deny(actions)

    consent_aloud = actions.add_parser(
        "consent", help="consent aloud: without arguments it prints a challenge's id and the text to read"
    )
    consent_aloud.add_argument("challenge", nargs="?", default="", help="the id, once the text was read")
    consent_aloud.add_argument("answer", nargs="?", type=Path, help="the recording in which it was read")
    consent_aloud.add_argument("--company", default="", help="whom the text is to name (default: the tenant)")
    consent_aloud.add_argument("--language", default="en", help="of the text (default: en)")
    consent_aloud.add_argument(
        "--session", action="store_true", help="for voices that end with a session alone"
    )
    consent_aloud.add_argument("--subject", default="", help="as of 'add'")
    remote_options(consent_aloud, again=True)
    consent_aloud.set_defaults(run=runs(_consent_aloud))

    remove = actions.add_parser("rm", help="delete a voice; prints the signed receipt")
    remove.add_argument("id", help="the voice's id, see 'voxwire voices'")
    remote_options(remove, again=True)
    remove.set_defaults(run=runs(_remove))


async def _list(args: argparse.Namespace) -> None:
    if await running(args):
        async with RemoteGateway(args) as gateway:
            voices = (await ask(gateway, "GET", "/v1/voices"))["voices"]
    else:
        from dataclasses import asdict

        from gateway.engine import make_engine

        # An engine knows its voices without being started.
        voices = [asdict(voice) for voice in make_engine(settings_of(args)).info.voices]
    width = max([24, *(len(voice["id"]) for voice in voices)])
    for voice in voices:
        print(f"{voice['id']:{width}} {voice['language']:8} {voice['gender']:8} {voice['name']}")


async def _add(args: argparse.Namespace) -> None:
    clip = read_file(args.file)
    document = read_file(args.licensed) if args.licensed is not None else b""
    await need_running(args)
    async with RemoteGateway(args) as gateway:
        consent = args.consent or await _consent(gateway, args, document)
        made = await _upload(gateway, args, clip, consent)
    for warning in made["warnings"]:
        note(f"warning: {warning['message']}", stay=True)
    kind = (
        "until its session ends"
        if made["session"]
        else "until it is deleted (without Redis: while this gateway runs)"
    )
    note(f"made under the consent {consent}; it stays {made['until'] or kind}", stay=True)
    print(made["id"])


async def _consent_aloud(args: argparse.Namespace) -> None:
    if args.challenge and args.answer is None:
        raise VoxwireError("name the recording in which the text was read, too")
    answer = read_file(args.answer) if args.answer is not None else b""
    await need_running(args)
    async with RemoteGateway(args) as gateway:
        if not answer:
            asked = {"language": args.language, "company": args.company}
            made = await ask(gateway, "POST", "/v1/consents/challenges", asked)
            print(made["id"])
            print(made["text"])
            note(
                f"read this into a file and, within two minutes: voxwire voices consent {made['id']} FILE",
                stay=True,
            )
            return
        fields = {
            "challenge": args.challenge,
            "subject": args.subject or _subject(),
            "kind": "session" if args.session else "permanent",
        }
        form = _form(fields, _Progress(len(answer)).pieces(answer))
        record = await send(gateway, "POST", "/v1/consents", within=ADD_S, data=form)
    note(f"recorded; make the voice with: voxwire voices add FILE --consent {record['id']}", stay=True)
    print(record["id"])


def _subject() -> str:
    return f"cli-{secrets.token_hex(8)}"


async def _consent(gateway: RemoteGateway, args: argparse.Namespace, document: bytes) -> str:
    terms: dict[str, object] = {
        "subject": args.subject or _subject(),
        "kind": "session" if args.session else "permanent",
    }
    if args.own:
        terms |= {"how": "written", "statement": STATEMENT}
    else:
        terms |= {"how": "licensed", "evidence": hashlib.sha256(document).hexdigest()}
    return str((await ask(gateway, "POST", "/v1/consents", terms))["id"])


async def _upload(gateway: RemoteGateway, args: argparse.Namespace, clip: bytes, consent: str) -> Any:
    progress = _Progress(len(clip))
    ticking = asyncio.create_task(progress.show())
    try:
        fields = {"consent": consent, "name": args.name or args.file.stem, "language": args.language}
        if args.session:
            fields["session"] = args.session
        form = _form(fields, progress.pieces(clip))
        return await send(gateway, "POST", "/v1/voices", within=ADD_S, data=form)
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)
        note("")


def _form(fields: dict[str, str], pieces: AsyncIterator[bytes]) -> aiohttp.MultipartWriter:
    import aiohttp

    form = aiohttp.MultipartWriter("form-data")
    for name, value in fields.items():
        form.append(value).set_content_disposition("form-data", name=name)
    clip = aiohttp.payload.AsyncIterablePayload(pieces)
    clip.set_content_disposition("form-data", name="file", filename="clip")
    form.append_payload(clip)
    return form


class _Progress:
    """One line that says how far it is."""

    def __init__(self, size: int) -> None:
        self._size, self._sent, self._began = size, 0, time.monotonic()

    async def pieces(self, clip: bytes) -> AsyncIterator[bytes]:
        for at in range(0, len(clip), _PIECE):
            yield clip[at : at + _PIECE]
            self._sent = min(self._size, at + _PIECE)

    async def show(self) -> None:
        while True:
            seconds = time.monotonic() - self._began
            if self._sent < self._size:
                note(f"sending the recording: {100 * self._sent // self._size} %")
            else:
                note(f"making the voice: {seconds:.1f} s so far")
            await asyncio.sleep(_TICK_S)


async def _remove(args: argparse.Namespace) -> None:
    await need_running(args)
    async with RemoteGateway(args) as gateway:
        answer = await ask(gateway, "DELETE", f"/v1/voices/{_safe(args.id)}")
    receipt = answer["receipt"]
    print(json.dumps(receipt, indent=2))
    note(
        f"{args.id} is deleted; {receipt['answered']} of {receipt['expected']} gateways have answered",
        stay=True,
    )


def _safe(voice_id: str) -> str:
    from urllib.parse import quote

    return quote(voice_id, safe="")


__all__ = ["STATEMENT", "add_voices"]
