"""Before brokers are stopped, restarted, drained or removed: who would not be served while they are away."""
