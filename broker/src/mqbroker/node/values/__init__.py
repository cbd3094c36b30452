"""What the node takes in and gives out, and what it keeps apart from peers and the store."""
