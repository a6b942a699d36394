"""HandlerSocket: parses bytes into requests, and turns results into bytes. No sockets, no SQL."""

from roost.protocols.handlersocket.tokens import NULL, SEPARATOR, escape, unescape

__all__ = ["NULL", "SEPARATOR", "escape", "unescape"]
