"""Where Roost on PostgreSQL answers a recording otherwise than the original did, each with the rule that says so.

Most of those steps are answered as on SQLite or MariaDB, by the rules of `differences.py` and `differences_mariadb.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.handlersocket.differences import RULES, Entry, expected
from tests.handlersocket.differences_mariadb import expected_on_mariadb

POSTGRESQL_RULES = {
    **RULES,
    "13": "a sequence does not go on behind a number that was given, nor back where an insert was refused",
    "C": 'the columns were made with COLLATE "C": their texts are compared by their bytes',
    "char": "char(n) is shown with the spaces that fill it",
}

AS_ON_SQLITE: Mapping[str, Sequence[int]] = {
    "02_index_ids": [11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 27],
    "03_find_int_pk": [29, 34, 35],
    "05_find_strings_nulls": [26, 28, 30, 31, 32, 33, 44, 45, 48, 49, 50, 54, 55, 56, 58, 59, 64],
    "06_limit_offset": [13, 14, 15, 16, 17, 20, 21, 23, 25, 26, 33, 34, 35],
    "07_in": [14, 18, 19, 20, 21, 24, 25, 27, 28, 29, 35, 37, 39, 40, 41, 43, 48],
    "09_insert": [6, 7, 8, 9, 10, 11, 14, 15, 16, 18, 19, 20, 24, 25, 27, 28, 29, 30, 31, 32, 43, 45, 46],
    "10_insert_defaults": [3, 4, 5, 6, 7, 8, 9],
    "11_auto_increment": [14, 24, 25, 26, 27, 28, 29, 30, 31, 35, 36, 38],
    "12_types_numeric": [4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 20, 21],
    "14_types_string": [8, 9, 10, 11, 12, 13, 16, 17],
    "15_binary": [8, 9, 10, 15, 16, 17, 21, 22, 34],
    "16_update": [13, 15, 18, 19, 20, 49, 50, 51, 52, 53, 54, 60],
    "18_delete": [20, 21, 22],
    "20_readonly_port": [4],
    "23_pipeline": [10, 13, 14],
    "25_engines": [17, 18, 23, 27, 34, 35, 37, 38, 39, 48, 49, 52, 54, 55, 60, 61],
}
AS_ON_MARIADB: Mapping[str, Sequence[int]] = {
    "09_insert": [17, 38],
    "12_types_numeric": [16, 17],
    "14_types_string": [4, 5, 6, 7, 14, 15],
}

ON_POSTGRESQL: Mapping[str, Sequence[Entry]] = {
    "05_find_strings_nulls": [
        ("C", b"0\t2\n", [24, 27, 72]),
        ("C", b"0\t2\t\t0\tB\t2\ta\t1\tabcdefghij\t4\tc \t3\t\xc3\xa9\t5\n", [34]),
        ("C", b"0\t2\tabcdefghij\t4\tc \t3\t\xc3\xa9\t5\n", [35]),
        ("char", b"0\t2\tab   \txy\n", [70, 71]),
    ],
    "11_auto_increment": [
        ("13", b"0\t1\t6\n", [9]),
        ("13", b"0\t1\t8\n", [12]),
        ("13", b"0\t1\t9\n", [15]),
        ("13", b"0\t1\t10\n0\t1\t11\n0\t1\t12\n", [16]),
        ("13", b"0\t1\t15\n1\t1\t121\n0\t1\t18\n", [17]),
        ("13", b"0\t1\t19\n", [18]),
        (
            "seen",
            b"-5\tj\n1\ta\n2\tb\n3\tc\n4\td\n5\te\n6\tg\n8\ti\n9\tl\n10\tm\n11\tn\n12\to\n15\tp\n18\tq\n19\tr\n100\tf\n",
            [19],
        ),
        ("13", b"0\t1\t21\n", [21]),
        ("seen", b"j\na\nb\nc\nd\ne\ng\ni\nl\nm\nn\no\np\nq\nr\nsql\ns\nf\n", [22]),
    ],
    "12_types_numeric": [
        ("T", b"0\t15\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1.000\t1.00\t1\t1\n", [3]),
        ("T", b"0\t15\t9\t0\t0\t0\t0\t0\t0\t0\t1e-07\t1e-10\t0\t0.000\t0.00\t\x01B\x01@\t0\n", [19]),
        (
            "seen",
            b"1\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1\t1.000\t1.00\t31\t1\n9\t0\t0\t0\t0\t0\t0\t0\t1e-07\t1e-10\t0\t0.000\t0.00\t0200\t0\n",
            [22],
        ),
    ],
    "14_types_string": [
        (
            "T",
            b'0\t13\t1\tab  \tab\tab\tab\tab\tab\ta\tx\ttt\t{"a":1}\t::1\t123e4567-e89b-12d3-a456-426614174000\n',
            [3],
        ),
        (
            "seen",
            b'1\t6162\t6162\t6162\t6162\t6162\t6162\ta\tx\t2\t{"a":1}\t::1\t123e4567-e89b-12d3-a456-426614174000\n',
            [18],
        ),
    ],
}


def expected_on_postgresql(name: str, step: int, original: bytes) -> tuple[str, bytes]:
    """Return the rule by which a step is answered otherwise, "" for none, and the answer."""
    if step in AS_ON_SQLITE.get(name, ()):
        return expected(name, step, original)
    if step in AS_ON_MARIADB.get(name, ()):
        return expected_on_mariadb(name, step, original)
    for rule, answer, steps in ON_POSTGRESQL.get(name, ()):
        if step in steps:
            return rule, answer(original) if callable(answer) else answer
    return "", original
