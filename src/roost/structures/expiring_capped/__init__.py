"""Capped collection whose rows leave by themselves."""
