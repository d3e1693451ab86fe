"""pipecat's unmodified OpenAI service against a gateway; run in the ``pipecat`` environment.

Arguments: gateway address, mode (sentence, interrupt). Prints one JSON object.
"""

import asyncio
import base64
import json
import sys

from loguru import logger

logger.remove()
logger.add(sys.stderr, level="WARNING")

from pipecat.frames.frames import (  # noqa: E402
    ErrorFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.pipeline.worker import PipelineParams  # noqa: E402
from pipecat.services.openai.tts import OpenAITTSService  # noqa: E402
from pipecat.tests.utils import SleepFrame, run_test  # noqa: E402

TURN = ["Hello there, this is the fir", "st delta. Your order number is 42", "15 and it ships on Thursday."]
LONG = "A long first answer that the caller will interrupt before it ends. "


def turn(*texts: str) -> list[object]:
    frames: list[object] = [LLMFullResponseStartFrame()]
    for text in texts:
        frames += [LLMTextFrame(text), SleepFrame(0.05)]
    return [*frames, LLMFullResponseEndFrame()]


async def main(url: str, mode: str) -> None:
    service = OpenAITTSService(
        api_key="any",
        base_url=url + "/v1",
        settings=OpenAITTSService.Settings(voice="alloy", model="gpt-4o-mini-tts"),
    )
    if mode == "interrupt":
        frames = [
            LLMFullResponseStartFrame(),
            LLMTextFrame(LONG * 3),
            SleepFrame(0.8),
            InterruptionFrame(),
            SleepFrame(0.3),
            *turn("Second answer."),
            SleepFrame(2.5),
        ]
    else:
        frames = [*turn(*TURN), SleepFrame(2.5)]
    down, up = await run_test(
        service,
        frames_to_send=frames,
        pipeline_params=PipelineParams(enable_metrics=True, audio_out_sample_rate=24000),
    )
    audio = b"".join(f.audio for f in down if isinstance(f, TTSAudioRawFrame))
    words = [f.text for f in down if isinstance(f, TTSTextFrame)]
    errors = [f.error for f in [*down, *up] if isinstance(f, ErrorFrame)]
    print(json.dumps({"audio": base64.b64encode(audio).decode(), "words": words, "errors": errors}))


asyncio.run(main(sys.argv[1], sys.argv[2]))
