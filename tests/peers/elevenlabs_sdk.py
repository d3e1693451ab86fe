"""The unmodified ``elevenlabs`` Python SDK against a gateway over TLS; run in the ``sdk`` environment.

Arguments: address (https), voice. The CA is in ``SSL_CERT_FILE``. Prints one JSON object, a part per call.
"""

import base64
import json
import sys
from collections.abc import Iterator
from typing import Any

from elevenlabs import VoiceSettings
from elevenlabs.client import ElevenLabs
from elevenlabs.core.api_error import ApiError

TURN = ["Hello there, this is the first delta. ", "Your order number is 4215 ", "and it ships on Thursday."]
TEXT = "".join(TURN)


def packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


def arrays(found: Any) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "chars": found.characters,
        "starts": found.character_start_times_seconds,
        "ends": found.character_end_times_seconds,
    }


def main(url: str, voice: str) -> None:
    client = ElevenLabs(api_key="any", base_url=url)
    speech = client.text_to_speech
    out: dict[str, Any] = {}
    pcm: dict[str, Any] = {"voice_id": voice, "model_id": "gepard-1.0", "output_format": "pcm_22050"}
    settings = VoiceSettings(stability=0.5, similarity_boost=0.8, speed=1.0)
    out["convert"] = packed(b"".join(speech.convert(text=TEXT, voice_settings=settings, **pcm)))
    out["stream"] = packed(b"".join(speech.stream(text=TEXT, **pcm)))
    out["mp3"] = packed(b"".join(speech.convert(text=TEXT, voice_id=voice)))
    timed = speech.convert_with_timestamps(text=TEXT, **pcm)
    out["timed"] = {"audio": timed.audio_base_64, "alignment": arrays(timed.alignment)}
    out["timed_stream"] = [
        {"audio": chunk.audio_base_64, "alignment": arrays(chunk.alignment)}
        for chunk in speech.stream_with_timestamps(text=TEXT, **pcm)
    ]

    def text() -> Iterator[str]:
        yield from TURN

    out["realtime"] = packed(b"".join(speech.convert_realtime(text=text(), **pcm)))
    out["realtime_mp3"] = packed(
        b"".join(speech.convert_realtime(text=text(), voice_id=voice, voice_settings=settings))
    )
    out["voices"] = [v.voice_id for v in client.voices.get_all().voices]
    out["search"] = [v.voice_id for v in client.voices.search(page_size=100).voices]
    out["voice"] = client.voices.get(voice_id=voice).name
    out["models"] = [model.model_id for model in client.models.list()]
    out["user"] = client.user.get().subscription.status
    out["subscription"] = client.user.subscription.get().character_limit
    out["token"] = client.tokens.single_use.create("tts_websocket").token
    try:
        b"".join(speech.convert(text=TEXT, voice_id="nobody", output_format="pcm_22050"))
    except ApiError as error:
        out["error"] = [error.status_code, error.body]
    print(json.dumps(out))


main(*sys.argv[1:3])
