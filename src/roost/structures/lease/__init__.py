"""Lease: a lock that ends by itself."""
