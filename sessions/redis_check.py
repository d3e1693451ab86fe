"""Whether a Redis is fit to hold voices: looked at when it is first reached and again whenever it is back.

What is asked for, and how far it can be seen by an account that is limited as it should be:

- Nothing on disk: no append-only file (INFO says so) and no snapshots. INFO does not tell whether snapshots
  are planned, only that one was written or loaded; CONFIG GET would tell, but the account that holds voices
  may not run CONFIG. So a second account of the same server, for this look alone, may be named
  (``inspect_url``); where there is none, what INFO shows is judged at each look, and the rest is a note.
- No eviction (INFO): a voice ends when its lease or its owner says so, and a revoked consent stays revoked.
- An account that reaches nothing but our keys and channels and runs nothing that computes in the server,
  walks over its keys, changes it, writes it to disk or sends it elsewhere. Each such command is put behind
  MULTI on a connection that is then closed: Redis says NOPERM at once to who may not run it, and nobody ever
  runs it (https://redis.io/docs/latest/develop/using-commands/transactions/, errors inside a transaction).
  The same way shows that all commands which the driver needs are allowed.
- TLS with a checked certificate and a password, or a Unix socket; on loopback a password is enough.
- A version without known holes: 8.6.3 (CVE-2026-23479). Below that is a note and no refusal: distributions
  mend an old version without renaming it, and the worst hole (CVE-2025-49844, by Lua) is shut to an account
  that may not run scripts, which is asked for above. Below 7.0 the driver's own commands and the limit on
  channels are missing: refused. Valkey counts its versions otherwise and is not judged by them.

Copies that a replica or an operator makes cannot be seen from here.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from redis.asyncio import BlockingConnectionPool, Redis
from redis.exceptions import AuthenticationError, NoPermissionError, RedisError, ResponseError

from tts_core.errors import SettingsError

LEAST = (7, 0)
SAFE = (8, 6, 3)

_KEY, _FOREIGN = "vx:%:check", "not-of-voxwire"
_SCRIPT = "return 1"

NEEDED: Mapping[str, tuple[str, ...]] = {
    "get": (_KEY,),
    "mget": (_KEY,),
    "set": (_KEY, "1"),
    "unlink": (_KEY,),
    "pexpire": (_KEY, "1"),
    "incrby": (_KEY, "1"),
    "decrby": (_KEY, "1"),
    "watch": (_KEY,),
    "unwatch": (),
    "multi": (),
    "exec": (),
    "zadd": (_KEY, "1", "m"),
    "zrem": (_KEY, "m"),
    "zrange": (_KEY, "0", "0"),
    "hset": (_KEY, "f", "1"),
    "hdel": (_KEY, "f"),
    "hvals": (_KEY,),
    "hmget": (_KEY, "f"),
    "hkeys": (_KEY,),
    "hget": (_KEY, "f"),
    "hgetall": (_KEY,),
    "exists": (_KEY,),
    "publish": (_KEY, "1"),
    "subscribe": (_KEY,),
    "ping": (),
    "time": (),
    "select": ("0",),
    "info": (),
}
"""Every command that the driver sends, with arguments that Redis takes: for the look, which runs none."""

COMMANDS = tuple(NEEDED)
"""Everything that this driver sends: ``ACL SETUSER voxwire on >... ~vx:* &vx:* -@all +get +set ...``."""

FORBIDDEN: tuple[tuple[str, ...], ...] = (
    ("EVAL", _SCRIPT, "0"),
    ("EVALSHA", "0" * 40, "0"),
    ("SCRIPT", "LOAD", _SCRIPT),
    ("FUNCTION", "LOAD", "#!lua name=none"),
    ("FCALL", "none", "0"),
    ("KEYS", _FOREIGN),
    ("SCAN", "0"),
    ("CONFIG", "GET", "save"),
    ("CONFIG", "SET", "save", ""),
    ("ACL", "SETUSER", "nobody"),
    ("MODULE", "LIST"),
    ("MIGRATE", "127.0.0.1", "1", _KEY, "0", "1"),
    ("DUMP", _KEY),
    ("REPLICAOF", "NO", "ONE"),
    ("BGSAVE",),
    ("BGREWRITEAOF",),
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("SWAPDB", "0", "0"),
)
"""What the account may not run, complete enough that Redis would take it."""


@dataclass(frozen=True, slots=True)
class RedisRules:
    """What is asked of a Redis.

    ``lasting``: it keeps what must outlive it, so persistence is wanted and not refused. ``inspect_url``: an
    account of the same server that may run INFO and CONFIG GET. ``unchecked``: every fault is a note.
    """

    lasting: bool = False
    inspect_url: str = ""
    unchecked: bool = False


@dataclass(frozen=True, slots=True)
class Findings:
    """``faults`` forbid to keep voices there, ``notes`` are worth a warning; both say what to change."""

    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __add__(self, other: Findings) -> Findings:
        return Findings(self.faults + other.faults, self.notes + other.notes)


def address_faults(url: str) -> tuple[str, ...]:
    """What is wrong with the address alone, before anything is sent. Raises SettingsError if unreadable."""
    try:
        parts = urlsplit(url)
        host, query = parts.hostname or "localhost", parse_qs(parts.query)
    except ValueError as exc:
        raise SettingsError("the store URL cannot be read") from exc
    if parts.scheme == "unix":
        return ()
    faults: list[str] = []
    if parts.scheme != "rediss" and not _loopback(host):
        faults.append("it is on another machine without TLS: use rediss:// (or unix:// on this one)")
    if parts.scheme == "rediss":
        if query.get("ssl_cert_reqs", ["required"])[-1].lower() not in {"required", "2"}:
            faults.append("its certificate is not checked: leave out ssl_cert_reqs, name ssl_ca_certs")
        if query.get("ssl_check_hostname", ["true"])[-1].lower() in {"false", "0", "no", "n", "f"}:
            faults.append("the name in its certificate is not checked: leave out ssl_check_hostname")
    secret = parts.password or query.get("password") or query.get("ssl_certfile")
    if not secret:
        faults.append("anybody may connect: put the name and password of an ACL user into the address")
    return tuple(faults)


def _loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class RedisCheck:
    """Looks at one server; keeps what is costly to see until the server is another one.

    Args:
        url: of the account that holds voices. Raises SettingsError if it cannot be read.
        rules: what is asked.
        options: for connections.
    """

    def __init__(self, url: str, rules: RedisRules, options: Mapping[str, Any]) -> None:
        self._rules = rules
        self._address = Findings(address_faults(url))
        if rules.inspect_url:
            self._address += Findings(
                tuple(f"VOXWIRE_REDIS_CHECK_URL: {f}" for f in address_faults(rules.inspect_url))
            )
        self._inspector = _client(rules.inspect_url, options) if rules.inspect_url else None
        self._run: object = None
        self._account = Findings()
        self._save: str | None = None

    def again(self) -> None:
        """The connection was lost: look at everything next time."""
        self._run = None

    @property
    def address(self) -> Findings:
        """What can be said before the server is reached."""
        return self._graded(self._address)

    async def look(self, pool: BlockingConnectionPool) -> Findings:
        """Judge the server and the account behind ``pool``.

        Costs an INFO, and a connection of its own after :meth:`again`, another start of the server, or a
        fault. Raises RedisError, OSError and TimeoutError where the server cannot be asked.
        """
        try:
            info = await Redis(connection_pool=pool).info()
        except NoPermissionError:
            return self._graded(self._address + Findings(("the account may not run INFO: allow it (+info)",)))
        if info.get("run_id") != self._run or self._account.faults:
            self._account, may_config = await self._try(pool)
            self._save = await self._snapshots(pool, info, may_config)
            self._run = info.get("run_id")
        return self._graded(self._address + self._judge(info) + self._account)

    def _graded(self, found: Findings) -> Findings:
        return Findings((), found.faults + found.notes) if self._rules.unchecked else found

    def _judge(self, info: Mapping[str, Any]) -> Findings:
        found = _version(info)
        policy = info.get("maxmemory_policy")
        if policy != "noeviction":
            found += Findings((f"it may drop what it holds: set maxmemory-policy noeviction, not {policy}",))
        return found + (self._kept(info) if self._rules.lasting else self._unkept(info))

    def _kept(self, info: Mapping[str, Any]) -> Findings:
        if int(info.get("aof_enabled", 0)):
            return Findings()
        return Findings(
            (), ("what must last is lost between two snapshots, or for good without: set appendonly yes",)
        )

    def _unkept(self, info: Mapping[str, Any]) -> Findings:
        faults, notes = [], []
        if int(info.get("aof_enabled", 0)):
            faults.append('it keeps voices on disk: set appendonly no and save ""')
        if self._save:
            faults.append('it keeps voices on disk: set save "" (snapshots are on)')
        elif int(info.get("rdb_saves", 0)) or int(info.get("rdb_bgsave_in_progress", 0)):
            faults.append('it has written a snapshot: set save "", remove the file, start it again')
        elif self._save is None and int(info.get("rdb_last_load_keys_loaded", 0)):
            faults.append('it began with keys from a snapshot: set save "" and remove the file')
        if self._save is None:
            notes.append("whether it makes snapshots cannot be seen: set VOXWIRE_REDIS_CHECK_URL")
        if int(info.get("connected_slaves", 0)):
            notes.append("it has replicas: whether they keep voices on disk cannot be seen from here")
        return Findings(tuple(faults), tuple(notes))

    async def _try(self, pool: BlockingConnectionPool) -> tuple[Findings, bool]:
        """What the account may do, without doing it; and whether it may read the configuration."""
        needed = [(name.upper(), *arguments) for name, arguments in NEEDED.items()]
        needed = [command for command in needed if command[0] not in {"MULTI", "EXEC"}]
        reach = [("GET", _FOREIGN), ("PUBLISH", _FOREIGN, "1")]
        answers = await _queue(pool, [*needed, *FORBIDDEN, *reach])
        if answers is None:
            return Findings(("the account may not run MULTI: allow what the driver needs",)), False
        denied = [isinstance(answer, NoPermissionError) for answer in answers]
        n, f = len(needed), len(needed) + len(FORBIDDEN)
        lacking = [c[0] for c, no in zip(needed, denied[:n], strict=True) if no]
        # An unknown command, renamed away perhaps, is as good as a forbidden one.
        allowed = [
            c
            for c, no, answer in zip(FORBIDDEN, denied[n:f], answers[n:f], strict=True)
            if not no and not str(answer).startswith("unknown command")
        ]
        faults = []
        if lacking:
            faults.append(
                f"the account may not run {', '.join(lacking)}, which is needed: see deploy/redis.conf"
            )
        if allowed:
            names = dict.fromkeys(c[0] for c in allowed)
            faults.append(f"the account may run {', '.join(names)}: use an ACL user as in deploy/redis.conf")
        if not denied[f]:
            faults.append("the account reaches keys that are not ours: limit it to ~vx:*")
        if not denied[f + 1]:
            faults.append("the account reaches channels that are not ours: limit it to &vx:*")
        return Findings(tuple(faults)), ("CONFIG", "GET", "save") in allowed

    async def _snapshots(
        self, pool: BlockingConnectionPool, info: Mapping[str, Any], may_config: bool
    ) -> str | None:
        """The planned snapshots; "" if there are none, None if it cannot be seen."""
        if self._rules.lasting:
            return None
        other = self._inspector
        if other is None:
            return await _config_save(Redis(connection_pool=pool)) if may_config else None
        try:
            if (await other.info("server")).get("run_id") != info.get("run_id"):
                self._account += Findings(("VOXWIRE_REDIS_CHECK_URL is another server",))
                return None
            return await _config_save(other)
        except (RedisError, OSError, TimeoutError) as exc:
            self._account += Findings(
                (f"VOXWIRE_REDIS_CHECK_URL cannot be used ({type(exc).__name__}): allow +info +config|get",)
            )
            return None
        finally:
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                await other.aclose(close_connection_pool=True)


def _client(url: str, options: Mapping[str, Any]) -> Redis:
    try:
        return Redis.from_url(url, **options)
    except ValueError as exc:
        raise SettingsError("VOXWIRE_REDIS_CHECK_URL cannot be read") from exc


async def _config_save(client: Redis) -> str | None:
    return (await client.config_get("save")).get("save")


async def _queue(pool: BlockingConnectionPool, commands: list[tuple[str, ...]]) -> list[object] | None:
    """What Redis answers to commands after MULTI that are never executed; None if MULTI is not allowed."""
    connection = pool.connection_class(**pool.connection_kwargs)
    try:
        await connection.connect()  # type: ignore[no-untyped-call]
        await connection.send_packed_command(connection.pack_commands([("MULTI",), *commands]))
        answers: list[object] = []
        for _ in range(1 + len(commands)):
            try:
                answers.append(await connection.read_response())
            except AuthenticationError:
                raise
            except ResponseError as exc:
                answers.append(exc)
        return None if isinstance(answers[0], ResponseError) else answers[1:]
    finally:
        # Closed without EXEC: whatever was let in is forgotten.
        with contextlib.suppress(RedisError, OSError, TimeoutError, asyncio.CancelledError):
            await connection.disconnect(nowait=True)


def _version(info: Mapping[str, Any]) -> Findings:
    if "valkey_version" in info or info.get("server_name") == "valkey":
        return Findings((), ("it is Valkey: see for yourself that its version has no known holes",))
    text = str(info.get("redis_version", ""))
    numbers = tuple(int(part) for part in text.split(".")[:3] if part.isdigit())
    if numbers < LEAST:
        return Findings((f"Redis {text} is too old: 7.0 is needed, 8.6.3 or later wanted",))
    if numbers < SAFE:
        return Findings(
            (), (f"Redis {text} is older than 8.6.3: see that its holes are mended (CVE-2026-23479)",)
        )
    return Findings()
