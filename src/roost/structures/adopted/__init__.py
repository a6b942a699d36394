"""Adopted: Python access to a table of the application's own that `roost cap` keeps short."""
