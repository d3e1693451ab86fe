"""Engines and the text, scheduling and admission that feed them."""
