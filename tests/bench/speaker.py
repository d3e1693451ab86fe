"""The speaker model: people taken for others, not recognised, two people in a clip not seen; its cost.

Speakers are the embedded voice, a Piper voice and two people of a telephone call, and, with
``--kokoro PACKAGE`` (what ``npm pack kokoro-js@1.2.1`` fetches), voices of Kokoro, which take a quarter of a
minute each once. Each is compared as recorded and over the phone (8 kHz mu-law), every clip with every other.
The set is small, most of it is synthetic, and every speaker was recorded in one session: people in the field
are recognised less often than this says.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from gateway.trust.speaker import THRESHOLD, halves, one_speaker, speech
from tests.bench.report import Report, table
from tests.peers import kokoro, speakers
from tests.peers.speakers import Clip, Samples, over_the_phone

TEXTS = speakers.TEXTS[:3]
ROUNDS = 7


def crowd(package: Path | None, most: int) -> dict[str, list[Clip]]:
    """Clips by speaker."""
    found = {"heart": list(speakers.heart()[:3]), "joe": list(speakers.joe()[:3])}
    found |= {who: list(clips) for who, clips in speakers.people().items()}
    if package is not None:
        for voice, clips in kokoro.clips(package, TEXTS, most).items():
            found[voice] = [(pcm, kokoro.RATE) for pcm in clips]
    return found


def compare(
    names: list[str], one: Samples, two: Samples, *, same_leg: bool
) -> tuple[Samples, Samples, tuple[str, float]]:
    """Similarities within and across speakers, and the pair of speakers that is most alike."""
    owners = np.array(names)
    scores = one @ two.T
    mine = owners[:, None] == owners[None, :]
    pairs = np.triu(np.ones_like(mine), 1) if same_leg else ~np.eye(len(names), dtype=np.bool_)
    across = np.where(~mine & pairs, scores, -1.0)
    a, b = np.unravel_index(int(np.argmax(across)), across.shape)
    return scores[mine & pairs], scores[~mine & pairs], (f"{names[a]}, {names[b]}", float(across[a, b]))


def cost_ms() -> float:
    """Milliseconds of processor for a voice from 15 s, the best of several."""
    pcm = np.concatenate([clip for clip, _ in speakers.heart()])[: 15 * 24_000]
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        speakers.model().embed(pcm, 24_000)
        best = min(best, time.process_time() - start)
    return best * 1000


def main(argv: list[str]) -> int:
    """Run the bench."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench speaker")
    parser.add_argument("--kokoro", type=Path, metavar="PACKAGE", help="kokoro-js-1.2.1.tgz")
    parser.add_argument("--voices", type=int, default=len(kokoro.ORDER), help="how many of its voices")
    args = parser.parse_args(argv)
    report, model = Report("speaker"), speakers.model()
    clips = crowd(args.kokoro, args.voices)
    names = [who for who, said in clips.items() for _ in said]
    plain = np.stack([model.embed(*clip) for said in clips.values() for clip in said])
    phone = np.stack([model.embed(*over_the_phone(clip)) for said in clips.values() for clip in said])
    report.figure("speakers", len(clips))
    report.figure("clips", len(names))
    legs = (("as recorded", plain, plain), ("over the phone", phone, phone), ("one of each", plain, phone))
    rows, worst, unknown = [], 0.0, 0.0
    for leg, one, two in legs:
        same, across, (pair, score) = compare(names, one, two, same_leg=one is two)
        far, frr = float(np.mean(across >= THRESHOLD)), float(np.mean(same < THRESHOLD))
        rows.append([leg, len(across), 100 * far, len(same), 100 * frr, float(same.min()), score, pair])
        report.figure(f"{leg}: false accepts", 100 * far, "%")
        report.figure(f"{leg}: false rejects", 100 * frr, "%")
        worst, unknown = max(worst, far), max(unknown, frr)
    head = ["leg", "cross pairs", "FAR %", "own pairs", "FRR %", "least own", "most cross", "who"]
    print(f"threshold {THRESHOLD}, {len(clips)} speakers, {len(names)} clips")
    print(table(head, rows), end="\n\n")
    spoken = {who: [speech(*clip) for clip in said] for who, said in clips.items()}
    alone = [one_speaker(model.windows_of(pcm)) for said in spoken.values() for pcm in said]
    alone += [one_speaker(model.windows_of(np.concatenate(said))) for said in spoken.values()]
    mixed = [
        one_speaker(model.windows_of(np.concatenate([spoken[a][0], spoken[b][1]])))
        for step in range(1, min(5, len(spoken)))
        for a, b in pairwise([*list(spoken)[::step], next(iter(spoken))])
        if a != b
    ]
    report.figure("clips of one speaker refused", 100 * float(np.mean(np.logical_not(alone))), "%")
    report.figure("clips of two speakers let through", 100 * float(np.mean(mixed)), "%")
    report.figure("clips of one and of two speakers", f"{len(alone)}, {len(mixed)}")
    report.figure("the telephone call of two people", halves(model.windows(*speakers.call())))
    cost = cost_ms()
    report.figure("a voice from 15 s", cost, "ms of processor")
    report.goal("false accepts, worst leg", 100 * worst, "<= 1")
    report.goal("false rejects, worst leg", 100 * unknown, "<= 5")
    report.goal("a voice from 15 s, ms", cost, "<= 300")
    return report.finish()
