"""Connections of AMQP, made and accepted, and TLS."""
