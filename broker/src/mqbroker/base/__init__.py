"""Values that every room speaks in: time, errors by blame, serial numbers, bounded rings. Imports nothing of ours."""
