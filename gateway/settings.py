"""What an operator may set: from the environment (``VOXWIRE_*``), a TOML file, or neither.

The environment wins over the file, the file over the defaults. The file is the one that ``VOXWIRE_CONFIG``
names, else ``voxwire.toml`` in the working directory if there is one. Every bad value is reported at once,
with its name, what is wrong and what is accepted; a key in the file that does not exist is refused, so that a
typing error never silently leaves a default in place. Values never appear in messages for secret settings.
"""

from __future__ import annotations

import difflib
import functools
import ipaddress
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from gateway.setting_values import Bad as _Bad
from gateway.setting_values import flag as _flag
from gateway.setting_values import items as _list
from gateway.setting_values import number as _number
from gateway.setting_values import text as _text
from gateway.setting_values import whole as _whole
from gateway.setting_values import word as _word
from tts_core.errors import SettingsError

PREFIX = "VOXWIRE_"
ENV_ONLY = frozenset(
    {
        "VOXWIRE_CACHE",
        "VOXWIRE_CONFIG",
        "VOXWIRE_URL",
        "VOXWIRE_KEY",
        "VOXWIRE_TWILIO_AUTH_TOKEN",
        "VOXWIRE_TWILIO_ACCOUNT_SID",
    }
)
"""Variables that are no settings of that name: of make, the file, the command line, twilio in short."""

MIN_SECRET = 16
SECRET_CHARACTERS = 32
_TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_SID = re.compile(r"AC[0-9a-fA-F]{32}")
_HOSTNAME = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_]([A-Za-z0-9_-]{0,62}))*\.?"
)


@dataclass(frozen=True, slots=True)
class TwilioAccount:
    """A Twilio account whose calls are taken, and the tenant they belong to.

    An empty ``account_sid`` takes calls of any account whose signature fits ``auth_token``.
    """

    account_sid: str
    auth_token: str = field(repr=False)
    tenant: str = "default"


def _host(value: object) -> str:
    host = _text(value).strip("[]")
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    if not _HOSTNAME.fullmatch(host):
        raise _Bad("is neither an address nor a host name")
    return host.lower()


def _endpoint(value: object) -> str:
    """``host:port``; a port alone is one of this machine's own address."""
    host, _, port = _text(value).rpartition(":")
    if not host and not port:
        return ""
    number = _whole(0, 65535)(port)
    host = _host(host or "127.0.0.1")
    return f"[{host}]:{number}" if ":" in host else f"{host}:{number}"


def _tenant(value: object) -> str:
    tenant = _text(value)
    if not _TENANT.fullmatch(tenant):
        raise _Bad("is not a tenant's name")
    return tenant


def _hosts(value: object) -> tuple[str, ...]:
    return tuple(_host(item) for item in _list(value))


def origin(value: object) -> str:
    """A web origin as ``scheme://host[:port]``, default ports left out; ValueError if it is none."""
    text = _text(value)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise _Bad("is not a web origin") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise _Bad("is not a web origin")
    if parts.path not in {"", "/"} or parts.query or parts.fragment or parts.username is not None:
        raise _Bad("is more than an origin: leave out path, query and user")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    if port is None or port == {"http": 80, "https": 443}[parts.scheme]:
        return f"{parts.scheme}://{host}"
    return f"{parts.scheme}://{host}:{port}"


def _origin_or_empty(value: object) -> str:
    return origin(value) if value != "" else ""


def _origins(value: object) -> tuple[str, ...]:
    return tuple(origin(item) for item in _list(value))


def _prefix(value: object) -> str:
    """A path before the routes of a dialect, as ``/v1``; empty for none, which is written ``/``."""
    path = _text(value).rstrip("/")
    if path and not re.fullmatch(r"(/[A-Za-z0-9._~-]+){1,8}", path):
        raise _Bad("is not a path")
    return path


def _redis(value: object) -> str:
    text = _text(value)
    if text and (urlsplit(text).scheme not in {"redis", "rediss", "unix"}):
        raise _Bad("is not a Redis address")
    return text


