"""The event loop and its log, and the threads that do what would hold it up."""
