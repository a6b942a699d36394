"""Wire formats: bytes to values and values to bytes, without sockets."""
