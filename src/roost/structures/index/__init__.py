"""Indexes of existing tables: a table's description, the ranges of a find, the changes of a modification. No I/O."""
