"""The two engines of GEPARD: over vLLM, for many streams, and over the plain loop, for small machines.

What they are made of is checked here, before anything starts: a checkpoint or a codec that cannot be served
is named together with its setting.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tts_core.errors import BadRequest, EngineError, SettingsError

from .budget import MAX_FRAMES
from .continuity import MOST_FRAMES
from .frame_engine import MISSING, FrameEngine, Options
from .sampling import Sampling

if TYPE_CHECKING:
    from tts_core.nanocodec.service import CodecService

    from .checkpoint import Checkpoint

STREAMS = 32
"""Requests that run at once on vLLM, where nothing else is said: half of what suits one large GPU."""

TORCH_STREAMS = 4
"""The same of the plain loop, which is no faster for it: they take turns."""

VOICES = 256
"""Speaker prefixes kept in vLLM's model."""


class GepardEngine(FrameEngine):
    """GEPARD on vLLM (``vllm_model``).

    Args:
        checkpoint: a directory, or "owner/name@commit" of one that is in the local cache.
        codec: a ``.nemo`` or what it was converted to; empty for one that lies with the checkpoint.
        dtype: of the model; empty for bfloat16.
        streams: requests that run at once; 0 for ``STREAMS``.
        compiled: compile the model at the first start, which takes a minute and makes steps faster.
        codec_backend, codec_processes, codec_device: see ``nanocodec.service.CodecService``.
        guard, continuity, trim: see ``Options``.
        sampling: fields of ``Sampling``.

    Raises:
        SettingsError: names the setting and what is wrong with it.
    """

    def __init__(
        self,
        *,
        checkpoint: str = "",
        codec: str = "",
        dtype: str = "",
        streams: int = 0,
        compiled: bool = True,
        codec_backend: str = "onnx",
        codec_processes: int = 1,
        codec_device: str = "cpu",
        guard: bool = True,
        continuity: bool = False,
        trim: bool = True,
        **sampling: Any,
    ) -> None:
        opened = open_checkpoint(checkpoint)
        from .vllm_model import VllmModel

        options = Options(_sampling(sampling), guard, continuity, trim)
        count = streams or STREAMS
        model = VllmModel(
            opened,
            dtype=dtype or "bfloat16",
            max_streams=count,
            max_frames=MAX_FRAMES,
            max_context=MOST_FRAMES if continuity else 0,
            voices=max(VOICES, count),
            guidance=options.sampling.guides(0),
            compiled=compiled,
            threads=_threads(codec_processes),
        )
        path = find_codec(codec, opened.directory)
        service = _service(path, codec_backend, codec_processes, codec_device)
        super().__init__("gepard", opened, model, service, codec_digest=codec_digest(path), options=options)


class GepardTorchEngine(FrameEngine):
    """GEPARD by the plain loop (``torch_model``): no vLLM, and no faster for several streams than for one.

    Args: as for ``GepardEngine``; ``dtype`` is float32 where it is empty, ``streams`` ``TORCH_STREAMS``.

    Raises:
        SettingsError: as there.
    """

    def __init__(
        self,
        *,
        checkpoint: str = "",
        codec: str = "",
        dtype: str = "",
        streams: int = 0,
        codec_backend: str = "onnx",
        codec_processes: int = 1,
        codec_device: str = "cpu",
        guard: bool = True,
        continuity: bool = False,
        trim: bool = True,
        **sampling: Any,
    ) -> None:
        opened = open_checkpoint(checkpoint)
        from .torch_model import TorchModel

        options = Options(_sampling(sampling), guard, continuity, trim)
        model = TorchModel(
            opened,
            dtype=dtype or "float32",
            slots=streams or TORCH_STREAMS,
            threads=_threads(codec_processes),
        )
        path = find_codec(codec, opened.directory)
        service = _service(path, codec_backend, codec_processes, codec_device)
        super().__init__(
            "gepard-torch",
            opened,
            model,
            service,
            codec_digest=codec_digest(path),
            options=options,
        )


def _threads(codec_processes: int) -> int:
    """Threads that a model on the CPU computes with: a core is left to each process of the codec.

    One that finds its core taken holds all others up, many times in a step.
    """
    return max(1, len(os.sched_getaffinity(0)) - codec_processes)


def _sampling(values: dict[str, Any]) -> Sampling:
    try:
        return Sampling(**values)
    except BadRequest as error:
        raise SettingsError(f"gepard_{error.field}: {error.message}") from None


def _service(path: Path, backend: str, processes: int, device: str) -> CodecService:
    from tts_core.nanocodec.service import CodecService

    # A GPU is faster for larger steps; a CPU only makes everyone wait longer.
    batch = 16 if device == "cpu" else 256
    return CodecService(path, backend=backend, processes=processes, device=device, batch_frames=batch)


def open_checkpoint(name: str) -> Checkpoint:
    """The checkpoint that a setting names. Raises SettingsError, also where nothing can read one."""
    try:
        from .checkpoint import Checkpoint
    except ModuleNotFoundError as error:
        raise SettingsError(MISSING) from error
    if not name:
        raise SettingsError(
            "gepard_checkpoint is not set; accepted: a directory with a checkpoint, or owner/name@commit of "
            "one that 'voxwire models fetch' has fetched"
        )
    try:
        return Checkpoint.open(
            Path(name).expanduser() if Path(name).expanduser().is_dir() else name, offline=True
        )
    except SettingsError as error:
        raise SettingsError(f"gepard_checkpoint = {name!r}: {error.message}") from None


def find_codec(name: str, checkpoint: Path) -> Path:
    """The codec file that a setting names, or the one that lies with the checkpoint.

    Raises:
        SettingsError: there is none.
    """
    if name:
        path = Path(name).expanduser()
        if not path.is_file():
            raise SettingsError(
                f"gepard_codec = {name!r} is not a file; accepted: a .nemo or .safetensors file"
            )
        return path
    # The .nemo first: what it was converted to lies beside it, and is compared with it.
    found = [*sorted(checkpoint.glob("*.nemo")), *sorted(checkpoint.glob("*codec*.safetensors"))]
    if not found:
        raise SettingsError(
            "gepard_codec is not set and no codec lies with the checkpoint; accepted: the .nemo file of "
            "nvidia/nemo-nano-codec-22khz-1.89kbps-21.5fps, or what it was converted to"
        )
    return found[0]


def codec_digest(path: Path) -> str:
    """The SHA-256 of the ``.nemo`` that a codec came from, hex. Blocks. Raises SettingsError."""
    from tts_core.nanocodec.weights import file_digest, read_header

    try:
        return file_digest(path) if path.suffix == ".nemo" else read_header(path).source
    except EngineError as error:
        raise SettingsError(f"gepard_codec: {error.message}") from None
