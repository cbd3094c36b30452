"""Connections as the node sees them, whatever they are for: whose turn it is, transactions, large messages."""
