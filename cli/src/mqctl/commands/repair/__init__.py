"""Commands for what went wrong: backups, journals, nodes and connections that are given up."""
