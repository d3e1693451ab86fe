from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests import virtual
from tests.tts_core.gepard.cases import prefix_of
from tests.tts_core.gepard.scripted import PlainCodec, Script, ScriptedModel, numbers
from tts_core.engine import Keeper, Observed, SpeechChunk, SpeechRequest
from tts_core.errors import (
    BadRequest,
    EngineCrashed,
    EngineError,
    SettingsError,
    TextTooLong,
    UnknownVoice,
    VoxwireError,
)
from tts_core.gepard import frame_engine
from tts_core.gepard.budget import budget_of
from tts_core.gepard.checkpoint import Checkpoint
from tts_core.gepard.frame_engine import BACKOFF_S, STEADY_S, WARM_STREAMS, WATCH_S, FrameEngine, Options
from tts_core.gepard.frames import Rows
from tts_core.gepard.prefixes import pack
from tts_core.gepard.sampling import Sampling
from tts_core.gepard.tiny import make_tiny
from tts_core.nanocodec import fsq

TEXT = "Hello there, how are you?"
LONG_AGO = SpeechRequest("s/1", TEXT, "default")
NULL = 7.0


class Desk:
    """An engine over a scripted model; its own compressor is not asked."""

    def __init__(self, checkpoint: Checkpoint, *scripts: Script, **options: Any) -> None:
        self.model = ScriptedModel(*scripts)
        self.codec = PlainCodec()
        self.engine = FrameEngine(
            "gepard",
            checkpoint,
            self.model,
            self.codec,
            codec_digest="c0dec" * 8,
            options=Options(**options),
            clock=virtual.clock,
        )
        self.enrolled: list[int] = []
        hidden = checkpoint.config.hidden_size

        async def null_prefix() -> Rows:
            return np.full((8, hidden), NULL, np.float32)

        async def prefix(codes: fsq.Codes) -> Rows:
            self.enrolled.append(len(codes))
            return np.full((8, hidden), 0.5, np.float32)

        self.engine._enroller.null_prefix = null_prefix  # type: ignore[method-assign]
        self.engine._enroller.prefix = prefix  # type: ignore[method-assign]

    async def __aenter__(self) -> Desk:
        await self.engine.start()
        self.model.requests.clear()
        self.codec.sizes.clear()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.engine.close()

    async def say(self, text: str = TEXT, **fields: Any) -> list[SpeechChunk]:
        request = SpeechRequest(**{"id": "s/c/0", "text": text, "voice": "default", **fields})
        chunks = [chunk async for chunk in self.engine.synthesize(request)]
        assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
        at = 0
        for chunk in chunks:
            assert chunk.start_sample == at
            at += len(chunk.pcm)
        assert self.model.running == self.codec.open_streams == self.engine._speed.running == 0
        return chunks


DeskTest = Callable[[Checkpoint], Coroutine[Any, Any, None]]


def on_virtual(test: DeskTest) -> Callable[[Checkpoint], None]:
    def run(checkpoint: Checkpoint) -> None:
        virtual.run(lambda: test(checkpoint))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def pcm(chunks: list[SpeechChunk]) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.concatenate([chunk.pcm for chunk in chunks])


@on_virtual
async def test_what_it_is_is_known_before_it_runs(checkpoint: Checkpoint) -> None:
    engine = Desk(checkpoint).engine
    info = engine.info
    assert (info.name, info.native_rate, info.can_clone) == ("gepard", 22050, True)
    assert info.revision == f"{checkpoint.digest[:16]}-{('c0dec' * 8)[:16]}"
    assert [voice.id for voice in info.voices] == ["default", "plain"]
    assert info.speed_range == (1.0, 1.0)
    assert "pt-BR" in info.languages
    assert engine.capacity().alive == 0
    with pytest.raises(EngineError, match="not running"):
        await anext(engine.synthesize(LONG_AGO))
    await engine.close()
    with pytest.raises(EngineError, match="closed"):
        await engine.start()


@on_virtual
async def test_a_segment_is_spoken_with_its_words(checkpoint: Checkpoint) -> None:
    async with Desk(checkpoint, Script(40)) as desk:
        chunks = await desk.say()
        assert numbers(pcm(chunks)) == [1 + n % 7 for n in range(40)]
        words = [TEXT[w.text_start : w.text_end] for chunk in chunks for w in chunk.words]
        assert words == TEXT.split()
        (request,) = desk.model.requests
        assert request.prefix is not None
        assert np.all(request.prefix.rows == NULL)
        assert request.sampling.max_frames == budget_of(TEXT).cap
        assert request.sampling.temperature == 0.4
        assert request.uncond is None


