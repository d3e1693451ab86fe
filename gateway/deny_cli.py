"""``voxwire voices deny``: the voices of which nobody may make a voice in this deployment."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import quote

from gateway.remote import (
    RemoteGateway,
    ask,
    need_running,
    note,
    read_file,
    remote_options,
    runs,
    send,
)
from tts_core.errors import VoxwireError

ADD_S = 90.0


def add_deny(actions: argparse._SubParsersAction[Any]) -> None:
    """Add the action ``deny`` to those of ``voxwire voices``."""
    deny = actions.add_parser("deny", help="list, add or drop voices that nobody may clone here")
    verbs = deny.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=type(deny))

    add = verbs.add_parser("add", help="deny the voice in a recording; prints its commitment")
    add.add_argument("file", type=Path, help="wav, flac, mp3, ogg or m4a, of one person; it is not kept")
    add.add_argument("--reason", required=True, help="why, as a code of your own, never a name")
    listing = verbs.add_parser("list", help="show what is denied: commitment, since when, reason")
    remove = verbs.add_parser("rm", help="allow a voice again")
    remove.add_argument("id", help="its commitment, see 'voxwire voices deny list'")
    export = verbs.add_parser("export", help="write the whole list, sealed with the deployment's secret")
    export.add_argument("file", type=Path, help="the file to write")
    take = verbs.add_parser("import", help="add the voices of an export made under the same secret")
    take.add_argument("file", type=Path, help="the file to read")
    commands = ((add, _add), (listing, _list), (remove, _remove), (export, _export), (take, _import))
    for parser, command in commands:
        remote_options(parser, again=True)
        parser.set_defaults(run=_run(command))


def _run(
    command: Callable[[RemoteGateway, argparse.Namespace], Coroutine[Any, Any, None]],
) -> Callable[[argparse.Namespace], int]:
    async def ready(args: argparse.Namespace) -> None:
        await need_running(args)
        async with RemoteGateway(args) as gateway:
            await command(gateway, args)

    return runs(ready)


async def _add(gateway: RemoteGateway, args: argparse.Namespace) -> None:
    import aiohttp

    form = aiohttp.FormData(default_to_multipart=True)
    form.add_field("reason", args.reason)
    form.add_field("file", read_file(args.file), filename="clip")
    note("listening to the recording")
    print((await send(gateway, "POST", "/v1/denied", within=ADD_S, data=form))["id"])


async def _list(gateway: RemoteGateway, args: argparse.Namespace) -> None:
    for entry in (await ask(gateway, "GET", "/v1/denied"))["denied"]:
        since = time.strftime("%Y-%m-%d", time.gmtime(entry["at_ms"] / 1000))
        print(f"{entry['id']} {since} {entry['reason']}")


async def _remove(gateway: RemoteGateway, args: argparse.Namespace) -> None:
    await ask(gateway, "DELETE", f"/v1/denied/{quote(args.id, safe='')}")
    note(f"{args.id} is not denied any more", stay=True)


async def _export(gateway: RemoteGateway, args: argparse.Namespace) -> None:
    answer = await ask(gateway, "GET", "/v1/denied/export")
    try:
        args.file.write_text(json.dumps(answer) + "\n")
    except OSError as error:
        raise VoxwireError(f"{args.file} cannot be written: {error.strerror}") from None


async def _import(gateway: RemoteGateway, args: argparse.Namespace) -> None:
    try:
        asked = json.loads(read_file(args.file))
    except ValueError:
        raise VoxwireError(f"{args.file} is no export of denied voices") from None
    added = (await ask(gateway, "POST", "/v1/denied/import", asked))["added"]
    note(f"{added} voices are new on the list", stay=True)


__all__ = ["add_deny"]
