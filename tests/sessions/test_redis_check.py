"""What a real redis-server must be like to hold voices, and how an account without rights finds that out."""

from __future__ import annotations

import datetime
import ipaddress
import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from sessions import redis_check, redis_store
from sessions.redis_check import COMMANDS, FORBIDDEN, RedisRules, address_faults
from sessions.redis_store import RedisStore
from sessions.secret import DeploymentSecret
from sessions.voice_limits import VoiceGuard
from sessions.voices import VoiceStore
from tests.peers.redis import CONFIG, RedisServer
from tests.sessions.conftest import eventually
from tts_core.errors import SettingsError, StoreError

RULES = RedisRules()
SECRET = DeploymentSecret(b"deployment secret of these tests")
UNSEEN = "whether it makes snapshots cannot be seen: set VOXWIRE_REDIS_CHECK_URL"


def _store(url: str, rules: RedisRules = RULES) -> RedisStore:
    return RedisStore(url, deadline=5.0, cache_deadline=5.0, heartbeat=0.02, rules=rules)


async def _look(url: str, rules: RedisRules = RULES) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Faults, and notes but for the one on the version, which is the installed one's."""
    store = _store(url, rules)
    await store.start()
    assert store.healthy
    found = store._found
    await store.close()
    return found.faults, tuple(n for n in found.notes if "holes" not in n)


@pytest.fixture
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    made = RedisServer(tmp_path, *getattr(request, "param", ()))
    made.start()
    yield made
    made.kill()


async def test_the_shipped_configuration_is_fit(shared_redis: RedisServer) -> None:
    assert await _look(shared_redis.url) == ((), (UNSEEN,))
    assert await _look(shared_redis.url, RedisRules(inspect_url=shared_redis.check_url)) == ((), ())
    with shared_redis.client() as client:
        assert not list(client.scan_iter("*check*"))  # nothing of the look was ever done
        assert int(client.info("persistence")["rdb_saves"]) == 0


def test_the_shipped_account_is_what_the_driver_needs() -> None:
    (line,) = [x for x in CONFIG.read_text().splitlines() if x.startswith("user voxwire on ")]
    assert sorted(w[1:] for w in line.split() if w[0] == "+") == sorted(COMMANDS)
    assert not {c[0].lower() for c in FORBIDDEN} & set(COMMANDS)
    assert {"EVAL", "KEYS", "CONFIG", "MIGRATE"} <= {c[0] for c in FORBIDDEN}


@pytest.mark.parametrize("server", [("--appendonly", "yes")], indirect=True)
async def test_an_append_only_file_is_a_fault_and_what_lasts_wants_one(server: RedisServer) -> None:
    assert await _look(server.url) == (('it keeps voices on disk: set appendonly no and save ""',), (UNSEEN,))
    assert await _look(server.url, RedisRules(lasting=True)) == ((), ())


async def test_what_lasts_is_told_that_it_does_not(shared_redis: RedisServer) -> None:
    faults, (note,) = await _look(shared_redis.url, RedisRules(lasting=True))
    assert not faults
    assert "appendonly yes" in note


@pytest.mark.parametrize("server", [("--save", "3600 1")], indirect=True)
async def test_planned_snapshots_are_seen_by_the_account_that_looks(server: RedisServer) -> None:
    rules = RedisRules(inspect_url=server.check_url)
    assert await _look(server.url, rules) == (
        ('it keeps voices on disk: set save "" (snapshots are on)',),
        (),
    )
    assert await _look(server.url) == ((), (UNSEEN,))


async def test_a_snapshot_that_was_made_is_seen_without_it(server: RedisServer) -> None:
    with server.client() as client:
        client.save()
        client.set("vx:t:a", "1")
        client.save()
    (fault,), _ = await _look(server.url)
    assert fault.startswith("it has written a snapshot")
    server.kill()
    server.start()
    (fault,), _ = await _look(server.url)
    assert fault.startswith("it began with keys from a snapshot")
    # With the configuration in sight it is the configuration that counts.
    assert await _look(server.url, RedisRules(inspect_url=server.check_url)) == ((), ())


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_eviction_is_a_fault(server: RedisServer, policy: str) -> None:
    with server.client() as client:
        client.config_set("maxmemory-policy", policy)
    for rules in (RULES, RedisRules(lasting=True)):
        (fault,), _ = await _look(server.url, rules)
        assert fault == f"it may drop what it holds: set maxmemory-policy noeviction, not {policy}"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("+eval", "may run EVAL:"),
        ("+keys", "may run KEYS:"),
        ("+config|get", "may run CONFIG:"),
        ("+migrate", "may run MIGRATE:"),
        ("+@scripting +bgsave", "may run EVAL, EVALSHA, SCRIPT, FUNCTION, FCALL, BGSAVE:"),
        ("+flushall", "may run FLUSHALL:"),
        ("~*", "limit it to ~vx:*"),
        ("~other:* %R~not-*", "limit it to ~vx:*"),
        ("&*", "limit it to &vx:*"),
        ("-hgetall -publish", "may not run HGETALL, PUBLISH, which is needed"),
        ("-multi", "may not run MULTI"),
        ("-info", "may not run INFO"),
        ("resetkeys", "may not run GET"),
    ],
)
async def test_each_right_too_many_and_too_few(server: RedisServer, change: str, fault: str) -> None:
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "voxwire", *change.split())
    faults, _ = await _look(server.url)
    assert [fault in f for f in faults] == [True]


