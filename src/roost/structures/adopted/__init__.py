"""Adopted: a table of the application's own that `roost cap` keeps short, as Python reads it."""
