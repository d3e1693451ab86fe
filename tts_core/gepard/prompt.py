"""Text tokens to the prompt that the model was trained on.

``SOT t1 .. tn EOT SOS``, and for short texts the bracketed part several times over, so that one or two words
do not drown beside the speaker prefix (GEPARD technical report, arXiv 2609.04222, text repetition; the
published runner expands every text the same way). Positions count from the prefix on; there is no other
beginning-of-text.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tts_core.errors import BadRequest, SettingsError, TextTooLong

from .config import GepardConfig
from .sampling import CFG_MODES, CfgMode, Sampling

MAX_TEXT_TOKENS = 256
"""Most text tokens of one segment: over a minute of speech, and far more than a clause has."""


def repeats(config: GepardConfig, n: int) -> int:
    """How often a text of ``n`` tokens is said in the prompt: 1 unless it is short."""
    rule = config.repetition
    if not rule.enabled or n <= 0 or n >= rule.apply_below or n >= rule.target_text_tokens:
        return 1
    return max(1, min(-(-rule.target_text_tokens // n), rule.max_repeats))


def build_prompt(config: GepardConfig, text_ids: Sequence[int]) -> tuple[int, ...]:
    """Prompt ids of a text, without the speaker prefix.

    Args:
        config: of the checkpoint.
        text_ids: the tokens of the text alone, as ``Tokenizer.encode`` gives them.

    Raises:
        BadRequest: no token at all, a token that is none, or one of the special tokens, which would end or
            restart the text.
        TextTooLong: more than ``MAX_TEXT_TOKENS``.
    """
    n = len(text_ids)
    if not n:
        raise BadRequest("there is nothing to say", field="text")
    if n > MAX_TEXT_TOKENS:
        raise TextTooLong(f"a segment may have {MAX_TEXT_TOKENS} tokens at most, this has {n}", field="text")
    special, vocabulary = config.special, config.backbone.vocab_size
    reserved = special.ids
    if any(not 0 <= token < vocabulary or token in reserved for token in text_ids):
        raise BadRequest("the text holds a token that may not be spoken", field="text")
    once = (special.start_of_text, *text_ids, special.end_of_text)
    return once * repeats(config, n) + (special.start_of_speech,)


def uncond_prompt(config: GepardConfig, mode: CfgMode) -> tuple[int, ...]:
    """Prompt ids of the branch without text that guidance subtracts.

    "empty_text" keeps the brackets, "audio_only" leaves them out too.

    Raises:
        BadRequest: another mode.
    """
    special = config.special
    if mode == "empty_text":
        return (special.start_of_text, special.end_of_text, special.start_of_speech)
    if mode == "audio_only":
        return (special.start_of_speech,)
    raise BadRequest(f"cfg_mode must be one of {', '.join(CFG_MODES)}", field="cfg_mode")


def branches(
    config: GepardConfig, text_ids: Sequence[int], sampling: Sampling
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Prompt ids of a text, and those of its second branch if ``sampling`` guides a text of this length.

    Raises:
        BadRequest, TextTooLong: as ``build_prompt``.
    """
    ids = build_prompt(config, text_ids)
    guided = sampling.guided(len(text_ids))
    return ids, uncond_prompt(config, sampling.cfg_mode) if guided else None


@lru_cache(maxsize=8)
def longest_prompt(config: GepardConfig) -> int:
    """Most places that a speaker prefix and a prompt can take together: what an engine must have room for.

    Raises:
        SettingsError: the model's own window is smaller.
    """
    text = max(repeats(config, n) * (n + 2) + 1 for n in range(1, MAX_TEXT_TOKENS + 1))
    room = config.prefix_rows + text
    if room >= config.backbone.max_position_embeddings:
        raise SettingsError("the checkpoint's window is too small for a prompt")
    return room


def tagged(text: str, language: str) -> str:
    """``text`` with the tag that some training sets put before it: "english: ...". Off unless asked for."""
    return f"{language.lower()}: {text}"
