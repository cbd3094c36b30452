"""What hosts are and what the inventory wants of them, and the difference."""
