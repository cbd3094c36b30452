"""Ends of links: what takes messages in, what gives them out, and what becomes of those that are refused."""
