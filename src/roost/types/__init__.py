"""Column types, columns and their values: what a value may be."""
