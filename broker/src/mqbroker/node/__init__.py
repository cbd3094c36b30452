"""Wires the rooms together: bytes and completions in, one Batch of effects out. No clock, no I/O, no randomness."""
