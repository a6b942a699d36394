"""memcached's text protocol and meta commands: parses bytes into operations of a `Cache`, turns results into bytes.

No sockets, no SQL.
"""
