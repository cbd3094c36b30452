"""How the node hears of others and who has its id, and which broker a client belongs to."""
