"""Cache: values under keys, each until it expires, within bounds."""