@pytest.mark.parametrize(
    "command",
    [
        *(
            ["EVAL", "return 1", "0"],
            ["SCRIPT", "FLUSH"],
            ["KEYS", "*"],
            ["CONFIG", "GET", "*"],
            ["SCAN", "0"],
        ),
        *(["CONFIG", "SET", "dir", "x"], ["MIGRATE", "127.0.0.1", "1", "vx:a", "0", "9"], ["ACL", "LIST"]),
        *(["SAVE"], ["SHUTDOWN"], ["FLUSHDB"], ["MONITOR"], ["GET", "other"], ["PUBLISH", "other", "x"]),
    ],
)
def test_redis_itself_refuses_the_shipped_account(server: RedisServer, command: list[str]) -> None:
    done = subprocess.run(
        ["redis-cli", "-u", server.url, "--no-auth-warning", *command],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert "NOPERM" in done.stdout + done.stderr


@pytest.mark.parametrize("server", [("--rename-command", "EVAL", "")], indirect=True)
async def test_a_command_that_was_renamed_away_is_no_fault(server: RedisServer) -> None:
    with server.client() as client:
        client.execute_command(
            "ACL", "SETUSER", "voxwire", "+@scripting", "-@all", *(f"+{c}" for c in COMMANDS)
        )
    assert (await _look(server.url))[0] == ()


async def test_a_server_as_it_comes_is_unfit_and_may_be_taken_knowingly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = RedisServer(tmp_path, "--save", "60 1", config=None)
    server.start()
    try:
        faults, notes = await _look(server.url)
        assert [f.split(":")[0] for f in faults] == [
            "anybody may connect",
            "it keeps voices on disk",
            "the account may run " + ", ".join(dict.fromkeys(c[0] for c in FORBIDDEN)),
            "the account reaches keys that are not ours",
            "the account reaches channels that are not ours",
        ]
        assert notes == ()  # it lets us see its snapshots
        with caplog.at_level(logging.WARNING, logger=redis_store.__name__):
            assert await _look(server.url, RedisRules(unchecked=True)) == ((), faults)
        told = {r.reason for r in caplog.records if r.levelno == logging.WARNING}  # type: ignore[attr-defined]
        assert set(faults) <= told
    finally:
        server.kill()


@pytest.mark.parametrize(
    ("version", "faults", "notes"),
    [
        ({"redis_version": "6.2.20"}, 1, 0),
        ({"redis_version": "7.0.0"}, 0, 1),
        ({"redis_version": "8.6.2"}, 0, 1),
        ({"redis_version": "8.6.3"}, 0, 0),
        ({"redis_version": "8.10.0"}, 0, 0),
        ({"redis_version": "9.0"}, 0, 0),
        ({"redis_version": "255.255.255"}, 0, 0),
        ({"redis_version": "7.2.4", "server_name": "valkey", "valkey_version": "8.1.4"}, 0, 1),
        ({}, 1, 0),
    ],
)
def test_versions(version: dict[str, str], faults: int, notes: int) -> None:
    found = redis_check._version(version)
    assert (len(found.faults), len(found.notes)) == (faults, notes)


@pytest.mark.parametrize(
    ("url", "faults"),
    [
        ("unix:///run/redis.sock", []),
        ("unix://u:p@/run/redis.sock?db=1", []),
        ("redis://u:p@127.0.0.1:6379/0", []),
        ("redis://u:p@[::1]:6379/0", []),
        ("redis://:p@localhost/0", []),
        ("redis:///0?password=p", []),
        ("rediss://u:p@redis.example.com/0", []),
        ("rediss://redis.example.com/0?ssl_certfile=/c&ssl_keyfile=/k", []),
        ("redis://127.0.0.1:6379/0", ["anybody may connect"]),
        ("redis://u:p@redis.example.com/0", ["without TLS"]),
        ("redis://u:p@localhost.example.com/0", ["without TLS"]),
        ("redis://u:p@10.0.0.1/0", ["without TLS"]),
        ("redis://10.0.0.1/0", ["without TLS", "anybody may connect"]),
        ("rediss://u:p@x/0?ssl_cert_reqs=none", ["is not checked"]),
        ("rediss://u:p@x/0?ssl_cert_reqs=optional", ["is not checked"]),
        ("rediss://u:p@x/0?ssl_check_hostname=False", ["name in its certificate"]),
    ],
)
def test_addresses(url: str, faults: list[str]) -> None:
    found = address_faults(url)
    assert len(found) == len(faults)
    assert all(want in have for want, have in zip(faults, found, strict=True))


def test_the_address_is_judged_before_the_server_is_reached() -> None:
    assert _store("redis://u:p@redis.example.com/0").faults
    assert not _store("redis://u:p@redis.example.com/0", RedisRules(unchecked=True)).faults
    for rules in (RULES, RedisRules(inspect_url="redis://[x/0")):
        with pytest.raises(SettingsError):
            _store("redis://[x/0" if rules is RULES else "redis://u:p@127.0.0.1/0", rules)


async def test_the_account_that_looks_must_be_of_the_same_server(
    server: RedisServer, shared_redis: RedisServer
) -> None:
    for url, fault in (
        (shared_redis.check_url, "VOXWIRE_REDIS_CHECK_URL is another server"),
        (server.url, "VOXWIRE_REDIS_CHECK_URL cannot be used (NoPermissionError): allow +info +config|get"),
        ("redis://u:p@127.0.0.1:1/0", "VOXWIRE_REDIS_CHECK_URL cannot be used (ConnectionError)"),
    ):
        (found,), _ = await _look(server.url, RedisRules(inspect_url=url))
        assert found.startswith(fault)


async def test_a_server_that_comes_back_unfit_takes_no_new_voices(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    store = _store(server.url)
    await store.start()
    voices = VoiceStore(store, SECRET)
    guard = VoiceGuard(store, voices.catalogue)
    assert await guard.enrolment("acme", session=True)
    kept = await voices.put("acme", "s1", b"x" * 16)
    server.kill()
    server.start()
    with server.client() as client:
        client.config_set("appendonly", "yes")

    async def unfit() -> bool:
        return bool(store.faults)

    with caplog.at_level(logging.ERROR, logger=redis_store.__name__):
        await eventually(unfit)
    told = {r.reason for r in caplog.records if r.levelno == logging.ERROR}  # type: ignore[attr-defined]
    assert told == set(store.faults)
    assert store.healthy
    for attempt in (voices.put("acme", "s1", b"x" * 16), guard.enrolment("acme", session=True)):
        with pytest.raises(StoreError, match="must not hold voices"):
            await attempt
    await store.set("vx:t:a", b"1", 5)  # the rest goes on
    assert not await voices.delete("acme", kept.voice_id)
    with server.client() as client:
        client.config_set("appendonly", "no")

    async def fit() -> bool:
        return not store.faults

    await eventually(fit)
    await voices.put("acme", "s1", b"x" * 16)
    await store.close()


async def test_an_account_that_changes_with_an_outage_is_looked_at_again(server: RedisServer) -> None:
    store = RedisStore(server.url, deadline=0.2, heartbeat=0.02, rules=RULES)
    await store.start()
    assert not store.faults
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "voxwire", "+keys")
    server.pause()

    async def away() -> bool:
        return not store.healthy

    await eventually(away)
    server.resume()

    async def unfit() -> bool:
        return store.healthy and bool(store.faults)

    await eventually(unfit)
    await store.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a throw-away CA and a certificate of it for 127.0.0.1."""
    folder = tmp_path_factory.mktemp("ca")
    now = datetime.datetime.now(datetime.UTC)

    def write(name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
        (folder / f"{name}.pem").write_bytes(certificate.public_bytes(pem))
        (folder / f"{name}.key").write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, plain)
        )

    def build(name: str, key: ec.EllipticCurvePrivateKey, issuer: x509.Name) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(hours=1))
        )

    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "throw-away")])
    ca = build("throw-away", ca_key, ca_name).add_extension(x509.BasicConstraints(True, None), critical=True)
    ca = ca.add_extension(x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key()), critical=False)
    write("ca", ca_key, ca.sign(ca_key, hashes.SHA256()))
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    leaf = build("redis", key, ca_name).add_extension(names, critical=False)
    leaf = leaf.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False
    )
    write("redis", key, leaf.sign(ca_key, hashes.SHA256()))
    return folder


async def test_tls_with_a_checked_certificate(tmp_path: Path, authority: Path) -> None:
    server = RedisServer(
        *(tmp_path, "--tls-cert-file", str(authority / "redis.pem"), "--tls-key-file"),
        *(str(authority / "redis.key"), "--tls-ca-cert-file", str(authority / "ca.pem")),
        *("--tls-auth-clients", "no"),
        tls=True,
    )
    server.start()
    trusted = f"?ssl_ca_certs={authority / 'ca.pem'}"
    try:
        rules = RedisRules(inspect_url=server.tls(server.check_url) + trusted)
        assert await _look(server.tls(server.url) + trusted, rules) == ((), ())
        store = _store(server.tls(server.url))  # nobody vouches for this certificate
        await store.start()
        assert not store.healthy
        await store.close()
        unverified, _ = await _look(server.tls(server.url) + "?ssl_cert_reqs=none")
        assert unverified == ("its certificate is not checked: leave out ssl_cert_reqs, name ssl_ca_certs",)
    finally:
        server.kill()