@on_virtual
async def test_it_is_warm_and_its_speed_known_before_the_first_request(checkpoint: Checkpoint) -> None:
    desk = Desk(checkpoint)
    async with desk:
        await desk.engine.start()  # a second start does nothing
        capacity = desk.engine.capacity()
        assert (capacity.alive, capacity.slots, capacity.free, capacity.queued) == (1, 4, 4, 0)
        assert 4 * 8 < capacity.xrt < 4 * 16
        assert desk.model.starts == 1
        assert desk.engine.gauges() == {
            "codec_duty": 0.25,
            "frame_s": pytest.approx(desk.model.step_s, rel=0.6),
        }
    assert WARM_STREAMS == 4


@on_virtual
async def test_load_shows_in_the_capacity(checkpoint: Checkpoint) -> None:
    async with Desk(checkpoint, Script(None)) as desk:
        readers = [desk.engine.synthesize(replace(LONG_AGO, id=str(i))) for i in range(6)]
        await asyncio.gather(*(anext(reader) for reader in readers))
        capacity = desk.engine.capacity()
        assert (capacity.free, capacity.queued) == (0, 2)
        for reader in readers:
            await reader.aclose()
        assert desk.engine.capacity().free == 4
        assert desk.codec.open_streams == 0


@pytest.mark.parametrize("text", ["", "  ", "...", "?!", "—"])
def test_nothing_to_say_never_reaches_the_model(checkpoint: Checkpoint, text: str) -> None:
    async def main() -> None:
        async with Desk(checkpoint) as desk:
            (chunk,) = await desk.say(text)
            assert len(chunk.pcm) == 0
            assert desk.model.requests == []

    virtual.run(main)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"speed": 1.1}, BadRequest),
        ({"voice": "heart"}, UnknownVoice),
        ({"conditioning": b"short"}, BadRequest),
        ({"text": "x" * 4001}, TextTooLong),
        ({"text": "1 2 " * 300}, TextTooLong),
    ],
)
def test_what_cannot_be_spoken_is_refused(
    checkpoint: Checkpoint, fields: dict[str, Any], error: type[VoxwireError]
) -> None:
    async def main() -> None:
        async with Desk(checkpoint) as desk:
            with pytest.raises(error):
                await anext(desk.engine.synthesize(replace(LONG_AGO, **fields)))
            assert desk.model.requests == []
            assert desk.engine._speed.running == 0

    virtual.run(main)


@on_virtual
async def test_seeds_are_the_requests_own_or_new_each_time(checkpoint: Checkpoint) -> None:
    async with Desk(checkpoint) as desk:
        for seed in (5, 5, 1 << 63, None, None):
            await desk.say(seed=seed)
        seeds = [request.sampling.seed for request in desk.model.requests]
        assert seeds[:3] == [5, 5, -(1 << 63)]
        assert len(set(seeds)) == 4
        assert len({request.id for request in desk.model.requests}) == 5


@on_virtual
async def test_a_voice_is_made_of_a_clip_and_spoken_with(checkpoint: Checkpoint) -> None:
    async with Desk(checkpoint) as desk:
        clip = np.zeros(22050, np.float32)
        voice = await desk.engine.enroll(clip, 22050)
        assert len(voice) == 8 * checkpoint.config.hidden_size * 2 == desk.engine.info.voice_bytes
        assert desk.enrolled == [22]
        with pytest.raises(BadRequest):
            await desk.engine.enroll(clip, 24000)
        for salt in ("a", "a", "b"):
            await desk.say(voice="vc_1", conditioning=voice, salt=salt)
        first, again, other = (r.prefix for r in desk.model.requests)
        assert first is not None
        assert other is not None
        assert first is again
        assert first.fingerprint != other.fingerprint
        assert np.all(first.rows == 0.5)
        assert desk.engine.forget("a") == 1
        await asyncio.sleep(0)
        assert desk.model.forgotten == [first.fingerprint]  # the model's own copy, too
        assert isinstance(desk.engine, Keeper)
        assert isinstance(desk.engine, Observed)
        await desk.say(voice="vc_1", conditioning=voice, salt="a")
        assert desk.model.requests[-1].prefix is not first
        await desk.say(voice="plain")
        assert desk.model.requests[-1].prefix is None


