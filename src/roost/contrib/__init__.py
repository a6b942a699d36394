"""Roost inside other libraries: one room each, which alone imports that library."""
