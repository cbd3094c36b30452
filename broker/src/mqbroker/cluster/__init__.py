"""What makes nodes a cluster: how they find each other. Owns no socket and no clock; see discovery/."""
