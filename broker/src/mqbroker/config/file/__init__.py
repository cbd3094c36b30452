"""`broker.toml`: whether it is all there, what is wrong in it, its slices."""
