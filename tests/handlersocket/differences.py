"""Where Roost on SQLite answers a recording otherwise than the original did, each with the rule that says so.

Numbers are those of the rules in the documentation's list of what is different on purpose; T: the column types of
MariaDB and their conversions, which SQLite does not have; B: a bug of the original; V: its build.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

RULES = {
    "1": "a column that is not listed gets its real default",
    "2": "U with fewer values leaves the other columns as they are",
    "3": "numbers are numbers",
    "4": "a value that cannot be stored is an error, and a key that its column cannot hold matches nothing",
    "5": "+ and - need numeric columns and numbers, and stay in range",
    "6": "IN returns every row of each value",
    "7": "unknown operators of filters and broken escapes are errors, and filters on TEXT and BLOB work",
    "8": "a request is all or nothing, and modifies a row once",
    "9": "everything that SQL maintains is maintained",
    "11": "nothing a client sends can hurt another",
    "13": "insert answers the id of an automatic key",
    "T": "MariaDB's types and conversions, collations and limits of length",
    "V": "the build of the original: no more than 32 values",
    "none": "SQLite has no such table or index",
    "seen": "the rows differ by an answer above",
}

# One entry: the rule, the answer that is Roost's, and the steps that get it.
Entry = tuple[str, bytes, Sequence[int]]

DIFFERENCES: Mapping[str, Sequence[Entry]] = {}


def expected(name: str) -> dict[int, tuple[str, bytes]]:
    """Return the answers of Roost that differ from those of a recording, with their rules, by step."""
    return {step: (rule, answer) for rule, answer, steps in DIFFERENCES.get(name, ()) for step in steps}
