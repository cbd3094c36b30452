"""Addresses, bindings and queues; who gets which message, and when it may be told to anyone."""
