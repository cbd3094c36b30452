"""What senders name, which queues are bound to it, and what holds there: settings, quotas, permissions."""