def _path(value: object) -> Path | None:
    text = _text(value)
    return Path(text).expanduser() if text else None


def _secret(value: object) -> str:
    text = _text(value)
    if text and len(text) < SECRET_CHARACTERS:
        raise _Bad(f"is shorter than {SECRET_CHARACTERS} characters")
    return text


def _keys(value: object) -> str:
    """``name:key`` entries, checked here and joined as ``sessions.keys`` takes them."""
    text = ",".join(_text(item) for item in _list(value))
    if text:
        from sessions.keys import parse_configured

        try:
            parse_configured(text)
        except SettingsError as error:  # its words never repeat a key
            raise _Bad(f"is wrong: {error.message}") from None
    return text


def _twilio(value: object) -> tuple[TwilioAccount, ...]:
    if not isinstance(value, list):
        raise _Bad("is not a list of [[twilio]] tables")
    found: list[TwilioAccount] = []
    for item in value:
        if not isinstance(item, dict) or set(item) - {"account_sid", "auth_token", "tenant"}:
            raise _Bad("has a table with unknown keys")
        sid, token, tenant = (
            item.get(k, d) for k, d in (("account_sid", ""), ("auth_token", ""), ("tenant", "default"))
        )
        if not isinstance(sid, str) or (sid and not _SID.fullmatch(sid)):
            raise _Bad("has an account_sid that is not AC and 32 hex digits")
        if not isinstance(token, str) or len(token) < MIN_SECRET:
            raise _Bad(f"has no auth_token of at least {MIN_SECRET} characters")
        if not isinstance(tenant, str) or not _TENANT.fullmatch(tenant):
            raise _Bad("has a tenant that is not a-z, 0-9, _ and -")
        found.append(TwilioAccount(sid, token, tenant))
    return tuple(found)


def _reference_hosts(value: object) -> tuple[str, ...]:
    entries = tuple(_text(item) for item in _list(value))
    if entries:
        from gateway.intake.location import HostList

        try:
            HostList(entries)
        except SettingsError as error:
            raise _Bad(f"is wrong: {error.message}") from None
    return entries


def _aliases(value: object) -> Mapping[str, str]:
    if isinstance(value, str):
        value = dict(part.partition("=")[::2] for part in _list(value) if isinstance(part, str))
    if not isinstance(value, dict):
        raise _Bad("is not a table of names")
    for name, voice in value.items():
        if not isinstance(voice, str) or not name.strip() or not voice.strip():
            raise _Bad("has an alias without a voice")
    return MappingProxyType({name.strip(): voice.strip() for name, voice in value.items()})


def _default_data_dir() -> Path:
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "voxwire"


def _data_dir(value: object) -> Path:
    return _path(value) or _default_data_dir()


