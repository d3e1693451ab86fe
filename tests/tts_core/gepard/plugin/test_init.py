from __future__ import annotations

from typing import Any


def test_registering_twice_is_harmless_and_vllm_finds_the_model(inline: dict[str, Any]) -> None:
    """The process called ``register`` twice and vLLM once more, by its entry point."""
    assert inline["requests"]["identical"] == 8
