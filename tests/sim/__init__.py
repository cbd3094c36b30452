"""Simulation: the real rooms with `io/` replaced by a simulated clock, network and disk. Same seed, same trace."""
