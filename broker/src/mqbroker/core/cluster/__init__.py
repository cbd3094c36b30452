"""What other nodes have bound and taken: bindings elsewhere, messages on their way there and back, owners of groups."""
