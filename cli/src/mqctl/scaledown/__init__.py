"""A node leaves its cluster: planned, drained to another one, accounted for, taken away, forgotten by the others."""
