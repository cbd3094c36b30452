"""Nodes that announce themselves, and tables of those that are heard. Source: docs/adr/0010-discovery.md."""
