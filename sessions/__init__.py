"""Contexts, sessions, voices, limits and the store behind them."""
