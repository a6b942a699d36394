"""MemcachedSet: sets kept in memcached by append and compare-and-swap."""
