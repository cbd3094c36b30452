"""Backups of nodes: made while a node runs, kept in a folder, read again, given back."""
