"""HandlerSocket: parses bytes into requests, and turns results into bytes. No sockets, no SQL."""

from roost.protocols.handlersocket.tokens import END, NULL, SEPARATOR, decode, encode, escape, request, split, unescape

__all__ = ["END", "NULL", "SEPARATOR", "decode", "encode", "escape", "request", "split", "unescape"]
