"""pipecat's unmodified speech services in a pipeline against a gateway; for the ``pipecat`` environment.

Arguments: gateway address, service (one of SERVICES), mode (sentence, token, interrupt, late, idle). The
pipeline speaks in real time and writes what was said into an LLM context, as an agent's does. Prints one
JSON object.
"""

import asyncio
import base64
import json
import sys
from collections.abc import Callable
from typing import Any

from loguru import logger

logger.remove()
logger.add(sys.stderr, level="WARNING")

import aiohttp  # noqa: E402
from pipecat.frames.frames import (  # noqa: E402
    ErrorFrame,
    Frame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    OutputAudioRawFrame,
    StartFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline  # noqa: E402
from pipecat.pipeline.worker import PipelineParams  # noqa: E402
from pipecat.processors.aggregators.llm_context import LLMContext  # noqa: E402
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair  # noqa: E402
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor  # noqa: E402
from pipecat.services.cartesia.tts import CartesiaTTSService  # noqa: E402
from pipecat.services.deepgram.flux.tts import DeepgramFluxTTSService  # noqa: E402
from pipecat.services.deepgram.tts import DeepgramTTSService  # noqa: E402
from pipecat.services.elevenlabs.tts import ElevenLabsHttpTTSService, ElevenLabsTTSService  # noqa: E402
from pipecat.services.openai.tts import OpenAITTSService  # noqa: E402
from pipecat.services.tts_service import TextAggregationMode  # noqa: E402
from pipecat.tests.utils import SleepFrame, run_test  # noqa: E402
from pipecat.transports.base_output import BaseOutputTransport  # noqa: E402
from pipecat.transports.base_transport import TransportParams  # noqa: E402

TURN = ["Hello there, this is the fir", "st delta. Your order number is 42", "15 and it ships on Thursday."]
LONG = (
    "A long first answer that the caller will interrupt before it ends. "
    "And another sentence that follows it, one that goes on and on, for as long as anyone would care to "
    "listen, and that nobody will ever hear to its end, as the caller has something to say and says it now. "
)


class Tap(FrameProcessor):
    """Notes what the service gives."""

    def __init__(self) -> None:
        super().__init__()
        self.audio = b""
        self.words: list[list[Any]] = []

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            self.audio += frame.audio
        elif isinstance(frame, TTSTextFrame):
            self.words.append([frame.text, frame.pts])
        await self.push_frame(frame, direction)


class Speaker(BaseOutputTransport):
    """Plays in real time, to nobody."""

    def __init__(self, rate: int) -> None:
        super().__init__(TransportParams(audio_out_enabled=True, audio_out_sample_rate=rate))
        self.rate = rate
        self.played = b""
        self.cut_s = 0.0

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    @property
    def played_s(self) -> float:
        return len(self.played) / 2 / self.rate

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        if isinstance(frame, InterruptionFrame):
            self.cut_s = self.played_s
        await super().process_frame(frame, direction)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        self.played += frame.audio
        await asyncio.sleep(len(frame.audio) / 2 / self.rate)
        return True


def turn(*texts: str) -> list[Any]:
    frames: list[Any] = [LLMFullResponseStartFrame()]
    for text in texts:
        frames += [LLMTextFrame(text), SleepFrame(0.05)]
    return [*frames, LLMFullResponseEndFrame()]


Options = dict[str, Any]


def cartesia(url: str, http: aiohttp.ClientSession, options: Options) -> FrameProcessor:
    return CartesiaTTSService(
        url=url.replace("http", "ws", 1) + "/tts/websocket",
        settings=CartesiaTTSService.Settings(voice="heart", model="gepard-1.0"),
        **options,
    )


def deepgram(url: str, http: aiohttp.ClientSession, options: Options) -> FrameProcessor:
    return DeepgramTTSService(
        base_url=url.replace("http", "ws", 1),
        settings=DeepgramTTSService.Settings(voice="heart"),
        **options,
    )


def deepgram_flux(url: str, http: aiohttp.ClientSession, options: Options) -> FrameProcessor:
    return DeepgramFluxTTSService(
        url=url.replace("http", "ws", 1) + "/v2/speak",
        settings=DeepgramFluxTTSService.Settings(voice="heart"),
        **options,
    )


def elevenlabs(url: str, http: aiohttp.ClientSession, options: Options) -> FrameProcessor:
    return ElevenLabsTTSService(
        url=url.replace("http", "ws", 1),
        settings=ElevenLabsTTSService.Settings(
            voice="heart", model="gepard-1.0", stability=0.5, similarity_boost=0.8
        ),
        **options,
    )


def elevenlabs_http(url: str, http: aiohttp.ClientSession, options: Options) -> FrameProcessor:
    return ElevenLabsHttpTTSService(
        base_url=url,
        aiohttp_session=http,
        settings=ElevenLabsHttpTTSService.Settings(voice="heart", model="gepard-1.0"),
        **options,
    )


def openai(url: str, http: aiohttp.ClientSession, options: Options) -> FrameProcessor:
    return OpenAITTSService(
        base_url=url + "/v1",
        settings=OpenAITTSService.Settings(voice="alloy", model="gpt-4o-mini-tts"),
        **options,
    )


SERVICES: dict[str, tuple[int, Callable[[str, aiohttp.ClientSession, Options], FrameProcessor]]] = {
    "cartesia": (22050, cartesia),
    "deepgram": (24000, deepgram),
    "deepgram-flux": (24000, deepgram_flux),
    "elevenlabs": (22050, elevenlabs),
    "elevenlabs-http": (22050, elevenlabs_http),
    "openai": (24000, openai),
}
"""A rate (Hz) that the protocol has, and the service as its users make it."""


async def main(url: str, name: str, mode: str) -> None:
    second = [SleepFrame(0.3), *turn("Second answer."), SleepFrame(2.5)]
    if mode == "interrupt":
        frames = [
            LLMFullResponseStartFrame(),
            LLMTextFrame(LONG),
            SleepFrame(1.6),
            InterruptionFrame(),
            *second,
        ]
    elif mode == "late":
        frames = [*turn(LONG), SleepFrame(1.6), InterruptionFrame(), *second]
    elif mode == "idle":
        frames = [SleepFrame(11), *turn("Second answer."), SleepFrame(2.5)]
    else:
        frames = [*turn(*TURN), SleepFrame(6)]
    rate, service = SERVICES[name]
    aggregation = TextAggregationMode.TOKEN if mode == "token" else TextAggregationMode.SENTENCE
    options = {"api_key": "any", "sample_rate": rate, "text_aggregation_mode": aggregation}
    context = LLMContext()
    assistant = LLMContextAggregatorPair(context).assistant()
    tap, speaker = Tap(), Speaker(rate)
    async with aiohttp.ClientSession() as http:
        down, up = await run_test(
            Pipeline([service(url, http, options), tap, speaker, assistant]),
            frames_to_send=frames,
            pipeline_params=PipelineParams(enable_metrics=True, audio_out_sample_rate=rate),
        )
    errors = [f.error for f in [*down, *up] if isinstance(f, ErrorFrame)]
    result = {
        "rate": rate,
        "audio": base64.b64encode(tap.audio).decode(),
        "played": base64.b64encode(speaker.played).decode(),
        "cut_s": speaker.cut_s,
        "words": tap.words,
        "context": [message["content"] for message in context.get_messages()],
        "errors": errors,
    }
    print(json.dumps(result))


asyncio.run(main(*sys.argv[1:4]))
