"""The one exception tree of Voxwire.

VoxwireError
+-- BadRequest            the client sent something we cannot act on (names the field)
|   +-- UnsupportedFormat encoding or sample rate we do not make
|   +-- UnknownVoice      no such voice for this tenant
|   +-- TextTooLong       a context or message beyond its limit
+-- Unauthorised          no key, or a wrong one
|   +-- Forbidden         a good key without the scope, origin or voice
+-- LimitExceeded         the tenant's own limit (rate, contexts); carries retry_after
|   +-- Busy              the gateway is full: refused at admission; carries retry_after
+-- Draining              the gateway is shutting down and takes no new work
+-- ContextIdle           a context waited too long for text
+-- EngineError           the engine failed
|   +-- EngineCrashed     a worker died under the request
|   +-- EngineTimeout     no audio within the deadline
+-- StoreError            the store (Redis) is slow or gone
+-- LegError              a media leg
|   +-- PeerViolation     the peer broke its own protocol
|   +-- LegClosed         the listener hung up
+-- SettingsError         a bad configuration value

``code`` is the stable machine-readable name that goes on the wire, ``status`` the HTTP status that fits it.
Messages are ours and safe to show a client: never put a path, an address or a library's text in them.

This module imports nothing, so that ``telephony`` may use it too: it is the one exception to the rule
that ``telephony`` and ``tts_core`` do not know each other.
"""

from __future__ import annotations


class VoxwireError(Exception):
    """Root of the tree.

    Args:
        message: a sentence for the client, in plain words.
        field: the request field at fault, where there is one.
        retry_after: seconds after which a retry may succeed, where that is known.
    """

    code = "internal_error"
    status = 500

    def __init__(
        self, message: str = "", *, field: str | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message or self.code.replace("_", " "))
        self.message = message or self.code.replace("_", " ")
        self.field = field
        self.retry_after = retry_after


class BadRequest(VoxwireError):
    """The client sent something we cannot act on."""

    code = "bad_request"
    status = 400


class UnsupportedFormat(BadRequest):
    """An encoding or sample rate we do not make; never substituted silently."""

    code = "unsupported_format"


class UnknownVoice(BadRequest):
    """No such voice for this tenant; a foreign voice gives the same answer."""

    code = "unknown_voice"
    status = 404


class TextTooLong(BadRequest):
    """A message or context over its length limit."""

    code = "text_too_long"
    status = 413


class Unauthorised(VoxwireError):
    """No key, or a wrong one."""

    code = "unauthorised"
    status = 401


class Forbidden(Unauthorised):
    """A good key without the needed scope, origin or voice."""

    code = "forbidden"
    status = 403


class LimitExceeded(VoxwireError):
    """The tenant's own limit is reached."""

    code = "limit_exceeded"
    status = 429


class Busy(LimitExceeded):
    """The gateway cannot promise continuous audio to one more stream."""

    code = "busy"


class Draining(VoxwireError):
    """The gateway is shutting down."""

    code = "draining"
    status = 503


class ContextIdle(VoxwireError):
    """An open context got no text for too long and was closed."""

    code = "context_idle"
    status = 408


class EngineError(VoxwireError):
    """The engine failed on this request."""

    code = "engine_error"
    status = 502


class EngineCrashed(EngineError):
    """A worker died while it held the request."""

    code = "engine_crashed"


class EngineTimeout(EngineError):
    """No audio came within the deadline."""

    code = "engine_timeout"
    status = 504


class StoreError(VoxwireError):
    """The store is slow or gone."""

    code = "store_unavailable"
    status = 503


class LegError(VoxwireError):
    """A media leg failed."""

    code = "leg_error"


class PeerViolation(LegError):
    """The peer broke its own protocol."""

    code = "peer_violation"
    status = 400


class LegClosed(LegError):
    """The listener hung up; over HTTP nobody reads the status, which is what nginx logs for it."""

    code = "leg_closed"
    status = 499


class SettingsError(VoxwireError):
    """A configuration value is wrong; the message names it and says what is accepted."""

    code = "bad_settings"
