"""Samples in, samples out: resampling, companding, fades, framing, levels. No I/O, no clock; numpy only."""
