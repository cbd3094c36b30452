"""Admin operations: name to handler, over one node. Reached through the admin socket only."""
