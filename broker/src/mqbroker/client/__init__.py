"""The client library: connections to AMQP 1.0 brokers for applications (docs/CLIENT.md, docs/adr/0011-client.md)."""
