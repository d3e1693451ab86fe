"""The rules about text and samples (see the matrix of the dialects), as a Wyoming client meets them."""

from __future__ import annotations

import re

from tests.peers.gateway import Running, on_gateway
from tests.peers.wyoming_client import WyomingClient, wyoming
from tests.tone import RATE

HERE = "127.0.0.1:0"
WORD = round(0.2 * RATE) * 2
TRAPS = "It costs 3.50 on 12.05.2024, ask Dr. Li at a@b.co. It was 1999. Good."


async def speak(client: WyomingClient, *pieces: str) -> bytes:
    """A text in pieces, or whole where it is one; its audio."""
    if len(pieces) == 1:
        await client.send("synthesize", text=pieces[0])
    else:
        await client.send("synthesize-start")
        for piece in pieces:
            await client.send("synthesize-chunk", text=piece)
        await client.send("synthesize-stop")
    _, audio, _ = await client.heard()
    if len(pieces) > 1:
        assert (await client.next())[0] == "synthesize-stopped"
    return audio


def said(gateway: Running) -> str:
    return " ".join(gateway.engine.spoken)


@on_gateway(wyoming=HERE)
async def test_bytes_are_exactly_those_of_the_time_r17_r30_r31(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        audio = await speak(client, "One two three four five six seven.")
    assert len(audio) == 7 * WORD
    assert not audio.startswith(b"RIFF")


@on_gateway(wyoming=HERE, lead_in_ms=120)
async def test_a_lead_in_can_be_set_for_satellites_that_wake_slowly_r34(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        audio = await speak(client, "Yes.")
    lead = round(0.12 * RATE) * 2
    assert len(audio) == lead + WORD
    assert audio[:lead] == bytes(lead)


@on_gateway(wyoming=HERE)
async def test_any_split_gives_the_same_speech_r19_r22_r23(gateway: Running) -> None:
    heard = []
    for pieces in ([TRAPS], list(TRAPS), re.findall(r"\S+ ?", TRAPS)):
        gateway.engine.requests.clear()
        async with wyoming(gateway) as client:
            heard.append((await speak(client, *pieces), said(gateway)))
    assert heard[1] == heard[2]
    assert heard[0][1] == heard[1][1]


@on_gateway(wyoming=HERE)
async def test_markup_and_markdown_are_never_spoken_r20_r24(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        await speak(client, "One <bre", 'ak time="0.5s"', "/> **two** \U0001f600 ", "three.")
    assert re.findall(r"\S+", said(gateway).replace(".", "").replace(",", "")) == ["One", "two", "three"]


@on_gateway(wyoming=HERE)
async def test_a_segment_goes_on_from_the_one_before_r33(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        await speak(client, "Is it you? ", "Ok. ", "Fine then.")
    assert gateway.engine.requests[0].continues == ""
    for before, request in zip(gateway.engine.requests, gateway.engine.requests[1:], strict=False):
        assert request.continues.endswith(before.text[-20:])


@on_gateway(wyoming=HERE)
async def test_a_silent_engine_is_told_in_time_r15(gateway: Running) -> None:
    gateway.engine.work_s = 30.0
    async with wyoming(gateway) as client:
        await client.send("synthesize", text="One.")
        kinds, audio, data = await client.heard()
    assert (kinds[-1], data["code"], audio) == ("error", "engine_timeout", b"")
    assert gateway.idle
