"""memcached's text protocol and its meta commands: bytes to operations of a `Cache`, and results to bytes.

No sockets, no SQL.
"""
