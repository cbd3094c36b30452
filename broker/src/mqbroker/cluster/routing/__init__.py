"""Which broker a connection of a client belongs to. Source: CLUSTERS.md, "Connection routers"."""
