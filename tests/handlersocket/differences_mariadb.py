"""Where Roost on MariaDB answers a recording otherwise than the original did, each with the rule that says so.

Many of those steps are answered as on SQLite, by the rules of `differences.py`; here are their numbers, and the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.handlersocket.differences import RULES, Entry, expected

MARIADB_RULES = {
    **RULES,
    "prefix": "an index that begins with a prefix of a column cannot be opened",
    "none": "a HASH index cannot be opened, and what was opened before stays",
    "undone": "a table whose engine has no transactions is not modified",
    "13": "numbers that refused inserts would have had are not used again, and more are tried",
}

AS_ON_SQLITE: Mapping[str, Sequence[int]] = {
    "02_index_ids": [11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 27],
    "03_find_int_pk": [29, 34, 35],
    "05_find_strings_nulls": [30, 33, 44, 45],
    "06_limit_offset": [13, 14, 15, 16, 17, 20, 21, 23, 25, 26, 33, 34, 35],
    "07_in": [14, 18, 19, 20, 21, 24, 25, 27, 28, 29, 35, 37, 39, 40, 41, 43, 48],
    "09_insert": [6, 7, 8, 9, 10, 11, 14, 15, 16, 18, 19, 20, 24, 25, 27, 28, 29, 30, 31, 32, 43, 45, 46],
    "10_insert_defaults": [5, 6],
    "11_auto_increment": [14, 22],
    "12_types_numeric": [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 20, 21],
    "14_types_string": [8, 9, 10, 11, 12, 13, 16, 17],
    "15_binary": [8, 9, 10, 15, 16, 17, 21, 22],
    "16_update": [13, 15, 18, 19, 20, 49, 50, 51, 52, 53, 54, 60],
    "18_delete": [20, 21, 22],
    "20_readonly_port": [4],
    "23_pipeline": [10, 13, 14],
    "25_engines": [23, 27, 34, 35, 37, 38, 39, 48, 49, 52, 54, 55, 60, 61],
}

ON_MARIADB: Mapping[str, Sequence[Entry]] = {
    "05_find_strings_nulls": [
        ("prefix", b"2\t1\tidxnum\n", [47, 57]),
        ("prefix", b"2\t1\tstmtnum\n", [48, 49, 50, 51, 52, 53, 54, 55, 56, 58, 59, 60, 61]),
    ],
    "09_insert": [
        ("4", b"1\t1\ttype\n", [17]),
        ("seen", b"1\taa\t11\t12\td\te\t13\n22\tg\t1\t1\td\te\t1\n30\tj\t1\t1\td\te\t1\n", [38]),
    ],
    "10_insert_defaults": [
        (
            "seen",
            b"0\t17\t1\t\x00\t\x00\t5\t\x00\tx\t\x00\t\x00\t\x00\t\x00\ta\t\x00\t\x00\t\x00\t\x00\tq1\t\x00\n",
            [4],
        ),
        ("seen", b"1\tNULL\tNULL\t5\tNULL\tx\tNULL\tNULL\tnow\tNULL\tNULL\ta\tNULL\tNULL\tNULL\tNULL\tq1\tNULL\n", [7]),
        ("seen", b"1\t9\t0\t0\n", [9]),
    ],
    "11_auto_increment": [
        ("13", b"0\t1\t104\n", [15]),
        ("13", b"0\t1\t105\n0\t1\t106\n0\t1\t107\n", [16]),
        ("13", b"0\t1\t111\n1\t1\t121\n0\t1\t115\n", [17]),
        ("13", b"0\t1\t116\n", [18]),
        (
            "seen",
            b"-5\tj\n1\ta\n2\tb\n3\tc\n4\td\n5\te\n100\tf\n101\tg\n103\ti\n104\tl\n105\tm\n106\tn\n107\to\n111\tp\n115\tq\n116\tr\n",
            [19],
        ),
        ("13", b"0\t1\t118\n", [21]),
        ("T", b"1\t1\t167\n", [29, 30, 31]),
    ],
    "12_types_numeric": [
        ("4", b"1\t1\ttype\n", [16]),
        ("seen", b"0\t15\n", [17]),
        (
            "seen",
            b"1\t1\t1\t1\t1\t1\t1\t000001\t1\t1\t1.00\t1.000\t1.00\t31\t1\n9\t0\t0\t0\t0\t0\t0\t000000\t0.0000001\t0.0000000001\t0.00\t0.000\t0.00\t200\t0\n",
            [22],
        ),
    ],
    "14_types_string": [
        (
            "T",
            b'0\t13\t1\tab\tab\tab\tab\tab\x01@\x01@\tab\ta\tx\ttt\t{"a":1}\t::1\t123e4567-e89b-12d3-a456-426614174000\n',
            [3],
        ),
        ("4", b"1\t1\ttype\n", [4, 6, 14]),
        ("seen", b"0\t13\n", [5, 7, 15]),
        (
            "seen",
            b'1\t6162\t6162\t6162\t6162\t61620000\t6162\ta\tx\t2\t{"a":1}\t::1\t123e4567-e89b-12d3-a456-426614174000\n',
            [18],
        ),
    ],
    "15_binary": [
        ("4", b"1\t1\ttype\n", [33]),
        ("seen", b"", [34]),
    ],
    "25_engines": [
        ("undone", b"2\t1\tnotimpl\n", [3, 4, 5, 6, 10, 11, 12, 13, 21]),
        ("undone", b"0\t2\t1\ta\t2\tb\n", [7, 14]),
        ("undone", b"0\t2\n", [22]),
        ("none", b"2\t1\tidxnum\n", [15]),
        ("none", b"0\t2\t2\tb\n", [16, 17]),
        ("none", b"0\t2\t1\ta\n", [18]),
    ],
}


def expected_on_mariadb(name: str, step: int, original: bytes) -> tuple[str, bytes]:
    """Return the rule by which a step is answered otherwise, "" for none, and the answer."""
    if step in AS_ON_SQLITE.get(name, ()):
        return expected(name, step, original)
    for rule, answer, steps in ON_MARIADB.get(name, ()):
        if step in steps:
            return rule, answer(original) if callable(answer) else answer
    return "", original
