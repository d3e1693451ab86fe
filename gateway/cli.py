"""``voxwire``: the command line. Imports only what the chosen command needs, so that help is instant."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gateway import __version__
from gateway.detect_cli import add_detect
from gateway.models_cli import add_models
from gateway.remote import RemoteGateway, ask, need_running, note, remote_options
from gateway.settings import Settings
from gateway.voices_cli import add_voices
from tts_core.errors import VoxwireError

if TYPE_CHECKING:
    from gateway.say import Spoken
    from sessions.keys import KeyRing

FORMAT_NAMES = ("pcm-24000", "pcm-22050", "pcm-16000", "pcm-8000", "mulaw-8000", "alaw-8000")
SCOPE_NAMES = ("speak", "voice:read", "voice:enrol", "voice:delete", "call", "call:out", "detect", "admin")
PLAYED_SHARE = 0.5
"""A player that ends before this share of the sound could be heard has not played it (ffplay then says 0)."""

ABOUT = """Voxwire turns text into speech while the text is still being written,
for phone calls and browsers, on your own machine."""

EXAMPLES = """examples:
  voxwire serve                                   start the gateway
  voxwire say "Your order ships at 2:30 PM." --out hello.wav
  voxwire say "Hello." --play                     hear it at once
  some-program | voxwire say - --out -            speak text while it arrives
  voxwire voices                                  list the voices
  voxwire voices add me.wav --name Me --self      make a voice from a recording
  voxwire keys add my-app                         make a key for another machine
  voxwire detect call.wav                         was this spoken here?

Settings come from VOXWIRE_... variables and from voxwire.toml; 'voxwire serve'
tells you about every bad one, and 'voxwire settings' lists them."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\nTry '{self.prog} --help'.\n")


