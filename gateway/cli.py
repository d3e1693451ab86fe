"""``voxwire``: the command line. Imports only what the chosen command needs, so that help is instant."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from gateway.settings import Settings
from tts_core.errors import VoxwireError

if TYPE_CHECKING:
    from gateway.say import Spoken

FORMAT_NAMES = ("pcm-24000", "pcm-22050", "pcm-16000", "pcm-8000", "mulaw-8000", "alaw-8000")
PROBE_S = 1.0

ABOUT = """Voxwire turns text into speech while the text is still being written,
for phone calls and browsers, on your own machine."""

EXAMPLES = """examples:
  voxwire serve                                   start the gateway
  voxwire say "Your order ships at 2:30 PM." --out hello.wav
  voxwire say "Hello." --play                     hear it at once
  some-program | voxwire say - --out -            speak text while it arrives
  voxwire voices                                  list the voices
  voxwire keys add my-app                         make a key for another machine

Settings come from VOXWIRE_... variables and from voxwire.toml; 'voxwire serve'
tells you about every bad one."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\nTry '{self.prog} --help'.\n")


def _parser() -> argparse.ArgumentParser:
    plain = argparse.RawDescriptionHelpFormatter
    parser = _Parser(prog="voxwire", description=ABOUT, epilog=EXAMPLES, formatter_class=plain)
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings file (default: ./voxwire.toml)")
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
    say.add_argument("--speed", type=float, default=1.0, help="0.5 is slow, 2 is fast (default: 1)")
    _remote(say)
    say.set_defaults(run=_say)

    voices = commands.add_parser("voices", help="list the voices")
    _remote(voices)
    voices.set_defaults(run=_voices)
    return parser


def _remote(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", help="a gateway's address (default: the one on this machine, else a private one)"
    )
    parser.add_argument("--key", help="its API key (default: VOXWIRE_KEY)")


def _settings(args: argparse.Namespace, **overrides: object) -> Settings:
    return Settings.load(config=args.config, overrides=overrides)


def _serve(args: argparse.Namespace) -> int:
    from gateway.server import serve

    return serve(_settings(args, host=args.host, port=args.port))


# -- say and voices -----------------------------------------------------------------------------------------


class _Gateway:
    """The gateway that a command talks to: the one that was named, the one on this machine, or our own."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._settings = _settings(args)
        self.url: str = args.url or os.environ.get("VOXWIRE_URL", "")
        self.key: str = args.key or os.environ.get("VOXWIRE_KEY", "")
        self._server: object = None

    async def __aenter__(self) -> _Gateway:
        if not self.url:
            default = f"http://127.0.0.1:{self._settings.port or 8080}"
            if await _answers(default):
                self.url = default
            else:
                await self._start()
        if not self.key:
            local = self._settings.data_dir / "local.key"
            self.key = local.read_text().strip() if local.is_file() else "local"
        return self

    async def _start(self) -> None:
        from gateway import logs
        from gateway.server import Server

        logs.setup("error", "text")
        _note("starting the voice...")
        # Ours alone: nobody else's keys, store or ports; gone when the command ends.
        private = replace(
            self._settings, host="127.0.0.1", port=0, tls_port=None, tls_cert=None, tls_key=None, api_keys="",
            redis_url="", public_origin="", allowed_hosts=(), allowed_origins=(), twilio=(), default_voice="",
        )  # fmt: skip
        server = Server(private)
        await server.start()
        self._server, self.url = server, server.urls[0]

    async def __aexit__(self, *_: object) -> None:
        from gateway.server import Server

        if isinstance(self._server, Server):
            await self._server.close()


async def _answers(url: str) -> bool:
    """Whether a Voxwire gateway, not some other program, is ready at ``url``."""
    import aiohttp

    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PROBE_S)) as http,
            http.get(f"{url}/readyz") as response,
        ):
            return response.status == 200 and response.headers.get("Server") == "voxwire"
    except (aiohttp.ClientError, OSError, TimeoutError):
        return False


def _note(text: str, *, stay: bool = False) -> None:
    """A progress line on standard error; it is overwritten by the next one unless it stays."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{text}" + ("\n" if stay else ""))
    elif stay:
        sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _progress(spoken: Spoken) -> None:
    first = f"first sound after {spoken.first_audio * 1000:.0f} ms" if spoken.first_audio >= 0 else "waiting"
    _note(f"{spoken.seconds:6.2f} s of speech, {first}, {spoken.took:.2f} s so far")


