"""What holds messages and hands them to consumers, and what is known of one message."""
