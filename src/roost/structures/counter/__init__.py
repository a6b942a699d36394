"""Counter: exact totals, one per key."""
