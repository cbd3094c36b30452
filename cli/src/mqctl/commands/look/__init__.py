"""Commands that look at a cluster and change nothing."""
