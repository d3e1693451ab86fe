"""What a Wyoming client asks for and gets, event by event, in virtual time."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import virtual
from tests.gateway.dialects.test_bad_input import HIDDEN, TEXTS
from tests.peers.gateway import Running, on_gateway
from tests.peers.wyoming_client import WyomingClient, packed, wyoming
from tests.tone import ToneEngine
from tts_core.errors import Busy, EngineCrashed

WHOLE = ["audio-start", "audio-chunk", "audio-stop"]
PIECES = [*WHOLE, "synthesize-stopped"]
HERE = "127.0.0.1:0"


async def stream(client: WyomingClient, *pieces: str, **start: object) -> None:
    await client.send("synthesize-start", **start)
    for piece in pieces:
        await client.send("synthesize-chunk", text=piece)
    await client.send("synthesize-stop")


async def pieces(client: WyomingClient) -> tuple[list[str], bytes]:
    """Events up to the end of a text in pieces."""
    kinds, audio, _ = await client.heard()
    if kinds[-1] == "audio-stop":
        kinds.append((await client.next())[0])
    return kinds, audio


@on_gateway(wyoming=HERE)
async def test_describe_lists_our_voices(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        await client.send("describe")
        kind, data, _ = await client.next()
        assert kind == "info"
        (program,) = data["tts"]
        assert [voice["name"] for voice in program["voices"]] == ["tone", "other"]
        assert program["voices"][0]["languages"] == ["en-US"]


@on_gateway(wyoming=HERE)
async def test_a_text_is_spoken_whole(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        for _ in range(2):  # one connection is good for many
            await client.send("synthesize", text="One two three.", voice={"name": "other"})
            kinds, audio, data = await client.heard()
            assert kinds == WHOLE
            assert len(audio) / 48000 == pytest.approx(0.6, abs=0.05)
            assert data["timestamp"] == len(audio) // 48
    assert {request.voice for request in gateway.engine.requests} == {"other"}
    assert gateway.idle


@on_gateway(wyoming=HERE)
async def test_a_long_text_is_not_paced(gateway: Running) -> None:
    """Home Assistant plays nothing before it has all of it."""
    async with wyoming(gateway) as client:
        began = virtual.clock()
        await client.send("synthesize", text="word " * 300)
        _, audio, _ = await client.heard()
        assert len(audio) / 48000 > 60
        assert virtual.clock() - began < 5


@on_gateway(wyoming=HERE)
async def test_a_text_in_pieces_is_joined_verbatim(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        await stream(client, "Your num", "ber is ", "fif", "teen. ", "Let us go.", voice={"name": "other"})
        kinds, audio = await pieces(client)
        assert kinds == PIECES
        assert len(audio) / 48000 > 7 * 0.2
    assert "number is fifteen." in " ".join(gateway.engine.spoken)
    assert {request.voice for request in gateway.engine.requests} == {"other"}
    assert gateway.idle


@on_gateway(wyoming=HERE)
async def test_audio_comes_before_the_text_ends(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        await client.send("synthesize-start")
        await client.send("synthesize-chunk", text="The first sentence is here. And the second")
        assert [(await client.next())[0] for _ in range(2)] == WHOLE[:2]
        await client.send("synthesize-stop")
        assert (await pieces(client))[0][-2:] == PIECES[-2:]


@on_gateway(wyoming=HERE)
async def test_the_whole_text_within_pieces_is_passed_over(gateway: Running) -> None:
    """Home Assistant sends it for servers that do not know pieces."""
    async with wyoming(gateway) as client:
        await client.send("synthesize-start")
        await client.send("synthesize-chunk", text="Hello there.")
        await client.send("synthesize", text="Hello there.")
        await client.send("synthesize-stop")
        kinds, audio = await pieces(client)
        assert kinds == PIECES
        assert len(audio) / 48000 == pytest.approx(0.4, abs=0.05)
        assert await client.next_within(0.1) is None
    assert gateway.engine.spoken == ["Hello there."]


@on_gateway(wyoming=HERE)
async def test_unspeakable_text_is_a_short_silence_r16(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        await client.send("synthesize", text="... 🙂")
        kinds, audio, _ = await client.heard()
        assert kinds == WHOLE
        assert 0.02 <= len(audio) / 48000 <= 0.06
        assert not any(audio)
        await stream(client, "...")
        kinds, audio = await pieces(client)
        assert kinds == PIECES
        assert 0.02 <= len(audio) / 48000 <= 0.06


@on_gateway(wyoming=HERE)
async def test_no_text_opens_nothing_r8(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        await client.send("synthesize", text=" \n")
        assert (await client.heard())[0] == ["audio-start", "audio-stop"]
        await stream(client, "", "  ")
        assert (await client.next())[0] == "synthesize-stopped"
        await stream(client)
        assert (await client.next())[0] == "synthesize-stopped"
    text = gateway.services.metrics.text().decode()
    assert 'voxwire_contexts_total{dialect="wyoming"' not in text
    assert gateway.idle


@on_gateway(wyoming=HERE)
async def test_requests_are_spoken_one_after_the_other(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        await client.raw(
            packed("synthesize", text="One.")
            + packed("ping", text="are you there")
            + packed("synthesize-start")
            + packed("synthesize-chunk", text="Two three.")
            + packed("synthesize-stop")
            + packed("synthesize", text="Four five six.")
        )
        assert await client.next() == ("pong", {"text": "are you there"}, b"")
        for kinds, length in ((WHOLE, 0.2), (PIECES, 0.4), (WHOLE, 0.6)):
            heard = await (pieces(client) if kinds is PIECES else client.heard())
            assert heard[0] == kinds
            assert len(heard[1]) / 48000 == pytest.approx(length, abs=0.05)
    assert gateway.engine.spoken == ["One.", "Two three.", "Four five six."]
    text = gateway.services.metrics.text().decode()
    assert 'voxwire_contexts_total{dialect="wyoming",outcome="done"} 3.0' in text


@on_gateway(wyoming=HERE)
async def test_a_language_alone_chooses_a_voice(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        await client.send("synthesize", text="One.", voice={"language": "en_GB"})
        assert (await client.heard())[0] == WHOLE
        await client.send("synthesize", text="One.", voice={"name": "other", "language": "xx"})
        assert (await client.heard())[0] == WHOLE
    assert [request.voice for request in gateway.engine.requests] == ["tone", "other"]


@on_gateway(wyoming=HERE)
async def test_unknown_events_are_passed_over(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        await client.raw(packed("audio-chunk", b"12" * 5000, rate=16000, width=2, channels=1))
        await client.raw(packed("select-program", name="voxwire") + packed("run-satellite") + packed("info"))
        await client.send("ping")
        assert await client.next() == ("pong", {"text": None}, b"")


ENDED = [
    ({"type": "synthesize", "text": 5}, "bad_request", "text"),
    ({"type": "synthesize"}, "bad_request", "text"),
    ({"type": "synthesize", "text": "One.", "voice": {"name": "nobody"}}, "unknown_voice", "voice"),
    (
        {"type": "synthesize", "text": "One.", "voice": {"name": "tone", "speaker": "x"}},
        "unknown_voice",
        "voice",
    ),
    (
        {"type": "synthesize", "text": "One.", "voice": {"language": "fr"}},
        "unknown_voice",
        "voice.language: ",
    ),
    ({"type": "synthesize", "text": "One.", "voice": "tone"}, "bad_request", "voice"),
    ({"type": "synthesize", "text": "One.", "text_format": "html"}, "bad_request", "text_format"),
    ({"type": "synthesize", "text": "x" * 200_000}, "text_too_long", "text"),
    ({"type": "synthesize-start", "voice": {"name": 7}}, "bad_request", "voice.name"),
    ({"type": "synthesize-chunk", "text": "One."}, "bad_request", "synthesize-start"),
    ({"type": "synthesize-stop"}, "bad_request", "synthesize-start"),
]


@pytest.mark.parametrize(("event", "code", "names"), ENDED)
def test_an_error_is_told_and_ends_the_connection(
    event: dict[str, object], code: str, names: str, tmp_path: object
) -> None:
    @on_gateway(wyoming=HERE)
    async def refused(gateway: Running) -> None:
        async with wyoming(gateway) as client, wyoming(gateway) as other:
            await client.send(str(event["type"]), **{k: v for k, v in event.items() if k != "type"})
            kind, data, _ = await client.next()
            assert (kind, data["code"]) == ("error", code)
            assert names in data["text"]
            assert await client.ends() == b""
            await other.send("synthesize", text="One.")
            assert (await other.heard())[0] == WHOLE
        assert gateway.engine.spoken == ["One."]
        assert gateway.idle

    refused(tmp_path)  # type: ignore[arg-type]


@on_gateway(wyoming=HERE)
async def test_any_text_is_spoken_or_silence(gateway: Running) -> None:
    async with wyoming(gateway) as other:
        for at, text in enumerate(TEXTS):
            async with wyoming(gateway) as client:
                if at % 2:
                    await stream(client, text)
                    kinds, _ = await pieces(client)
                    assert kinds == (PIECES if text.strip() else PIECES[-1:])  # blanks are no text
                else:
                    await client.send("synthesize", text=text)
                    kinds, _, _ = await client.heard()
                    assert kinds == WHOLE
        await other.send("synthesize", text="One.")
        assert (await other.heard())[0] == WHOLE
    for said in gateway.engine.spoken:
        assert not HIDDEN.search(said)
    assert gateway.idle


@on_gateway(wyoming=HERE)
async def test_a_second_start_is_refused(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        await client.send("synthesize-start")
        await client.send("synthesize-chunk", text="One two three. Four")
        await client.send("synthesize-start")
        kinds, _, data = await client.heard()
        assert (kinds[-1], data["code"]) == ("error", "bad_request")
        assert await client.ends() == b""
        await asyncio.sleep(1)
        assert gateway.idle


@on_gateway(wyoming=HERE)
async def test_bad_data_and_a_bad_ping_are_told_and_the_connection_kept(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        await client.raw(b'{"type": "ping", "data_length": 2}\n[]')
        assert (await client.next())[1]["code"] == "bad_request"
        await client.send("ping", text=5)
        assert (await client.next())[1]["code"] == "bad_request"
        await client.send("synthesize", text="One.")
        assert (await client.heard())[0] == WHOLE


@on_gateway(lambda: ToneEngine(second="other", work_s=0.05), wyoming=HERE)
async def test_a_failing_engine_is_told_once_r13(gateway: Running) -> None:
    gateway.engine.fail = EngineCrashed("the engine died")
    gateway.engine.fail_after_chunks = 2
    async with wyoming(gateway) as client:
        await client.send("synthesize", text="One two three four.")
        kinds, audio, data = await client.heard()
        assert kinds == ["audio-start", "audio-chunk", "error"]
        assert len(audio) % 2 == 0
        assert data == {"text": "the engine died", "code": "engine_crashed"}
        assert await client.ends() == b""
    assert gateway.idle


@on_gateway(wyoming=HERE)
async def test_a_full_gateway_refuses_early_r27_fact_6(gateway: Running) -> None:
    def check() -> None:
        raise Busy("full", retry_after=1.0)

    gateway.services.scheduler.check = check  # type: ignore[method-assign]
    async with wyoming(gateway) as client:
        await client.send("synthesize", text="One.")
        assert await client.next() == ("error", {"text": "full", "code": "busy"}, b"")
        assert await client.ends() == b""


@on_gateway(lambda: ToneEngine(second="other", work_s=0.05), wyoming=HERE)
async def test_a_client_that_drops_stops_the_engine_r1_r14(gateway: Running) -> None:
    for text in ("synthesize", "pieces"):
        async with wyoming(gateway) as client:
            if text == "pieces":
                await client.send("synthesize-start")
                await client.send("synthesize-chunk", text="word " * 400)
            else:
                await client.send("synthesize", text="word " * 400)
            assert (await client.next())[0] == "audio-start"
        async with asyncio.timeout(1.0):
            while not gateway.idle:
                await asyncio.sleep(0.001)
        requests = len(gateway.engine.requests)
        await asyncio.sleep(5)
        assert len(gateway.engine.requests) == requests
    text_of_metrics = gateway.services.metrics.text().decode()
    assert 'voxwire_contexts_total{dialect="wyoming",outcome="cancelled"} 2.0' in text_of_metrics


@on_gateway(wyoming=HERE, context_idle_s=20.0)
async def test_a_text_that_never_ends_is_ended_r11(gateway: Running) -> None:
    async with wyoming(gateway) as client:
        await client.send("synthesize-start")
        await client.send("synthesize-chunk", text="Hello there. ")
        kinds, audio, data = await client.heard()
        assert len(audio) / 48000 > 0.3
        assert (kinds[-1], data["code"]) == ("error", "context_idle")
    assert gateway.idle


WORDS = st.sampled_from(["One.", "Two three, ", " ", "", "...", "<b>", "3.5 ", "🙂"])
ASKED = st.one_of(
    st.builds(lambda text: packed("synthesize", text=text), WORDS),
    st.builds(lambda text: packed("synthesize-chunk", text=text), WORDS),
    st.just(packed("synthesize-start")),
    st.just(packed("synthesize-stop")),
    st.just(packed("describe")),
    st.just(packed("ping", text="p")),
    st.just(packed("transcribe", b"abc", name="x")),
    st.just(packed("synthesize", text=7)),
    st.just(b'{"type": "x", "data_length": 1}\n{'),
    st.just(b"nonsense\n"),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.lists(ASKED, max_size=12))
def test_any_order_of_events_is_answered_in_order_and_leaves_nothing(
    asked: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Every audio-start has its stop, or an error, after which nothing comes; a text gets its answer."""

    @on_gateway(wyoming=HERE)
    async def scene(gateway: Running) -> None:
        async with wyoming(gateway) as client:
            await client.raw(b"".join(asked) + packed("ping", text="last"))
            came: list[str] = []
            while True:
                kind, data, _ = await client.next_within(30.0) or ("", {}, b"")
                if not kind:
                    break
                came.append("last" if data.get("text") == "last" else kind)
        order = re.sub(
            r"(pong|info|last|error(?=,(?!$))),", "", ",".join(came) + ","
        )  # those that are told at once
        one = r"audio-start,(audio-chunk,)*audio-stop,(synthesize-stopped,)?|synthesize-stopped,"
        assert re.fullmatch(rf"({one})*(audio-start,(audio-chunk,)*)?(error,)?", order), came
        if "last" not in came:
            assert came[-1] == "error"
        await asyncio.sleep(1)  # it learns that the client is gone
        assert gateway.idle

    scene(tmp_path_factory.mktemp("scene"))
