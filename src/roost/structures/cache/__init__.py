"""Cache: values under keys, each until its end, kept within bounds."""
