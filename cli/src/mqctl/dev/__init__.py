"""A cluster on loopback for whoever develops an application: real brokers as plain processes, no root, no hosts."""
