"""Roost inside other libraries: one module each, which alone imports that library."""
