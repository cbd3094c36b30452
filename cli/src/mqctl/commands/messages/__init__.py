"""Commands for addresses, queues and messages."""