def test_a_model_without_speakers_has_one_voice_and_clones_none(tmp_path: Any) -> None:
    checkpoint = Checkpoint.open(make_tiny(tmp_path, cloning=False))

    async def main() -> None:
        async with Desk(checkpoint) as desk:
            assert [voice.id for voice in desk.engine.info.voices] == ["default"]
            with pytest.raises(EngineError):
                await desk.engine.enroll(np.zeros(9, np.float32), 22050)
            await desk.say()
            assert desk.model.requests[0].prefix is None

    virtual.run(main)


@on_virtual
async def test_a_runaway_is_cut_and_counted(checkpoint: Checkpoint) -> None:
    async with Desk(checkpoint, Script(None)) as desk:
        chunks = await desk.say()
        assert len(pcm(chunks)) == budget_of(TEXT).cap * fsq.SAMPLES_PER_FRAME
        events = desk.engine.events()
        assert (events["truncated"], events["again"], events["derailed"]) == (1, 0, 0)


@on_virtual
async def test_a_derailment_unheard_is_tried_again_with_another_seed_once(checkpoint: Checkpoint) -> None:
    bad, good = Script(None, entropy=[0.99]), Script(30)
    async with Desk(checkpoint, bad, good) as desk:
        chunks = await desk.say(deadline=virtual.clock() + 3)
        assert numbers(pcm(chunks)) == [1 + n % 7 for n in range(30)]
        first, second = desk.model.requests
        assert first.sampling.seed != second.sampling.seed
        assert first.ids == second.ids
        events = desk.engine.events()
        assert (events["derailed"], events["again"], events["truncated"]) == (1, 1, 0)
    async with Desk(checkpoint, bad) as desk:
        chunks = await desk.say(deadline=virtual.clock() + 3)
        assert len(desk.model.requests) == 2
        assert len(pcm(chunks)) == budget_of(TEXT).tight * fsq.SAMPLES_PER_FRAME


@on_virtual
async def test_a_seed_of_the_requests_own_is_never_replaced(checkpoint: Checkpoint) -> None:
    async with Desk(checkpoint, Script(None, entropy=[0.99])) as desk:
        await desk.say(seed=5, deadline=virtual.clock() + 3)
        assert len(desk.model.requests) == 1


@on_virtual
async def test_speech_without_sound_is_tried_again(checkpoint: Checkpoint) -> None:
    async with Desk(checkpoint, Script(4, silent=4), Script(9)) as desk:
        assert len(pcm(await desk.say())) == 9 * fsq.SAMPLES_PER_FRAME
        assert desk.engine.events()["silent"] == 1


@on_virtual
async def test_guidance_and_sampling_are_those_of_the_options(checkpoint: Checkpoint) -> None:
    sampling = Sampling(temperature=0.7, top_k=3, cfg_scale=3.0, cfg_frames=20, cfg_max_text_tokens=20)
    async with Desk(checkpoint, sampling=sampling) as desk:
        await desk.say("Yes.")
        await desk.say("This is a much longer text, for which no guidance is wanted or paid for here.")
        short, long = desk.model.requests
        assert short.uncond is not None
        assert long.uncond is None
        assert (short.sampling.temperature, short.sampling.top_k) == (0.7, 3)


@on_virtual
async def test_with_continuity_a_short_segment_is_gone_on_from(checkpoint: Checkpoint) -> None:
    async with Desk(checkpoint, Script(20), continuity=True) as desk:
        await desk.say("Hello there.", id="s/c/0")
        await desk.say("How are you?", id="s/c/1", continues="Hello there.")
        await desk.say("How are you?", id="s/d/1", continues="Hello there.")
        first, second, other = desk.model.requests
        assert first.context is None
        assert second.context is not None
        assert second.context.shape == (20, 32)
        assert other.context is None
        encode = checkpoint.tokenizer().encode
        assert set(encode("Hello there. How are you?")) <= set(second.ids)
        assert second.sampling.max_frames == other.sampling.max_frames
    async with Desk(checkpoint, Script(20)) as desk:
        await desk.say("Hello there.", id="s/c/0")
        await desk.say("How are you?", id="s/c/1", continues="Hello there.")
        assert desk.model.requests[-1].context is None


@on_virtual
async def test_continuity_is_left_where_both_texts_do_not_fit(checkpoint: Checkpoint) -> None:
    async with Desk(checkpoint, Script(20), continuity=True) as desk:
        before, after = "7 8 " * 55, "1 2 " * 50
        await desk.say(before, id="s/c/0")
        await desk.say(after, id="s/c/1", continues=before[-200:])
        assert desk.model.requests[-1].context is None


