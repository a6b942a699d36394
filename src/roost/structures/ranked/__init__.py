"""Ranked: the best rows per key: a capped collection in the order of a score."""
