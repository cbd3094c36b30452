"""What carries announcements: multicast, TCP, DNS, a directory."""
