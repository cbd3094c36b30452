"""Checks of an inventory before a host is touched, and the file that the role writes from it."""
