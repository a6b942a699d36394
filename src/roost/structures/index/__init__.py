"""Indexes of tables that are there: what a table is, where a find begins, what a modification changes. No I/O."""
