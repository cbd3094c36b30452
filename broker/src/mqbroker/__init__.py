"""A message broker with the clustering of Apache ActiveMQ Artemis. Rooms and arrows: docs/ARCHITECTURE.md."""

__version__ = "0.1.0"
