"""Everything that changes queues and journal together, and transactions of it."""
