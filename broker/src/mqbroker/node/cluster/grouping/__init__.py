"""Owners of groups: the arbiter, those that ask it, and the messages that wait for the answer."""
