"""What both ends of a link between nodes agree on, and the consumers that feed one or clear what is left."""
