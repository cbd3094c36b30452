"""What is asked of brokers and of what they have on their hosts, and how it is told."""
