"""The tar around a codec: read once, as data; hostile ones are refused."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tts_core.errors import EngineError
from tts_core.nanocodec import archive
from tts_core.nanocodec.archive import CHECKPOINT, CONFIG, read_members

GOOD = (("./model_config.yaml", b"a: 1\n"), ("./model_weights.ckpt", b"weights"))


def packed(*members: tuple[str, bytes] | tarfile.TarInfo, gz: bool = False) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz" if gz else "w") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
                continue
            info = tarfile.TarInfo(member[0])
            info.size = len(member[1])
            tar.addfile(info, io.BytesIO(member[1]))
    return out.getvalue()


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


def read(tmp_path: Path, data: bytes) -> tuple[bytes, bytes]:
    path = tmp_path / "x.nemo"
    path.write_bytes(data)
    return read_members(path)


@pytest.mark.parametrize("gz", [False, True])
@pytest.mark.parametrize("prefix", ["./", ""])
def test_both_files_are_read(tmp_path: Path, gz: bool, prefix: str) -> None:
    members = [(f"{prefix}{name}", data) for name, data in ((CONFIG, b"a: 1\n"), (CHECKPOINT, b"weights"))]
    folder = special("./", tarfile.DIRTYPE)
    other = ("./tokenizer_of_another_kind.txt", b"not looked into")
    assert read(tmp_path, packed(folder, *members, other, gz=gz)) == (b"a: 1\n", b"weights")


@pytest.mark.parametrize(
    "members",
    [
        [GOOD[0]],
        [GOOD[1]],
        [*GOOD, ("model_weights.ckpt", b"another")],
        [*GOOD, ("././model_config.yaml", b"another")],
        [*GOOD, special("x", tarfile.SYMTYPE, "/etc/passwd")],
        [GOOD[0], special("./model_weights.ckpt", tarfile.SYMTYPE, "/etc/passwd")],
        [GOOD[0], special("./model_weights.ckpt", tarfile.LNKTYPE, "./model_config.yaml")],
        [*GOOD, special("x", tarfile.FIFOTYPE)],
        [*GOOD, special("x", tarfile.CHRTYPE)],
        [GOOD[0], special("./model_weights.ckpt", tarfile.DIRTYPE)],
        [*GOOD, ("../x", b"")],
        [*GOOD, ("a/../../x", b"")],
        [*GOOD, ("/etc/x", b"")],
        [*GOOD, ("a\\..\\x", b"")],
        [*GOOD, *[(f"x{n}", b"") for n in range(archive.MAX_MEMBERS)]],
        [("sub/model_config.yaml", b"a: 1"), ("sub/model_weights.ckpt", b"")],
    ],
)
def test_hostile_archives_are_refused(
    tmp_path: Path, members: list[tuple[str, bytes] | tarfile.TarInfo]
) -> None:
    with pytest.raises(EngineError):
        read(tmp_path, packed(*members))
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.nemo"]


def test_a_large_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="too large"):
        read(tmp_path, packed((CONFIG, bytes(archive.MAX_CONFIG + 1)), GOOD[1]))


def test_a_size_that_is_a_lie_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo(CHECKPOINT)
    info.size = archive.MAX_CHECKPOINT + 1
    with pytest.raises(EngineError, match="too large"):
        read(tmp_path, packed(GOOD[0])[:1024] + info.tobuf() + bytes(512))


def test_a_bomb_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_ARCHIVE", 10 << 20)
    bomb = gzip.compress(packed(GOOD[0], ("padding", bytes(12 << 20)), GOOD[1]))
    assert len(bomb) < 1 << 20
    with pytest.raises(EngineError, match="too large"):
        read(tmp_path, bomb)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(0, 1, exclude_max=True), st.booleans())
def test_a_part_of_an_archive_is_refused(tmp_path: Path, share: float, gz: bool) -> None:
    members = (GOOD[0], ("./model_weights.ckpt", bytes(range(256)) * 8))
    data = packed(*members, gz=gz).rstrip(b"\0") if not gz else packed(*members, gz=True)
    # What follows the last member is padding; a tar without it is whole.
    cut = data[: int(share * len(data))]
    try:
        found = read(tmp_path, cut)
    except EngineError:
        return
    assert found == (members[0][1], members[1][1])


@pytest.mark.parametrize(
    "data", [b"", b"x", b"\x1f\x8b", b"\x1f\x8b" + bytes(64), b"PK\x03\x04" + bytes(999)]
)
def test_what_is_no_archive_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(EngineError):
        read(tmp_path, data)


def test_a_missing_file_is_an_engine_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError):
        read_members(tmp_path / "none.nemo")
