"""pipecat's unmodified Cartesia service against a gateway; run in the ``pipecat`` environment.

Arguments: gateway address, mode (sentence, token, interrupt, late). Prints one JSON object.
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
from pipecat.services.cartesia.tts import CartesiaTTSService  # noqa: E402
from pipecat.services.tts_service import TextAggregationMode  # noqa: E402
from pipecat.tests.utils import SleepFrame, run_test  # noqa: E402

TURN = ["Hello there, this is the fir", "st delta. Your order number is 42", "15 and it ships on Thursday."]
LONG = (
    "A long first answer that the caller will interrupt before it ends. "
    "And another sentence that follows it. "
)


def turn(*texts: str) -> list[object]:
    frames: list[object] = [LLMFullResponseStartFrame()]
    for text in texts:
        frames += [LLMTextFrame(text), SleepFrame(0.05)]
    return [*frames, LLMFullResponseEndFrame()]


async def main(url: str, mode: str) -> None:
    options = {"text_aggregation_mode": TextAggregationMode.TOKEN} if mode == "token" else {}
    service = CartesiaTTSService(
        api_key="any",
        url=url.replace("http", "ws", 1) + "/tts/websocket",
        sample_rate=22050,
        settings=CartesiaTTSService.Settings(voice="heart", model="gepard-1.0"),
        **options,
    )
    second = [SleepFrame(0.3), *turn("Second answer."), SleepFrame(2.5)]
    if mode == "interrupt":
        frames = [
            LLMFullResponseStartFrame(),
            LLMTextFrame(LONG),
            SleepFrame(0.8),
            InterruptionFrame(),
            *second,
        ]
    elif mode == "late":
        frames = [*turn(LONG), SleepFrame(0.8), InterruptionFrame(), *second]
    else:
        frames = [*turn(*TURN), SleepFrame(2.5)]
    down, up = await run_test(
        service,
        frames_to_send=frames,
        pipeline_params=PipelineParams(enable_metrics=True, audio_out_sample_rate=22050),
    )
    audio = b"".join(f.audio for f in down if isinstance(f, TTSAudioRawFrame))
    words = [[f.text, f.pts] for f in down if isinstance(f, TTSTextFrame)]
    errors = [f.error for f in [*down, *up] if isinstance(f, ErrorFrame)]
    print(json.dumps({"audio": base64.b64encode(audio).decode(), "words": words, "errors": errors}))


asyncio.run(main(sys.argv[1], sys.argv[2]))
