"""Windowed counter: totals per key and window of time, of which the last ones are kept."""
