"""Commands with which a cluster begins: inventory, bundle, certificates, brokers on loopback."""
