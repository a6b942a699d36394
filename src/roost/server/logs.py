"""Logging of the server's processes to stderr: one line per event, whatever the message contains."""

from __future__ import annotations

import logging
import re
import sys

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record).replace("\n", " | ")
        return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def log_to_stderr(who: str) -> None:
    """Log to stderr from now on, with the name of this process in each line.

    A traceback becomes one line too. Control characters are escaped, so text from a client can neither break a line nor
    control a terminal.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine(f"%(asctime)s %(levelname)s {who}[%(process)d] %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
