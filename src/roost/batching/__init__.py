"""Batching: many callers' operations in one transaction. The policy, without I/O."""
