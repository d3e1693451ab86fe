"""pipecat's unmodified speech services against a gateway; run in the ``pipecat`` environment.

Arguments: gateway address, service (cartesia, deepgram, deepgram-flux, openai), mode (sentence, token,
interrupt, late). Prints one JSON object.
"""

import asyncio
import base64
import json
import sys
from typing import Any

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
from pipecat.services.deepgram.flux.tts import DeepgramFluxTTSService  # noqa: E402
from pipecat.services.deepgram.tts import DeepgramTTSService  # noqa: E402
from pipecat.services.openai.tts import OpenAITTSService  # noqa: E402
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


def service_of(name: str, url: str, options: dict[str, Any]) -> tuple[Any, int]:
    """The service as its users make it, and its rate."""
    socket = url.replace("http", "ws", 1)
    if name == "deepgram":
        voice = DeepgramTTSService.Settings(voice="aura-2-thalia-en")
        return (
            DeepgramTTSService(api_key="any", base_url=socket, sample_rate=24000, settings=voice, **options),
            24000,
        )
    if name == "deepgram-flux":
        flux = DeepgramFluxTTSService.Settings(voice="flux-alexis-en")
        aggregation = {"text_aggregation_mode": TextAggregationMode.SENTENCE, **options}
        return (
            DeepgramFluxTTSService(
                api_key="any", url=socket + "/v2/speak", sample_rate=24000, settings=flux, **aggregation
            ),
            24000,
        )
    if name == "openai":
        alloy = OpenAITTSService.Settings(voice="alloy", model="gpt-4o-mini-tts")
        return OpenAITTSService(api_key="any", base_url=url + "/v1", settings=alloy, **options), 24000
    heart = CartesiaTTSService.Settings(voice="heart", model="gepard-1.0")
    return (
        CartesiaTTSService(
            api_key="any", url=socket + "/tts/websocket", sample_rate=22050, settings=heart, **options
        ),
        22050,
    )


async def main(url: str, name: str, mode: str) -> None:
    options = {"text_aggregation_mode": TextAggregationMode.TOKEN} if mode == "token" else {}
    service, rate = service_of(name, url, options)
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
        pipeline_params=PipelineParams(enable_metrics=True, audio_out_sample_rate=rate),
    )
    audio = b"".join(f.audio for f in down if isinstance(f, TTSAudioRawFrame))
    words = [[f.text, f.pts] for f in down if isinstance(f, TTSTextFrame)]
    errors = [f.error for f in [*down, *up] if isinstance(f, ErrorFrame)]
    print(json.dumps({"audio": base64.b64encode(audio).decode(), "words": words, "errors": errors}))


asyncio.run(main(*sys.argv[1:4]))
