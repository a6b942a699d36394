"""Writable SQL views of structures: what plain SQL clients see and write."""
