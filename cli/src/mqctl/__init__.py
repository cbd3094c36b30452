"""Clusters of message brokers from an inventory file: the command line of the control node."""

__version__ = "0.1.0"
