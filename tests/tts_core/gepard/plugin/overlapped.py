"""A worker that schedules asynchronously: vLLM forbids that on CPUs, where it works as well as anywhere."""

from __future__ import annotations

from typing import Any

from tts_core.gepard.plugin import stepper
from tts_core.gepard.plugin.worker_ext import GepardWorkerExtension


class Telling(GepardWorkerExtension):
    """Our worker calls, and one that says how requests are scheduled."""

    vllm_config: Any

    def gepard_scheduler(self) -> dict[str, Any]:
        config = self.vllm_config
        return {
            "async": config.scheduler_config.async_scheduling,
            "class": config.scheduler_config.get_scheduler_cls().__name__,
            "in_flight": config.max_concurrent_batches,
        }


TELLING = f"{__name__}.{Telling.__name__}"


def main(fd: int) -> None:
    from vllm.platforms.cpu import CpuPlatform

    check = CpuPlatform.check_and_update_config

    def allowed(config: Any) -> None:
        check(config)
        config.scheduler_config.async_scheduling = True

    CpuPlatform.check_and_update_config = staticmethod(allowed)
    stepper.main(fd)