@on_virtual
async def test_one_that_was_left_is_not_gone_on_from(checkpoint: Checkpoint) -> None:
    async with Desk(checkpoint, Script(20), continuity=True) as desk:
        reader = desk.engine.synthesize(replace(LONG_AGO, id="s/c/0"))
        await anext(reader)
        await reader.aclose()
        await desk.say("How are you?", id="s/c/1", continues=TEXT)
        assert desk.model.requests[-1].context is None


@on_virtual
async def test_a_dead_model_shows_at_once_and_is_started_again(checkpoint: Checkpoint) -> None:
    async with Desk(checkpoint, Script(None)) as desk:
        reader = desk.engine.synthesize(LONG_AGO)
        await anext(reader)
        desk.model.alive = False
        assert desk.engine.capacity().alive == 0
        with pytest.raises(EngineCrashed):
            async for _ in reader:
                pass
        assert desk.model.starts == 1
        await asyncio.sleep(WATCH_S + BACKOFF_S[0] + 0.01)
        assert desk.engine.capacity().alive == 1
        assert desk.engine.events()["restarts"] == desk.engine.events()["crashes"] == 1
        desk.model.scripts = [Script(5)]
        assert len(pcm(await desk.say())) == 5 * fsq.SAMPLES_PER_FRAME


@on_virtual
async def test_a_model_that_hangs_is_replaced(checkpoint: Checkpoint) -> None:
    async with Desk(checkpoint) as desk:
        step_s, desk.model.step_s = desk.model.step_s, 1e6
        for _ in range(4):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await desk.say()
        desk.model.step_s = step_s
        assert desk.model.starts == 1
        await asyncio.sleep(2 * WATCH_S + BACKOFF_S[0] + 0.01)
        assert desk.model.starts == 2
        await desk.say()


@on_virtual
async def test_a_start_that_fails_in_an_unknown_way_is_repeated(checkpoint: Checkpoint) -> None:
    async with Desk(checkpoint) as desk:
        desk.model.refuses = [RuntimeError("what")]  # type: ignore[list-item]
        desk.model.alive = False
        await asyncio.sleep(3)
        assert desk.engine.capacity().alive == 1


@on_virtual
async def test_restarts_wait_longer_each_time_until_one_lasts(checkpoint: Checkpoint) -> None:
    async with Desk(checkpoint) as desk:
        desk.model.refuses = [EngineError("no"), SettingsError("no")]
        desk.model.alive = False
        began = virtual.clock()
        while not desk.model.alive:
            await asyncio.sleep(0.01)
        assert virtual.clock() - began == pytest.approx(3 * WATCH_S + sum(BACKOFF_S[:3]), abs=0.05)
        assert desk.model.starts == 4
        await asyncio.sleep(STEADY_S + 1)
        desk.model.alive = False
        began = virtual.clock()
        while not desk.model.alive:
            await asyncio.sleep(0.01)
        assert virtual.clock() - began < WATCH_S + BACKOFF_S[0] + 0.05


@on_virtual
async def test_a_crash_before_anything_was_heard_is_tried_again_where_there_is_somebody(
    checkpoint: Checkpoint,
) -> None:
    async with Desk(checkpoint, Script(9)) as desk:
        desk.codec.fails.append(EngineCrashed("one of two codec processes died"))
        assert len(pcm(await desk.say(seed=3))) == 9 * fsq.SAMPLES_PER_FRAME
        first, second = desk.model.requests
        assert first.sampling == second.sampling
        desk.codec.fails += [EngineCrashed("a"), EngineCrashed("b")]
        with pytest.raises(EngineCrashed):
            await desk.say()
        assert desk.engine._speed.running == 0


@on_virtual
async def test_a_start_that_fails_undoes_itself(checkpoint: Checkpoint) -> None:
    for error, kind in (
        (EngineError("no room"), EngineError),
        (SettingsError("lower it"), SettingsError),
        (ImportError("vllm"), SettingsError),
    ):
        desk = Desk(checkpoint)
        desk.model.refuses = [error]  # type: ignore[list-item]
        with pytest.raises(kind):
            await desk.engine.start()
        assert not desk.codec.alive
        assert desk.engine.capacity().alive == 0
        with pytest.raises(EngineError):
            await anext(desk.engine.synthesize(LONG_AGO))


def test_bytes_of_a_voice_are_those_of_its_rows(checkpoint: Checkpoint) -> None:
    assert len(pack(prefix_of(checkpoint, 1).rows)) == 8 * checkpoint.config.hidden_size * 2
    assert frame_engine.LANGUAGES[0] == "en-US"
