"""Queues whose messages stay on disk while memory is short, and bringing them back."""
