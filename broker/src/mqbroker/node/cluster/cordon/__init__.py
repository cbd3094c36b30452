"""A node that lets no client in: its doors, and what becomes of the clients that are there."""
