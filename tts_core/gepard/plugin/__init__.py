"""GEPARD for an unmodified vLLM: a model, a sampler for each of vLLM's two model runners, a few worker calls.

vLLM finds it by the entry point ``vllm.general_plugins`` and calls ``register`` in each of its processes.
"""

from __future__ import annotations

ARCHITECTURE = "GepardForCausalLM"


def register() -> None:
    """Tell vLLM of the model; harmless when repeated. The model's own imports wait until it is used.

    Raises:
        SettingsError: vLLM is of a version that the plugin was not tried with.
    """
    from vllm import ModelRegistry

    from .signatures import version

    version()
    if ARCHITECTURE not in ModelRegistry.get_supported_archs():
        ModelRegistry.register_model(ARCHITECTURE, f"{__name__}.model:{ARCHITECTURE}")
