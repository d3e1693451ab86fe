"""pipecat's unmodified ElevenLabs services in a pipeline against a gateway; for the ``pipecat`` environment.

Arguments: gateway address, mode (sentence, token, http, interrupt, late, idle). The pipeline speaks in
real time and writes what was said into an LLM context, as an agent's does. Prints one JSON object.
"""

import asyncio
import base64
import json
import sys
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
from pipecat.services.elevenlabs.tts import ElevenLabsHttpTTSService, ElevenLabsTTSService  # noqa: E402
from pipecat.services.tts_service import TextAggregationMode  # noqa: E402
from pipecat.tests.utils import SleepFrame, run_test  # noqa: E402
from pipecat.transports.base_output import BaseOutputTransport  # noqa: E402
from pipecat.transports.base_transport import TransportParams  # noqa: E402

RATE = 22050
TURN = ["Hello there, this is the fir", "st delta. Your order number is 42", "15 and it ships on Thursday."]
LONG = (
    "A long first answer that the caller will interrupt before it ends. "
    "And another sentence that follows it. "
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

    def __init__(self) -> None:
        super().__init__(TransportParams(audio_out_enabled=True, audio_out_sample_rate=RATE))
        self.played = b""

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        self.played += frame.audio
        await asyncio.sleep(len(frame.audio) / 2 / RATE)
        return True


def turn(*texts: str) -> list[Any]:
    frames: list[Any] = [LLMFullResponseStartFrame()]
    for text in texts:
        frames += [LLMTextFrame(text), SleepFrame(0.05)]
    return [*frames, LLMFullResponseEndFrame()]


def service(url: str, mode: str, http: aiohttp.ClientSession) -> FrameProcessor:
    if mode == "http":
        return ElevenLabsHttpTTSService(
            api_key="any",
            base_url=url,
            aiohttp_session=http,
            sample_rate=RATE,
            settings=ElevenLabsHttpTTSService.Settings(voice="heart", model="gepard-1.0"),
        )
    options = {"text_aggregation_mode": TextAggregationMode.TOKEN} if mode == "token" else {}
    return ElevenLabsTTSService(
        api_key="any",
        url=url.replace("http", "ws", 1),
        sample_rate=RATE,
        settings=ElevenLabsTTSService.Settings(
            voice="heart", model="gepard-1.0", stability=0.5, similarity_boost=0.8
        ),
        **options,
    )


async def main(url: str, mode: str) -> None:
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
        frames = [*turn(*TURN), SleepFrame(8)]
    context = LLMContext()
    assistant = LLMContextAggregatorPair(context).assistant()
    tap, speaker = Tap(), Speaker()
    async with aiohttp.ClientSession() as http:
        down, up = await run_test(
            Pipeline([service(url, mode, http), tap, speaker, assistant]),
            frames_to_send=frames,
            pipeline_params=PipelineParams(enable_metrics=True, audio_out_sample_rate=RATE),
        )
    errors = [f.error for f in [*down, *up] if isinstance(f, ErrorFrame)]
    result = {
        "audio": base64.b64encode(tap.audio).decode(),
        "played_s": len(speaker.played) / 2 / RATE,
        "words": tap.words,
        "context": [message["content"] for message in context.get_messages()],
        "errors": errors,
    }
    print(json.dumps(result))


asyncio.run(main(*sys.argv[1:3]))
