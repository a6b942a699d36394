"""Aged: a table of the application's own whose old rows `roost cap --older-than` deletes."""
