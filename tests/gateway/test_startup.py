from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway import startup
from gateway.settings import Settings
from sessions.audit import AuditChain, AuditRow
from tests.tone import ToneEngine
from tts_core.errors import SettingsError, StoreError

KEY = "a-long-enough-key-0123"


def settings(folder: Path, **values: object) -> Settings:
    return replace(Settings(data_dir=folder / "data"), **values)  # type: ignore[arg-type]


async def test_everything_that_start_begins_close_ends(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    services = startup.build(settings(tmp_path), engine=ToneEngine())
    await startup.start(services)
    assert services.guard.local_mode
    assert (services.settings.data_dir / "local.key").stat().st_mode & 0o077 == 0
    await services.stop_tasks()
    await startup.close(services)
    assert asyncio.all_tasks() == before


async def test_an_engine_that_keeps_and_counts_is_asked_to(tmp_path: Path) -> None:
    class Keeping(ToneEngine):
        def __init__(self) -> None:
            super().__init__()
            self.forgotten: list[str] = []

        def events(self) -> dict[str, int]:
            return {"truncated": 3}

        def gauges(self) -> dict[str, float]:
            return {"codec_duty": 0.5}

        def forget(self, salt: str) -> int:
            self.forgotten.append(salt)
            return 1

    engine = Keeping()
    services = startup.build(settings(tmp_path), engine=engine)
    await startup.start(services)
    text = services.metrics.text().decode()
    assert 'voxwire_engine_events_total{event="truncated"} 3.0' in text
    assert "voxwire_engine_codec_duty 0.5" in text
    kept = await services.voices.put("acme", None, bytes(16), None)
    await services.voices.delete("acme", kept.voice_id)
    assert set(engine.forgotten) == {services.voices.salt("acme", kept.voice_id)}
    await services.stop_tasks()
    await startup.close(services)


async def test_an_open_bind_without_a_key_does_not_start(tmp_path: Path) -> None:
    services = startup.build(settings(tmp_path, host="0.0.0.0"), engine=ToneEngine())
    with pytest.raises(SettingsError, match="no API key"):
        await startup.start(services)
    await startup.close(services)


async def test_an_open_bind_with_a_key_starts_and_is_not_local(tmp_path: Path) -> None:
    services = startup.build(settings(tmp_path, host="0.0.0.0", api_keys=f"acme:{KEY}"), engine=ToneEngine())
    await startup.start(services)
    assert not services.guard.local_mode
    assert services.keyring.authenticate(KEY).tenant == "acme"
    await services.stop_tasks()
    await startup.close(services)


async def test_a_redis_that_is_away_is_no_reason_not_to_start(tmp_path: Path) -> None:
    away = settings(tmp_path, redis_url="redis://u:p@127.0.0.1:1/0", api_keys=f"acme:{KEY}")
    services = startup.build(away, engine=ToneEngine())
    async with asyncio.timeout(10):
        await startup.start(services)
    assert not services.store.healthy
    assert services.keyring.authenticate(KEY).tenant == "acme"
    await services.stop_tasks()
    await startup.close(services)


def test_an_unknown_engine_is_a_settings_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="engine"):
        startup.build(settings(tmp_path, engine="nobody"))


async def test_a_data_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    services = startup.build(settings(tmp_path), engine=ToneEngine())
    with pytest.raises(SettingsError, match=r"data_dir = .*data': .*cannot be read or made"):
        await startup.start(services)
    await startup.close(services)


async def test_a_shared_store_asks_for_a_shared_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Whatever other tests made of logging: this logger's records are seen.
    logger = logging.getLogger(startup.__name__)
    logger.addHandler(caplog.handler)
    caplog.set_level(logging.WARNING, logger=startup.__name__)
    try:
        for secret, told in (("", True), ("s" * 32, False)):
            caplog.clear()
            away = settings(tmp_path, redis_url="redis://u:p@127.0.0.1:1/0", secret=secret)
            services = startup.build(away, engine=ToneEngine())
            try:
                await startup.start(services)
            finally:
                await services.stop_tasks()
                await startup.close(services)
            assert any("VOXWIRE_SECRET" in record.msg for record in caplog.records) == told
    finally:
        logger.removeHandler(caplog.handler)


@pytest.mark.parametrize(("mark", "event"), [(True, "mark.on"), (False, "mark.off")])
async def test_whether_speech_is_marked_stands_in_the_audit_chain(
    tmp_path: Path, mark: bool, event: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each start, and also where the store is away at first (trust.md L7)."""
    monkeypatch.setattr(startup, "NOTE_AGAIN_S", 0.0)
    append, away = AuditChain.append, iter((True, True))

    async def failing(chain: AuditChain, *row: Any, **how: Any) -> AuditRow:
        if next(away, False):
            raise StoreError("the store is away")
        return await append(chain, *row, **how)

    monkeypatch.setattr(AuditChain, "append", failing)
    services = startup.build(settings(tmp_path, mark=mark), engine=ToneEngine())
    await startup.start(services)
    async with asyncio.timeout(10):
        while [row.event async for row in services.desk.audit.rows()][:1] != [event]:
            await asyncio.sleep(0)
    (row, *_) = [row async for row in services.desk.audit.rows()]
    assert row.details == {"node": services.desk.nodes.node}
    await services.stop_tasks()
    await startup.close(services)
