"""Bundles: everything that a host without a network needs to run the broker, as wheels with their hashes."""
