"""Ring: the last rows of each key, overwritten in place."""
