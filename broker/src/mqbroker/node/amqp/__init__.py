"""Peers of AMQP: their connections, the node's ends of their links, and whose turn it is."""