def _parser() -> argparse.ArgumentParser:
    plain = argparse.RawDescriptionHelpFormatter
    parser = _Parser(prog="voxwire", description=ABOUT, epilog=EXAMPLES, formatter_class=plain)
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file (default: ./voxwire.toml)")
    parser.add_argument(
        "--version", action="version", version=f"voxwire {__version__}", help="show the version and exit"
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)

    serve = commands.add_parser("serve", help="start the gateway and keep it running")
    serve.add_argument("--host", help="address to listen on (default: 127.0.0.1, this machine only)")
    serve.add_argument("--port", help="port to listen on (default: 8080)")
    serve.set_defaults(run=_serve)

    say = commands.add_parser("say", help="speak a text into a file or to your ears")
    say.add_argument("text", help="what to say; - reads it from standard input as it comes")
    say.add_argument(
        "--out", metavar="FILE", help="where to put the sound; .wav gets a header; - is standard output"
    )
    say.add_argument("--play", action="store_true", help="play it (needs aplay, paplay or ffplay)")
    say.add_argument(
        "--format", choices=FORMAT_NAMES, default="pcm-24000", help="kind of samples (default: pcm-24000)"
    )
    say.add_argument("--voice", default="", help="who speaks; see 'voxwire voices'")
    say.add_argument("--speed", type=_speed, default=1.0, help="0.5 is slow, 2 is fast (default: 1)")
    remote_options(say)
    say.set_defaults(run=_say)

    add_voices(commands)
    add_models(commands)
    add_detect(commands)

    settings = commands.add_parser("settings", help="list what can be set, with what is set now")
    settings.set_defaults(run=_show_settings)

    keys = commands.add_parser("keys", help="make, list, replace or end API keys")
    actions = keys.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=_Parser)
    add = actions.add_parser("add", help="make a key; it is shown this once")
    add.add_argument("name", help="what it is for, for your own memory")
    add.add_argument(
        "--tenant", default="default", help="whose it is; tenants share nothing (default: default)"
    )
    add.add_argument(
        "--scope", action="append", choices=SCOPE_NAMES, metavar="SCOPE",
        help=f"what it may do, may be repeated (default: speak): {', '.join(SCOPE_NAMES)}",
    )  # fmt: skip
    add.add_argument("--phrase-cache", action="store_true", help="let spoken phrases be kept for its tenant")
    add.add_argument("--contexts", type=_count, help="contexts it may speak at once (default: no limit)")
    add.add_argument("--requests", type=_count, help="requests a minute (default: no limit)")
    add.add_argument("--characters", type=_count, help="characters a minute (default: no limit)")
    actions.add_parser("list", help="show all keys, without their secrets")
    rotate = actions.add_parser("rotate", help="give a key a new secret")
    rotate.add_argument("id", help="the key's id, see 'voxwire keys list'")
    rotate.add_argument(
        "--grace",
        type=_count,
        default=86400,
        help="seconds for which the old secret still works (default: 86400)",
    )
    revoke = actions.add_parser("revoke", help="end a key and close its connections, within 5 seconds")
    revoke.add_argument("id", help="the key's id, see 'voxwire keys list'")
    keys.set_defaults(run=_keys)

    token = commands.add_parser("token", help="make a short-lived token for a browser")
    token.add_argument("--voice", help="the only voice it may use")
    token.add_argument("--max-characters", type=_count, help="how much it may say in all")
    token.add_argument("--origin", help="the only web origin it works from, as https://app.example.com")
    token.add_argument(
        "--ttl", type=_count, default=60, help="seconds to connect in, 60 at most (default: 60)"
    )
    remote_options(token)
    token.set_defaults(run=_token)
    return parser


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _speed(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.5 <= number <= 2.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0.5 to 2")
    return number


def _settings(args: argparse.Namespace, **overrides: object) -> Settings:
    return Settings.load(config=args.config, overrides=overrides)


def _serve(args: argparse.Namespace) -> int:
    from gateway.server import serve

    return serve(_settings(args, host=args.host, port=args.port))


def _show_settings(args: argparse.Namespace) -> int:
    made = _settings(args)
    for line in made.describe():
        print(line)
    return 0


# -- say ------------------------------------------------------------------------------------------


def _progress(spoken: Spoken) -> None:
    first = f"first sound after {spoken.first_audio * 1000:.0f} ms" if spoken.first_audio >= 0 else "waiting"
    note(f"{spoken.seconds:6.2f} s of speech, {first}, {spoken.took:.2f} s so far")


def _say(args: argparse.Namespace) -> int:
    if not args.out and not args.play:
        raise VoxwireError("say where the sound should go: --out FILE or --play")
    if not args.text.strip():
        raise VoxwireError("there is nothing to say: the text is empty")
    if args.out and args.play:
        raise VoxwireError("--out and --play exclude each other")
    if args.out == "-" and sys.stdout.isatty():
        raise VoxwireError("standard output is a terminal: redirect it, or use --out FILE")
    asyncio.run(_say_async(args))
    return 0


async def _say_async(args: argparse.Namespace) -> None:
    from gateway.say import FORMATS, FileSink, PlayerSink, pieces, player_command, say, stdin_pieces

    audio = FORMATS[args.format]
    deltas: AsyncIterator[str] = stdin_pieces() if args.text == "-" else pieces(args.text)

    async def speak(sink: FileSink | PlayerSink) -> Spoken:
        async with RemoteGateway(args) as gateway:
            return await say(
                gateway.url,
                gateway.key,
                deltas,
                sink,
                audio,
                voice=args.voice,
                speed=args.speed,
                progress=_progress,
            )

    if args.play:
        command = player_command(audio)
        async with PlayerSink(command) as player:
            spoken = await speak(player)
            done = time.monotonic()
        if time.monotonic() - done + spoken.took < PLAYED_SHARE * spoken.seconds:
            raise VoxwireError(
                f"{command[0]} could not play the sound: is there a sound device? --out FILE keeps it"
            )
    else:
        try:
            with FileSink(args.out, audio) as file:
                spoken = await speak(file)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise VoxwireError(f"{args.out} cannot be written: {error.strerror}") from None
    if not spoken.samples:
        raise VoxwireError("there was nothing to say: the text was empty")
    where = "played" if args.play else ("to standard output" if args.out == "-" else f"in {args.out}")
    note(
        f"{spoken.seconds:.2f} s of speech {where}; first sound after {spoken.first_audio * 1000:.0f} ms, "
        f"all after {spoken.took:.2f} s",
        stay=True,
    )


def _token(args: argparse.Namespace) -> int:
    asyncio.run(_token_async(args))
    return 0


async def _token_async(args: argparse.Namespace) -> None:
    await need_running(args)
    wanted = {
        "voice": args.voice,
        "max_characters": args.max_characters,
        "origin": args.origin,
        "ttl": args.ttl,
    }
    async with RemoteGateway(args) as gateway:
        body = {name: value for name, value in wanted.items() if value is not None}
        print((await ask(gateway, "POST", "/v1/token", body))["token"])


# -- keys ------------------------------------------------------------------------------------------


def _keys(args: argparse.Namespace) -> int:
    from gateway import logs

    logs.setup("error", "text")
    asyncio.run(_keys_async(args))
    return 0


async def _keys_async(args: argparse.Namespace) -> None:
    from gateway.startup import open_keys

    keyring, store = await open_keys(_settings(args))
    try:
        if args.action == "list":
            _list_keys(keyring)
        elif args.action == "add":
            from sessions.principal import Limits, parse_scopes

            limits = Limits(args.contexts, args.requests, args.characters)
            issued = await keyring.create(
                args.tenant,
                name=args.name,
                scopes=parse_scopes(args.scope or ["speak"]),
                limits=limits,
                phrase_cache=args.phrase_cache,
            )
            print(issued.presented)
            note("keep it well: it is not shown again", stay=True)
        elif args.action == "rotate":
            print((await keyring.rotate(args.id, grace=args.grace)).presented)
            note(f"the old secret still works for {args.grace} seconds", stay=True)
        else:
            await keyring.revoke(args.id)
            note(f"{args.id} is revoked", stay=True)
    finally:
        await keyring.close()
        await store.close()


def _list_keys(keyring: KeyRing) -> None:
    print(f"{'ID':14} {'TENANT':16} {'STATE':8} {'LAST USED':11} {'NAME':20} SCOPES")
    for key in keyring.list():
        state = "revoked" if key.revoked else "live"
        used = time.strftime("%Y-%m-%d", time.gmtime(key.used)) if key.used else "never"
        print(f"{key.key_id:14} {key.tenant:16} {state:8} {used:11} {key.name:20} {'+'.join(key.scopes)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status (0 fine, 1 failed, 2 wrongly called, 130 interrupted)."""
    args = _parser().parse_args(argv)
    try:
        status: int = args.run(args)
    except VoxwireError as error:
        note("")
        sys.stderr.write("".join(f"voxwire: {line}\n" for line in error.message.splitlines()))
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        note("")
        return 130
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status
