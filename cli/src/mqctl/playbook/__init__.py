"""Playbooks of the collection, run by ansible-runner: events as they come, nothing left behind afterwards."""