def _set(default: Any, read: Callable[[object], Any], accepts: str, *, secret: bool = False) -> Any:
    """One setting: its default, how a raw value is read, what is accepted in words."""
    return field(
        default=default, repr=not secret, metadata={"read": read, "accepts": accepts, "secret": secret}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings of a gateway; times in seconds, sizes in bytes."""

    host: str = _set("127.0.0.1", _host, "an IP address or a host name")
    port: int = _set(8080, _whole(0, 65535), "a whole number from 0 to 65535 (0 picks a free port)")
    tls_port: int | None = _set(
        None, _whole(0, 65535), "a whole number from 0 to 65535; with tls_cert and tls_key"
    )
    tls_cert: Path | None = _set(None, _path, "the path of a PEM certificate chain")  # noqa: RUF009
    tls_key: Path | None = _set(None, _path, "the path of its PEM private key")  # noqa: RUF009
    data_dir: Path = field(
        default_factory=_default_data_dir,
        metadata={"read": _data_dir, "accepts": "the path of a folder we may write to", "secret": False},
    )
    redis_url: str = _set(
        "", _redis, "redis://, rediss:// or unix:// (empty: keep state in memory)", secret=True
    )
    redis_durable_url: str = _set(
        "",
        _redis,
        "the same of a Redis that is kept on disk, for what must last: keys, consents, audit rows, permanent "
        "voices (empty: they are lost with the other one)",
        secret=True,
    )
    redis_check_url: str = _set(
        "",
        _redis,
        "redis_url with an account that may run INFO and CONFIG GET alone, to see that no snapshots are made",
        secret=True,
    )
    redis_unchecked: bool = _set(
        False, _flag, "on or off (on takes any Redis as it is, with a warning at each start)"
    )
    engine: str = _set("embedded", _text, "the name of an installed engine")
    piper_voices: Path | None = _set(  # noqa: RUF009
        None, _path, "a folder of Piper voices: NAME.onnx with NAME.onnx.json"
    )
    piper_python: Path | None = _set(  # noqa: RUF009
        None, _path, "a Python interpreter with piper-tts (empty: our own)"
    )
    workers: int = _set(0, _whole(0, 256), "a whole number from 0 to 256 (0: one per core)")

    gepard_checkpoint: str = _set("", _text, "a folder, or owner/name@commit of one that was fetched")
    gepard_codec: str = _set("", _text, "a .nemo or .safetensors file (empty: the one in the checkpoint)")
    gepard_dtype: str = _set(
        "auto",
        _word("auto", "bfloat16", "float16", "float32"),
        "auto (bfloat16 on vLLM, else float32), bfloat16, float16 or float32",
    )
    gepard_streams: int = _set(
        0, _whole(0, 4096), "a whole number from 0 to 4096 (segments at once; 0: 32 on vLLM, else 4)"
    )
    gepard_compile: bool = _set(True, _flag, "on or off (a minute at the first start, faster steps)")
    gepard_codec_backend: str = _set("onnx", _word("onnx", "torch", "nemo"), "onnx, torch or nemo")
    gepard_codec_processes: int = _set(1, _whole(1, 64), "a whole number from 1 to 64, a core each")
    gepard_codec_device: str = _set("cpu", _text, "cpu, or cuda:0 and the like for torch and nemo")
    gepard_temperature: float = _set(0.4, _number(0, 2), "a number from 0 (always the likeliest) to 2")
    gepard_top_k: int = _set(0, _whole(0, 8), "a whole number from 0 (off) to 8")
    gepard_repetition_penalty: float = _set(1.0, _number(1, 2), "a number from 1 (off) to 2")
    gepard_guidance: float = _set(1.0, _number(1, 20), "a number from 1 (off) to 20; twice the work")
    gepard_guidance_frames: int = _set(0, _whole(0, 2000), "the first frames that are guided (0: all)")
    gepard_guidance_tokens: int = _set(0, _whole(0, 256), "guide texts of so many tokens (0: all)")
    gepard_guard: bool = _set(True, _flag, "on or off (begin again, or end sooner, what goes astray)")
    gepard_continuity: bool = _set(False, _flag, "on or off (short segments go on from each other)")
    gepard_trim: bool = _set(True, _flag, "on or off (leave out silence before a segment's first sound)")

    api_keys: str = _set(
        "",
        _keys,
        "name:key or name[speak+call]:key with commas; a key has 16 characters or more",
        secret=True,
    )
    secret: str = _set(
        "",
        _secret,
        f"at least {SECRET_CHARACTERS} characters (empty: made and kept in data_dir)",
        secret=True,
    )
    public_origin: str = _set(
        "", _origin_or_empty, "the address seen from outside, as https://voice.example.com"
    )
    allowed_hosts: tuple[str, ...] = _set(
        (), _hosts, "host names that clients may use for us, comma separated"
    )
    allowed_origins: tuple[str, ...] = _set(
        (), _origins, "web origins of pages that may connect, comma separated"
    )
    twilio: tuple[TwilioAccount, ...] = _set(
        (),
        _twilio,
        "tables with account_sid, auth_token and tenant, or VOXWIRE_TWILIO_AUTH_TOKEN and _ACCOUNT_SID",
        secret=True,
    )

    max_contexts: int = _set(0, _whole(0, 100_000), "a whole number (0: as many as the engine sustains)")
    max_contexts_per_socket: int = _set(16, _whole(1, 1000), "a whole number from 1 to 1000")
    max_sockets: int = _set(2000, _whole(1, 100_000), "a whole number from 1 to 100000")
    max_message_bytes: int = _set(65536, _whole(1024, 1 << 20), "a whole number from 1024 to 1048576")
    max_context_chars: int = _set(50_000, _whole(100, 10_000_000), "a whole number from 100 to 10000000")
    max_body_bytes: int = _set(1 << 20, _whole(1024, 64 << 20), "a whole number from 1024 to 67108864")
    messages_per_s: int = _set(1000, _whole(1, 100_000), "a whole number from 1 to 100000")
    run_ahead_s: float = _set(3.0, _number(0.2, 30), "a number from 0.2 to 30")
    lead_in_ms: int = _set(0, _whole(0, 200), "a whole number from 0 to 200 (silence before a turn)")
    resume_s: float = _set(30.0, _number(0, 600), "a number from 0 to 600")
    context_idle_s: float = _set(300.0, _number(5, 3600), "a number from 5 to 3600")
    socket_idle_s: float = _set(7200.0, _number(60, 86400), "a number from 60 to 86400")
    drain_s: float = _set(30.0, _number(0, 3600), "a number from 0 to 3600")

    phrase_cache: bool = _set(False, _flag, "on or off (also for dialects that cannot ask for it)")
    phrase_ttl_s: float = _set(86400.0, _number(1, 31_536_000), "a number from 1 to 31536000")
    phrase_bytes: int = _set(64 << 20, _whole(0, 1 << 40), "a whole number of bytes")
    clean_text: bool = _set(True, _flag, "on or off (markdown, emoji, markup cleaned before speaking)")
    default_voice: str = _set("", _text, "the id of a voice (empty: the engine's first)")
    voice_aliases: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({}),
        metadata={
            "read": _aliases,
            "accepts": "a table, or name=voice pairs ('*' takes every unknown name)",
            "secret": False,
        },
    )

    elevenlabs_prefix: str = _set(
        "/v1", _prefix, "what comes before /text-to-speech: a path as /v1, or / for nothing"
    )
    close_context_policy: str = _set(
        "smart",
        _word("smart", "drain"),
        "smart (close_context cuts what was not flushed just before) or drain (what was flushed is spoken)",
    )
    wyoming: str = _set(
        "", _endpoint, "host:port or a port of 127.0.0.1, where Home Assistant may speak (empty: off)"
    )
    wyoming_open: bool = _set(
        False, _flag, "on or off (on: whoever reaches the address of wyoming may speak, without a key)"
    )
    wyoming_tenant: str = _set("default", _tenant, "the tenant it speaks for: a-z, 0-9, _ and -")
    elevenlabs_absolute_alignment: bool = _set(
        False, _flag, "on or off (on: sync_alignment=true gets times from the start of the context)"
    )

    speaker_model: Path | None = _set(  # noqa: RUF009
        None, _path, "the file that 'voxwire models convert-speaker' makes (empty: voices are not compared)"
    )
    consent_asr: Path | None = _set(  # noqa: RUF009
        None, _path, "the folder of a Whisper model for CTranslate2, by which spoken consents are checked"
    )
    consent_python: Path | None = _set(  # noqa: RUF009
        None, _path, "a Python interpreter with faster-whisper (empty: our own)"
    )
    reference_hosts: tuple[str, ...] = _set(
        (),
        _reference_hosts,
        "hosts that clips for voices may be fetched from over https, as media.example.com or *.example.com, "
        "comma separated (empty: files alone are taken)",
    )
    voices_per_hour: int = _set(
        120, _whole(0, 100_000), "a whole number from 0 to 100000 (made voices, per tenant)"
    )
    session_voices: int = _set(
        200, _whole(0, 100_000), "a whole number from 0 to 100000 (living at once, per tenant)"
    )
    mark: bool = _set(False, _flag, "on or off (an inaudible mark of this deployment in all that is spoken)")
    reference_perth: str = _set(
        "off",
        _text,
        "off, on (look for Resemble's mark in clips, too; resemble-perth is installed here), or the path of "
        "a Python that has it",
    )
    permanent_voices: int = _set(2000, _whole(0, 100_000), "a whole number from 0 to 100000 (per tenant)")

    log_level: str = _set("info", _word("debug", "info", "warning", "error"), "debug, info, warning or error")
    log_format: str = _set("text", _word("text", "json"), "text or json")
    log_text: bool = _set(False, _flag, "on or off (on writes what is spoken into the log)")
    metrics: str = _set(
        "local", _word("local", "key", "open", "off"), "local (loopback or an admin key), key, open or off"
    )

    unknown_env: tuple[str, ...] = ()
    """VOXWIRE_ variables that mean nothing here; reported, not refused (orchestrators inject some)."""

    def describe(self) -> Iterator[str]:
        """One line a setting for people: variable, value (never a secret's), what is accepted."""
        for name, item in _FIELDS.items():
            value = getattr(self, name)
            shown = ("(set)" if value else "(not set)") if item.metadata["secret"] else _shown(value)
            called = "[[twilio]]" if name == "twilio" else f"{PREFIX}{name.upper()}"
            yield f"{called} = {shown}  ({item.metadata['accepts']})"

    @property
    def loopback(self) -> bool:
        """Whether the bind address is reachable from this machine only."""
        return is_loopback(self.host)

    @property
    def wildcard(self) -> bool:
        """Whether we listen on every address."""
        return self.host in {"0.0.0.0", "::"}  # noqa: S104

    @classmethod
    def load(
        cls,
        environ: Mapping[str, str] | None = None,
        *,
        config: Path | None = None,
        overrides: Mapping[str, object] | None = None,
    ) -> Settings:
        """Read file, environment and ``overrides`` (the command line's), the last of them winning.

        Raises:
            SettingsError: one message with every fault in it, one a line.
        """
        environ = os.environ if environ is None else environ
        faults: list[str] = []
        raw: dict[str, tuple[object, str]] = {}  # setting -> value, what the operator calls it
        _from_file(_config_path(environ, config), raw, faults)
        unknown = _from_environment(environ, raw)
        for name, value in (overrides or {}).items():
            if value is not None:
                raw[name] = (value, f"--{name.replace('_', '-')}")
        values = _read(raw, faults)
        if faults:
            raise SettingsError("\n".join(faults))
        made = cls(**values, unknown_env=unknown)
        faults = _cross_check(made)
        if faults:
            raise SettingsError("\n".join(faults))
        return made


@functools.lru_cache(maxsize=256)  # asked of every request
def is_loopback(host: str) -> bool:
    """Whether ``host`` (address or name) is this machine only; IPv4-mapped IPv6 counts as its IPv4 self."""
    if host.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _shown(value: object) -> str:
    """A value as it is written in a variable."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):
        value = tuple(f"{name}={voice}" for name, voice in value.items())
    if isinstance(value, tuple):
        value = ",".join(value)
    return "(not set)" if value in {None, ""} else str(value)


def nearest_variable(name: str) -> str | None:
    """What somebody may have meant by a variable that means nothing here."""
    known = [*ENV_ONLY, *(PREFIX + field.upper() for field in _FIELDS if field != "twilio")]
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
    return near[0] if near else None


_FIELDS = {item.name: item for item in fields(Settings) if "read" in item.metadata}


def _config_path(environ: Mapping[str, str], given: Path | None) -> tuple[Path, bool] | None:
    """The file to read and whether it must exist."""
    if given is not None:
        return given, True
    named = environ.get("VOXWIRE_CONFIG", "")
    return (Path(named).expanduser(), True) if named else (Path("voxwire.toml"), False)


def _from_file(
    place: tuple[Path, bool] | None, raw: dict[str, tuple[object, str]], faults: list[str]
) -> None:
    if place is None:
        return
    path, needed = place
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except FileNotFoundError:
        if needed:
            faults.append(f"the settings file {str(path)!r} does not exist")
        return
    except OSError as error:
        faults.append(f"the settings file {str(path)!r} cannot be read: {error.strerror}")
        return
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        faults.append(f"the settings file {str(path)!r} is not valid TOML: {error}")
        return
    for name, value in table.items():
        if name in _FIELDS:
            raw[name] = (value, f"{name} in {path.name}")
            continue
        near = difflib.get_close_matches(name, _FIELDS, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(sorted(_FIELDS))}"
        faults.append(f"{name} in {path.name} is not a setting{hint}")


def _from_environment(environ: Mapping[str, str], raw: dict[str, tuple[object, str]]) -> tuple[str, ...]:
    unknown: list[str] = []
    for variable, value in environ.items():
        if not variable.startswith(PREFIX) or variable in ENV_ONLY:
            continue
        name = variable[len(PREFIX) :].lower()
        if name in _FIELDS and variable.isupper() and name != "twilio":
            if value != "":  # compose files pass "${X:-}": an empty variable means "not set"
                raw[name] = (value, variable)
        else:
            unknown.append(variable)
    token, sid = (environ.get(f"VOXWIRE_TWILIO_{name}", "") for name in ("AUTH_TOKEN", "ACCOUNT_SID"))
    if token or sid:
        account = {"account_sid": sid, "auth_token": token}
        raw["twilio"] = ([account], "VOXWIRE_TWILIO_AUTH_TOKEN with VOXWIRE_TWILIO_ACCOUNT_SID")
    return tuple(sorted(unknown))


def _read(raw: Mapping[str, tuple[object, str]], faults: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, (value, called) in raw.items():
        spec = _FIELDS[name]
        try:
            values[name] = spec.metadata["read"](value)
        except _Bad as bad:
            shown = "" if spec.metadata["secret"] else f" = {str(value)[:80]!r}"
            hint = ""
            if name == "port" and str(value).startswith("tcp://"):
                hint = " (Kubernetes sets this for a Service named voxwire: use enableServiceLinks: false)"
            faults.append(f"{called}{shown} {bad}; accepted: {spec.metadata['accepts']}{hint}")
    return values


def _cross_check(made: Settings) -> list[str]:
    faults: list[str] = []
    if made.tls_port is None:
        for name in ("tls_cert", "tls_key"):
            if getattr(made, name) is not None:
                faults.append(
                    f"{name} is set but tls_port is not; accepted: tls_port, tls_cert and tls_key, or none"
                )
    else:
        for name in ("tls_cert", "tls_key"):
            path = getattr(made, name)
            if path is None:
                faults.append(f"tls_port is set but {name} is not; accepted: the path of a PEM file")
            elif not path.is_file():
                faults.append(f"{name} = {str(path)!r} is not a file; accepted: the path of a PEM file")
        if made.tls_port == made.port and made.port:
            faults.append("tls_port is the same as port; accepted: another port")
    if made.wyoming and not made.wyoming_open and not is_loopback(made.wyoming.rpartition(":")[0]):
        faults.append(
            f"wyoming = {made.wyoming!r} can be reached from other machines, and its protocol knows no keys;"
            " accepted: an address of this machine, or VOXWIRE_WYOMING_OPEN=on as well"
        )
    if made.mark and made.redis_url and not made.secret:
        faults.append(
            "mark is on and redis_url is set but secret is not: no gateway would know another's marks;"
            " accepted: VOXWIRE_SECRET, alike on every gateway"
        )
    if made.twilio and not made.public_origin:
        faults.append(
            "twilio is set but public_origin is not, so no signature of Twilio could be checked; accepted: "
            "VOXWIRE_PUBLIC_ORIGIN, the address that Twilio reaches, as https://voice.example.com"
        )
    faults += [
        f"{name} is set but redis_url is not; accepted: both, or redis_url alone, or none"
        for name in ("redis_durable_url", "redis_check_url")
        if getattr(made, name) and not made.redis_url
    ]
    if made.data_dir.exists() and not made.data_dir.is_dir():
        faults.append(
            f"data_dir = {str(made.data_dir)!r} is not a folder; accepted: a folder we may write to"
        )
    return faults
