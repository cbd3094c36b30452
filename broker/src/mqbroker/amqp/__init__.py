"""AMQP 1.0 above the codec: connections, sessions, links, deliveries and SASL, for both ends of a connection."""
