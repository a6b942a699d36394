"""Servers as they are run: several nodes, replicas, standbys, poolers."""
