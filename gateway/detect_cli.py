"""``voxwire detect``: whether a recording carries this deployment's mark, in words that promise no more.

The answer begins with ``yes``, ``no`` or ``unsure``, and says what it is worth (trust.md 2.4, M6).
"""

from __future__ import annotations

import argparse
import asyncio
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tts_core.errors import VoxwireError

if TYPE_CHECKING:
    from gateway.settings import Settings
    from gateway.trust.marks import Marking
    from telephony.dsp.mark_detector import Detection

LONGEST_S = 1800.0
LARGEST = 512 << 20

LEAD = """A mark is a reason to look the call up, not a proof of who made the recording: who has marked speech
can lay its mark on other speech. Compare the recording with the log of that time."""

NO_PROOF = """This does not mean that it was not spoken here. A mark needs three seconds of speech. It does
not outlast a change of speed or pitch, denoising, another voice model or the lowest rates of mobile networks.
Only what was spoken with VOXWIRE_MARK=on and under this secret carries it."""

UNSURE = "Something like a mark was seen, as happens by chance. A longer or better recording may tell."


def add_detect(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command ``detect`` to ``commands``."""
    detect = commands.add_parser("detect", help="look for this deployment's mark in a recording")
    detect.add_argument("file", type=Path, help="WAV, FLAC, MP3, Ogg or M4A, half an hour at most")
    detect.add_argument("--tenant", help="list when this tenant's speech carries what was found")
    detect.add_argument(
        "--day", type=_day, help="the day to list, as 2026-11-30, in UTC (default: today and the day before)"
    )
    detect.set_defaults(run=_detect)


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a day as 2026-11-30") from None


def _detect(args: argparse.Namespace) -> int:
    from gateway.settings import Settings

    for line in asyncio.run(_answer(args, Settings.load(config=args.config))):
        print(line)
    return 0


async def _answer(args: argparse.Namespace, settings: Settings) -> list[str]:
    from gateway.intake.clip import RATE, decode_clip
    from gateway.intake.decoder import Limits
    from gateway.startup import open_marking
    from telephony.dsp.mark_detector import search

    marking = open_marking(settings)
    try:
        if args.file.stat().st_size > LARGEST:
            raise VoxwireError(f"{args.file} is larger than {LARGEST >> 20} MiB")
        data = bytearray(args.file.read_bytes())
    except OSError as error:
        raise VoxwireError(f"{args.file} cannot be read: {error.strerror}") from None
    limits = Limits(max_bytes=LARGEST, max_seconds=LONGEST_S, cpu_s=120, memory=2 << 30, wall_s=300.0)
    clip = await decode_clip(data, limits=limits)
    found = await asyncio.to_thread(search, clip.pcm, RATE, marking.keys())
    return words(found) + (slots(found, marking, args.tenant, args.day) if found.marked else [])


def words(found: Detection) -> list[str]:
    """The answer for people, a line each; the first word is ``yes``, ``no`` or ``unsure``."""
    if found.marked:
        at = f"{int(found.at_s) // 60}:{int(found.at_s) % 60:02d}"
        return [
            f"yes: the mark of this deployment was found in the part from {at} on",
            f"score {found.score:.1f}, where {found.bar:.1f} is reached by one unmarked recording in 25,000; "
            f"payload {found.payload}",
            LEAD,
        ]
    if found.unsure:
        return [f"unsure: score {found.score:.1f}, and from {found.bar:.1f} on it counts", UNSURE, NO_PROOF]
    return ["no: no mark of this deployment was found", NO_PROOF]


def slots(found: Detection, marking: Marking, tenant: str | None, day: date | None) -> list[str]:
    """When speech of ``tenant`` carries the payload that was found."""
    if tenant is None:
        return ["Add --tenant NAME and --day to list the five minutes in which such speech began."]
    first = datetime.combine(day or datetime.now(UTC).date() - timedelta(days=1), datetime.min.time(), UTC)
    last = first + timedelta(days=1 if day else 2, seconds=-1)
    begins = list(marking.slots(tenant, found.payload, first.timestamp(), last.timestamp()))
    if not begins:
        return [
            f"No speech of {tenant} that began from {first:%Y-%m-%d} to {last:%Y-%m-%d} carries this payload."
        ]
    return [
        f"Speech of {tenant} carries this payload where it began within five minutes from (UTC; one in 1024 "
        "does by chance):",
        *(f"  {datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}" for at in begins),
    ]


__all__ = ["add_detect", "slots", "words"]
