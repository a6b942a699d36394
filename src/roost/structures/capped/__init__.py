"""Capped: the newest rows of each key, which can also be removed."""
