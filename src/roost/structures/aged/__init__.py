"""Aged: a table of the application's own that loses its rows by their age, as Roost knows it."""
