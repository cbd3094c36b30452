"""A rollout: what it would do, whether hosts need it, the run, and the way back."""
