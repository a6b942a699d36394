# ruff: noqa: E501 - answers are not broken
"""Where Roost on MariaDB answers a recording otherwise than the original did, each with the rule that says so.

Numbers are those of the rules in the documentation's list of what is different on purpose; T: the types of columns and
their conversions; B: a bug of the original; V: its build.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
    "13": "insert answers the id of an automatic key; numbers of refused inserts are not used again, and more are tried",
    "T": "MariaDB's types and conversions, collations and limits of length",
    "B": "a bug of the original",
    "V": "the build of the original: no more than 32 values",
    "none": "a HASH index cannot be opened, and what was opened before stays",
    "prefix": "an index that begins with a prefix of a column cannot be opened",
    "undone": "a table whose engine has no transactions is not modified",
    "seen": "what it works on differs by an answer above",
}

# One entry: the rule, Roost's answer (or what makes it of the original's), and the steps that get it.
Answer = bytes | Callable[[bytes], bytes]
Entry = tuple[str, Answer, Sequence[int]]


def without(*keys: bytes) -> Callable[[bytes], bytes]:
    """Return what leaves out the rows of these keys."""

    def leave_out(rows: bytes) -> bytes:
        return b"".join(row for row in rows.splitlines(keepends=True) if row.partition(b"\t")[0] not in keys)

    return leave_out


# fmt: off
DIFFERENCES: Mapping[str, Sequence[Entry]] = {
    "02_index_ids": [
        ("3", b"2\t1\tnumber\n", [11, 12, 14, 16, 18, 20, 22, 27]),
        ("seen", b"2\t1\tstmtnum\n", [15, 19, 21]),
        ("seen", b"0\t1\n", [17]),
    ],
    "03_find_int_pk": [
        ("4", b"0\t4\n", [29, 34, 35]),
    ],
    "05_find_strings_nulls": [
        ("T", b"0\t2\n", [30]),
        ("4", b"0\t2\n", [33, 45]),
        ("7", b"2\t1\tescape\n", [44]),
        ("prefix", b"2\t1\tidxnum\n", [47, 57]),
        ("prefix", b"2\t1\tstmtnum\n", [48, 49, 50, 51, 52, 53, 54, 55, 56, 58, 59, 60, 61]),
    ],
    "06_limit_offset": [
        ("3", b"2\t1\tnumber\n", [13, 14, 15, 16, 17, 20, 21, 25, 26, 33, 34, 35]),
        ("B", b"0\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\n", [23]),
    ],
    "07_in": [
        ("3", b"2\t1\tnumber\n", [14, 20, 24, 25]),
        ("6", b"2\t1\tinvalueslen\n", [18, 19, 21, 40]),
        ("6", b"0\t3\t2\t1\t2\t3\t1\t3\t4\t2\t1\t5\t2\t2\t6\t2\t2\t7\t\x00\t1\t8\t\x00\t\x00\t4\t2\t1\t5\t2\t2\t6\t2\t2\n", [27]),
        ("6", b"0\t3\t7\t\x00\t1\t8\t\x00\t\x00\n", [28]),
        ("6", b"0\t3\t2\t1\t2\t1\t1\t1\t4\t2\t1\t3\t1\t3\t2\t1\t2\t1\t1\t1\n", [29]),
        ("6", b"0\t3\t1\t1\t1\t2\t1\t2\t3\t1\t3\t4\t2\t1\t5\t2\t2\t6\t2\t2\n", [35]),
        ("6", b"0\t3\t4\t2\t1\t5\t2\t2\t6\t2\t2\n", [37]),
        ("6", b"0\t3\t7\t\x00\t1\t4\t2\t1\n", [39]),
        ("6", b"0\t3\t2\t1\t2\t3\t1\t3\t5\t2\t2\t6\t2\t2\n", [41]),
        ("6", b"0\t2\t2\tb\t6\t\t5\t\x00\t8\th\n", [43]),
        ("8", b"1\t1\t1\ta\n3\t1\t3\tc\n6\t2\t2\t\n7\tNULL\t1\tg\n8\tNULL\tNULL\th\n", [48]),
    ],
    "09_insert": [
        ("1", b"1\t1\tnotnull\n", [6, 7, 8, 9, 10, 25, 43, 45]),
        ("seen", b"1\taa\t11\t12\td\te\t13\n", [11]),
        ("4", b"1\t1\tnotnull\n", [14, 15, 16]),
        ("4", b"1\t1\ttype\n", [17]),
        ("4", b"1\t1\ttype\n", [18, 19, 20, 24, 28, 30]),
        ("3", b"2\t1\tnumber\n", [27, 31, 32]),
        ("V", b"1\t1\ttype\n", [29]),
        ("seen", b"1\taa\t11\t12\td\te\t13\n22\tg\t1\t1\td\te\t1\n30\tj\t1\t1\td\te\t1\n", [38]),
        ("seen", b"", [46]),
    ],
    "10_insert_defaults": [
        ("seen", b"0\t17\t1\t\x00\t\x00\t5\t\x00\tx\t\x00\t\x00\t\x00\t\x00\ta\t\x00\t\x00\t\x00\t\x00\tq1\t\x00\n", [4]),
        ("4", b"1\t1\tnotnull\n", [5]),
        ("seen", b"0\t17\n", [6]),
        ("seen", b"1\tNULL\tNULL\t5\tNULL\tx\tNULL\tNULL\tnow\tNULL\tNULL\ta\tNULL\tNULL\tNULL\tNULL\tq1\tNULL\n", [7]),
        ("seen", b"1\t9\t0\t0\n", [9]),
    ],
    "11_auto_increment": [
        ("4", b"1\t1\ttype\n", [14]),
        ("13", b"0\t1\t104\n", [15]),
        ("13", b"0\t1\t105\n0\t1\t106\n0\t1\t107\n", [16]),
        ("13", b"0\t1\t111\n1\t1\t121\n0\t1\t115\n", [17]),
        ("13", b"0\t1\t116\n", [18]),
        ("seen", b"-5\tj\n1\ta\n2\tb\n3\tc\n4\td\n5\te\n100\tf\n101\tg\n103\ti\n104\tl\n105\tm\n106\tn\n107\to\n111\tp\n115\tq\n116\tr\n", [19]),
        ("13", b"0\t1\t118\n", [21]),
        ("seen", b"j\na\nb\nc\nd\ne\nf\ng\ni\nl\nm\nn\no\np\nq\nr\nsql\ns\n", [22]),
        ("T", b"1\t1\t167\n", [29, 30, 31]),
    ],
    "12_types_numeric": [
        ("4", b"1\t1\ttype\n", [4, 6, 8, 10, 12, 14, 20]),
        ("seen", b"0\t15\n", [5, 7, 9, 11, 13, 15, 21]),
        ("4", b"1\t1\ttype\n", [16]),
        ("seen", b"0\t15\n", [17]),
        ("seen", b"1\t1\t1\t1\t1\t1\t1\t000001\t1\t1\t1.00\t1.000\t1.00\t31\t1\n9\t0\t0\t0\t0\t0\t0\t000000\t0.0000001\t0.0000000001\t0.00\t0.000\t0.00\t200\t0\n", [22]),
    ],
    "14_types_string": [
        ("T", b'0\t13\t1\tab\tab\tab\tab\tab\x01@\x01@\tab\ta\tx\ttt\t{"a":1}\t::1\t123e4567-e89b-12d3-a456-426614174000\n', [3]),
        ("4", b"1\t1\ttype\n", [4, 6, 14]),
        ("seen", b"0\t13\n", [5, 7, 15]),
        ("4", b"1\t1\ttype\n", [8, 10, 12, 16]),
        ("seen", b"0\t13\n", [9, 11, 13, 17]),
        ("seen", b'1\t6162\t6162\t6162\t6162\t61620000\t6162\ta\tx\t2\t{"a":1}\t::1\t123e4567-e89b-12d3-a456-426614174000\n', [18]),
    ],
    "15_binary": [
        ("7", b"2\t1\tescape\n", [8, 9, 10, 15, 16, 17]),
        ("seen", without(b"3", b"4", b"5", b"10", b"11", b"12"), [21]),
        ("seen", b"0\t3\t6\ta\x10b?c\xbfd\tx\t7\t\x01@\x01@\t\x01@a\t8\t\x01@\t\x01@\x01@\t9\t\t\x00\t13\tab\tcd\t14\tab\tcd\x01M\t15\ta\x01Mb\tcd\x01M\n", [22]),
        ("4", b"1\t1\ttype\n", [33]),
        ("seen", b"", [34]),
    ],
    "16_update": [
        ("2", b"0\t4\t1\tA2\t10\t1\n", [13]),
        ("2", b"0\t4\t2\tB\t10\t2\n", [15]),
        ("4", b"1\t1\tnotnull\n", [18]),
        ("seen", b"0\t4\t3\t\x00\t20\t3\n", [19]),
        ("seen", b"1\tA2\t10\t1\n2\tB\t10\t2\n3\tNULL\t20\t3\n4\td\t20\t4\n5\te\tNULL\t5\n1\ta\t10\t1\n2\tb\t10\t2\n3\tc\t20\t3\n4\td\t20\t4\n5\te\t30\t5\n", [20]),
        ("3", b"2\t1\tnumber\n", [49, 50, 51]),
        ("4", b"1\t1\ttype\n", [52]),
        ("seen", b"0\t4\t2\tuqx\t30\t2\n", [53]),
        ("seen", b"2\tuqx\t30\t2\n3\tall\t30\t3\n4\tall\t30\t4\n5\tall\t30\t5\n100\tall\t30\t100\n", [54]),
        ("seen", b"0\t2\t2\tuqx\n", [60]),
    ],
    "18_delete": [
        ("1", b"0\t1\t1\n0\t2\n1\t1\tnotnull\n0\t2\n", [20]),
        ("seen", b"", [21]),
        ("seen", b"0\t1\t0\n", [22]),
    ],
    "20_readonly_port": [
        ("V", b"2\t1\treadonly\n", [4]),
    ],
    "23_pipeline": [
        ("8", b"0\t3\t1\tx\t10\n1\t1\t121\n0\t3\n0\t3\t1\tx\t10\n", [10]),
        ("seen", b"0\t1\n0\t1\t-1\t1\t2\t3\t4\t5\t20\t21\t22\n", [13]),
        ("seen", b"-1\tz\t1\t6\n1\tx\t10\t1\n2\tx\t20\t2\n3\ty\t10\t3\n4\ty\tNULL\t4\n5\tNULL\t5\t5\n20\tp\t1\t7\n21\tp\t1\t7\n22\tp\t1\t7\n", [14]),
    ],
    "25_engines": [
        ("undone", b"2\t1\tnotimpl\n", [3, 4, 5, 6, 10, 11, 12, 13, 21]),
        ("undone", b"0\t2\t1\ta\t2\tb\n", [7, 14]),
        ("none", b"2\t1\tidxnum\n", [15]),
        ("none", b"0\t2\t2\tb\n", [16, 17]),
        ("none", b"0\t2\t1\ta\n", [18]),
        ("undone", b"0\t2\n", [22]),
        ("none", b"2\t1\tidxnum\n", [23]),
        ("none", b"1\t1\topen_table\n", [27, 60]),
        ("9", b"0\t4\t3\t30\t31\t32\n", [34]),
        ("9", b"0\t3\t3\t30\t31\n", [35]),
        ("9", b"0\t4\t1\t100\t101\t102\n", [37]),
        ("9", b"0\t3\t1\t100\t101\n", [38]),
        ("seen", b"1\t100\t101\t102\n2\t20\t21\t22\n3\t30\t31\t32\n", [39]),
        ("9", b"1\t1\tcheck\n", [48]),
        ("seen", b"0\t2\n", [49]),
        ("9", b"0\t2\t1\t99\n", [52]),
        ("V", b"0\t1\n", [54]),
        ("seen", b"1\t1\t121\n", [55]),
        ("none", b"2\t1\tkpnum\n", [61]),
    ],
}
# fmt: on


def expected(name: str, step: int, response: bytes) -> tuple[str, bytes]:
    """Return what Roost answers to a step, and the rule by which that differs, "" where it does not."""
    for rule, answer, steps in DIFFERENCES.get(name, ()):
        if step in steps:
            return rule, answer if isinstance(answer, bytes) else answer(response)
    return "", response
