"""HandlerSocket: bytes to what is asked, and results to bytes. No sockets, no SQL."""

from roost.protocols.handlersocket.tokens import END, NULL, SEPARATOR, decode, encode, escape, request, split, unescape

__all__ = ["END", "NULL", "SEPARATOR", "decode", "encode", "escape", "request", "split", "unescape"]