def _say(args: argparse.Namespace) -> int:
    if not args.out and not args.play:
        raise VoxwireError("say where the sound should go: --out FILE or --play")
    if args.out and args.play:
        raise VoxwireError("--out and --play exclude each other")
    if not 0.5 <= args.speed <= 2.0:
        raise VoxwireError("--speed must be from 0.5 to 2")
    if args.out == "-" and sys.stdout.isatty():
        raise VoxwireError("standard output is a terminal: redirect it, or use --out FILE")
    asyncio.run(_say_async(args))
    return 0


async def _say_async(args: argparse.Namespace) -> None:
    from gateway.say import FORMATS, FileSink, PlayerSink, pieces, player_command, say, stdin_pieces

    audio = FORMATS[args.format]
    command = player_command(audio) if args.play else []
    deltas: AsyncIterator[str] = stdin_pieces() if args.text == "-" else pieces(args.text)
    async with _Gateway(args) as gateway:

        async def speak(sink: FileSink | PlayerSink) -> Spoken:
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
            async with PlayerSink(command) as player:
                spoken = await speak(player)
        else:
            try:
                with FileSink(args.out, audio) as file:
                    spoken = await speak(file)
            except OSError as error:
                raise VoxwireError(f"{args.out} cannot be written: {error.strerror}") from None
    where = "played" if args.play else ("to standard output" if args.out == "-" else f"in {args.out}")
    first = f"{spoken.first_audio * 1000:.0f} ms" if spoken.first_audio >= 0 else "never"
    _note(
        f"{spoken.seconds:.2f} s of speech {where}; first sound after {first}, all after {spoken.took:.2f} s",
        stay=True,
    )


def _voices(args: argparse.Namespace) -> int:
    asyncio.run(_voices_async(args))
    return 0


async def _voices_async(args: argparse.Namespace) -> None:
    if not args.url and not os.environ.get("VOXWIRE_URL"):
        settings = _settings(args)
        if not await _answers(f"http://127.0.0.1:{settings.port or 8080}"):
            from gateway.startup import make_engine

            # Known without starting anything.
            for voice in make_engine(settings).info.voices:
                print(f"{voice.id:24} {voice.language:8} {voice.gender:8} {voice.name}")
            return
    async with _Gateway(args) as gateway:
        import aiohttp

        headers = {"Authorization": f"Bearer {gateway.key}"}
        timeout = aiohttp.ClientTimeout(total=10)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=headers) as http,
                http.get(f"{gateway.url.rstrip('/')}/v1/voices") as response,
            ):
                if response.status != 200:
                    raise VoxwireError(f"the gateway answered {response.status}; is the key right?")
                body = await response.json()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise VoxwireError(
                f"no gateway can be reached at {gateway.url} ({type(error).__name__})"
            ) from None
        for voice in body["voices"]:
            print(f"{voice['id']:24} {voice['language']:8} {voice['gender']:8} {voice['name']}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status (0 fine, 1 failed, 2 wrongly called, 130 interrupted)."""
    args = _parser().parse_args(argv)
    try:
        status: int = args.run(args)
    except VoxwireError as error:
        _note("")
        sys.stderr.write("".join(f"voxwire: {line}\n" for line in error.message.splitlines()))
        return 1
    except KeyboardInterrupt:
        _note("")
        return 130
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status
