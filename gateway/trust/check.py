"""What is looked for in a reference recording beyond its quality, before anything is computed from it.

A check gets the decoded clip and the consent under which a voice is to be made of it. Several stand behind
one :class:`Inspector`; the first that refuses ends the inspection. One that fails or takes too long ends it,
too: a safeguard that cannot work must stop what it guards, never be left out silently (trust.md S35).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from gateway.intake.clip import Clip
from gateway.intake.quality import Finding, refuse
from sessions.consent import ConsentRecord
from tts_core.errors import EngineError, EngineTimeout, VoxwireError

CHECKS_S = 20.0
"""For all checks of one clip; each takes a part of a second."""


class Check(Protocol):
    """One thing that is looked for."""

    async def look(self, clip: Clip, record: ConsentRecord) -> list[Finding]:
        """What was found in ``clip``, which must be left as it is and not be kept.

        The event loop is shared: work on samples belongs into a thread or a process. Whatever is raised
        refuses the clip; a VoxwireError in its own words. Cancelled, it lets go of the clip.
        """
        ...


class Inspector:
    """Runs checks in their order.

    Args:
        checks: the cheapest first.
        deadline: seconds for all of them.
    """

    def __init__(self, checks: Iterable[Check] = (), *, deadline: float = CHECKS_S) -> None:
        self.checks = list(checks)
        self._deadline = deadline

    async def inspect(self, clip: Clip, record: ConsentRecord) -> list[Finding]:
        """The warnings of all checks.

        Raises ReferenceRefused under the first refusal's code; EngineTimeout and EngineError where a check
        did not come to an end; what a check raises of our own.
        """
        found: list[Finding] = []
        try:
            async with asyncio.timeout(self._deadline):
                for check in self.checks:
                    seen = await check.look(clip, record)
                    refuse(seen)
                    found += seen
        except TimeoutError:
            raise EngineTimeout("the recording could not be checked in time") from None
        except VoxwireError:
            raise
        except Exception as error:
            raise EngineError("the recording could not be checked") from error
        return found


__all__ = ["Check", "Inspector"]
