"""``voxwire models``: fetch, check and make checkpoints of the GEPARD engine, convert the speaker model.

Only here does the command line touch a model's stack, and only once a command needs it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

from tts_core.errors import VoxwireError

DEFAULT = "nineninesix/gepard-1.0"

CODEC = "codec.nemo"
"""What a made codec is called."""

_MISSING = "this needs the model's packages: install voxwire with the extra 'gepard' or 'gepard-cpu'"


def add_models(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the command ``models`` to ``commands``."""
    models = commands.add_parser("models", help="fetch, check, make or convert a model")
    actions = models.add_subparsers(dest="action", metavar="ACTION", required=True, parser_class=type(models))

    fetch = actions.add_parser("fetch", help="fetch a checkpoint from a hub; go on where it broke off")
    fetch.add_argument(
        "id", nargs="?", default=DEFAULT, help=f"owner/name on Hugging Face (default: {DEFAULT})"
    )
    fetch.add_argument("--revision", help="commit, branch or tag (default: the newest commit, which is told)")
    fetch.add_argument(
        "--out", type=Path, metavar="DIR", help="put plain files there (default: the cache of voxwire)"
    )
    fetch.set_defaults(run=_guarded(_fetch))

    check = actions.add_parser("check", help="see that a checkpoint is whole, and say what it is")
    check.add_argument("checkpoint", help="a directory, or owner/name of one that was fetched")
    check.add_argument("--revision", help="the commit, with owner/name")
    check.set_defaults(run=_guarded(_check))

    make = actions.add_parser(
        "make-tiny", help="make a model with random weights: noise, to try the whole path"
    )
    make.add_argument("directory", type=Path, help="where to; made if need be")
    make.add_argument(
        "--size", choices=("tiny", "full"), default="tiny",
        help="full has the sizes of the published model: 1.3 GB or more (default: tiny)",
    )  # fmt: skip
    make.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), default="float32",
        help="number type of the weights (default: float32)",
    )  # fmt: skip
    make.add_argument("--seed", type=_seed, default=0, help="another seed, other weights (default: 0)")
    make.set_defaults(run=_guarded(_make))

    speaker = actions.add_parser(
        "convert-speaker", help="make the file for VOXWIRE_SPEAKER_MODEL out of Resemblyzer 0.1.4"
    )
    speaker.add_argument(
        "source",
        type=Path,
        metavar="FILE",
        help="the wheel (pip download --no-deps resemblyzer==0.1.4) or its .pt",
    )
    speaker.add_argument("target", type=Path, metavar="OUT", help="the file to write, as speaker.onnx")
    speaker.set_defaults(run=_convert_speaker)


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _guarded(run: Callable[[argparse.Namespace], int]) -> Callable[[argparse.Namespace], int]:
    """Say in plain words what to install where the model's packages are not."""

    def guarded(args: argparse.Namespace) -> int:
        try:
            return run(args)
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] in {"gateway", "sessions", "telephony", "tts_core"}:
                raise
            raise VoxwireError(_MISSING) from None

    return guarded


def _fetch(args: argparse.Namespace) -> int:
    from tts_core.gepard.checkpoint import Checkpoint
    from tts_core.gepard.fetch import fetch

    fetched = fetch(args.id, args.revision, into=args.out, on_progress=_Progress())
    Checkpoint.open(fetched.directory)
    for name, digest in fetched.hashes.items():
        _file(fetched.directory / name, digest)
    print(f"commit {fetched.commit}")
    print(f"ready in {fetched.directory}")
    return 0


class _Progress:
    """One line on a terminal that is written over; nothing where nobody watches."""

    def __init__(self) -> None:
        self._percent = -1

    def __call__(self, name: str, done: int, size: int) -> None:
        percent = 100 if done >= size else 100 * done // size
        if not sys.stderr.isatty() or percent == self._percent:
            return
        self._percent = percent
        bar = "#" * (percent // 5)
        sys.stderr.write(f"\r{name:24} [{bar:20}] {percent:3} % of {size / 1e6:.1f} MB")
        sys.stderr.write("\n" if percent == 100 else "")
        sys.stderr.flush()


def _check(args: argparse.Namespace) -> int:
    from tts_core.gepard.checkpoint import FILES, Checkpoint, sha256

    checkpoint = Checkpoint.open(args.checkpoint, revision=args.revision, offline=True)
    checkpoint.tokenizer()
    count = checkpoint.check_values()
    for name in FILES:
        _file(checkpoint.directory / name, sha256(checkpoint.directory / name))
    config, backbone = checkpoint.config, checkpoint.config.backbone
    print(
        f"{count / 1e6:.1f} million numbers, {config.dtype}; {backbone.num_hidden_layers} layers of "
        f"{backbone.hidden_size}, {backbone.vocab_size} text tokens"
    )
    voices = f"voices of {config.prefix_rows} rows" if config.cloning else "no cloned voices"
    repetition = "short texts repeated" if config.repetition.enabled else "texts never repeated"
    print(f"{voices}; {repetition}")
    if checkpoint.ignored:
        print(f"not loaded, as they serve training alone: {', '.join(checkpoint.ignored)}")
    print("the checkpoint is whole")
    return 0


def _make(args: argparse.Namespace) -> int:
    from tts_core.gepard.checkpoint import Checkpoint, shapes
    from tts_core.gepard.tiny import make_tiny
    from tts_core.nanocodec.tiny import make_tiny_nemo

    made = Checkpoint.open(make_tiny(args.directory, seed=args.seed, size=args.size, dtype=args.dtype))
    # Beside it lies a codec of the same kind, which the engine finds there: the whole path can be tried.
    make_tiny_nemo(args.directory / CODEC, seed=args.seed, size=args.size)
    count = sum(prod(shape) for shape in shapes(made.config).values())
    print(f"{count / 1e6:.1f} million random numbers and a random codec in {args.directory}")
    return 0


def _convert_speaker(args: argparse.Namespace) -> int:
    from gateway.trust.convert import PINNED, convert

    convert(args.source, args.target)
    _file(args.target, PINNED)
    print(f"use it with VOXWIRE_SPEAKER_MODEL={args.target}")
    return 0


def _file(path: Path, digest: str) -> None:
    print(f"{digest}  {path.name}  ({path.stat().st_size:,} bytes)")
