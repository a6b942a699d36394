"""Column types, columns, and the values that each type allows."""
