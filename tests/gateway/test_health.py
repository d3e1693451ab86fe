from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.health import readiness
from tests.gateway.test_security import ask, bearer
from tests.peers.gateway import Running, Start
from tests.peers.redis import RedisServer
from tts_core.errors import StoreError

KEY = "configured-key-of-test"


async def test_alive_and_ready(gateway: Running) -> None:
    assert await ask(gateway, "/healthz") == (200, {"status": "alive"})
    assert await ask(gateway, "/health") == (200, {"status": "alive"})
    status, body = await ask(gateway, "/readyz")
    assert (status, body["ready"], body["status"], body["reasons"]) == (200, True, "ready", [])
    assert body["store"] == {"driver": "memory", "state": "ok"}
    assert body["engine"]["alive"] == 1


async def test_probes_may_use_any_host_name(gateway: Running) -> None:
    assert (await ask(gateway, "/healthz", host="10.1.2.3"))[0] == 200
    assert (await ask(gateway, "/readyz", host="pod.cluster.local"))[0] == 200


async def test_not_ready_without_a_worker_or_while_draining(gateway: Running) -> None:
    gateway.engine.alive = 0
    status, body = await ask(gateway, "/readyz")
    assert (status, body["reasons"]) == (503, ["engine has no live worker"])
    gateway.engine.alive = 1
    gateway.services.draining.set()
    status, body = await ask(gateway, "/readyz")
    assert (status, body["reasons"], body["draining"]) == (503, ["draining"], True)
    assert (await ask(gateway, "/healthz"))[0] == 200


async def test_a_lost_store_is_degraded_yet_ready_and_recovers_by_itself(
    start_gateway: Start, tmp_path: Path
) -> None:
    server = RedisServer(tmp_path)
    server.start()
    try:
        gateway = await start_gateway(redis_url=server.url, api_keys=f"acme:{KEY}")
        assert readiness(gateway.services)[1]["status"] == "ready"
        server.kill()
        await until(gateway, healthy=False)
        status, body = await ask(gateway, "/readyz")
        assert (status, body["status"], body["store"]) == (
            200,
            "degraded",
            {"driver": "redis", "state": "degraded"},
        )
        assert (await ask(gateway, "/v1/voices", bearer(KEY)))[0] == 200
        assert "voxwire_store_up 0.0" in gateway.services.metrics.text().decode()
        server.start()
        await until(gateway, healthy=True)
        assert (await ask(gateway, "/readyz"))[1]["status"] == "ready"
        assert "voxwire_store_up 1.0" in gateway.services.metrics.text().decode()
    finally:
        server.kill()


async def until(gateway: Running, *, healthy: bool) -> None:
    async with asyncio.timeout(20):
        while gateway.services.store.healthy is not healthy:
            with contextlib.suppress(StoreError):
                await gateway.services.store.get("vx:t")
            await asyncio.sleep(0.01)


async def test_metrics_are_for_this_machine_or_an_admin(start_gateway: Start) -> None:
    gateway = await start_gateway()
    async with aiohttp.ClientSession() as http, http.get(f"{gateway.url}/metrics") as response:
        text = await response.text()
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    names = {family.name for family in text_string_to_metric_families(text)}
    assert names >= {
        "voxwire_first_audio_seconds", "voxwire_underrun_seconds", "voxwire_lead_seconds", "voxwire_refusals",
        "voxwire_active_contexts", "voxwire_sessions", "voxwire_engine_xrt", "voxwire_context_rtf",
        "voxwire_queue_wait_seconds", "voxwire_event_loop_lag_seconds", "voxwire_store_up",
        "voxwire_phrase_cache", "voxwire_frame_lateness_seconds", "voxwire_socket_bytes",
    }  # fmt: skip
    assert "voxwire_engine_xrt 200.0" in text
    for headers in ({"X-Forwarded-For": "1.2.3.4"}, {"Sec-Fetch-Site": "cross-site"}):
        assert (await ask(gateway, "/metrics", headers))[0] in {401, 403}


@pytest.mark.parametrize(("rule", "want"), [("off", 404), ("key", 401), ("open", 200), ("local", 200)])
async def test_the_metrics_rule(start_gateway: Start, rule: str, want: int) -> None:
    gateway = await start_gateway(metrics=rule)
    assert (await ask(gateway, "/metrics"))[0] == want
