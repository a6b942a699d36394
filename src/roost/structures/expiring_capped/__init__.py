"""Capped collection whose rows expire."""
