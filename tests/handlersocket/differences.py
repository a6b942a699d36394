# ruff: noqa: E501 - answers are not broken
"""Where Roost answers a recording otherwise than the original did, each with the rule that says so.

Numbers are those of the rules in the documentation's list of what is different on purpose; T: the column types of
MariaDB and their conversions, which others do not have; B: a bug of the original; V: its build.
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
    # On MariaDB those that refused inserts would have had are not used again; a sequence of PostgreSQL does not go on
    # behind a number that was given either.
    "13": "insert answers the id of an automatic key",
    "T": "MariaDB's types and conversions, collations and limits of length",
    "B": "a bug of the original",
    "V": "the build of the original: no more than 32 values",
    "C": 'PostgreSQL: the columns were made with COLLATE "C", so their texts are compared by their bytes',
    "char": "PostgreSQL: char(n) is shown with the spaces that fill it",
    "none": "the database has no such table or index, or none that can be opened",
    "prefix": "MariaDB: an index that begins with a prefix of a column cannot be opened",
    "undone": "MariaDB: a table whose engine has no transactions is not modified",
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


ON_SQLITE: Mapping[str, Sequence[Entry]] = {
    "02_index_ids": [
        ("3", b"2\t1\tnumber\n", [11, 12, 14, 16, 18, 20, 22, 27]),
        ("seen", b"2\t1\tstmtnum\n", [15, 19, 21]),
        ("seen", b"0\t1\n", [17]),
    ],
    "03_find_int_pk": [
        ("4", b"0\t4\n", [29, 34, 35]),
    ],
    "05_find_strings_nulls": [
        ("T", b"0\t2\n", [26, 28, 30, 50, 64, 71]),
        ("4", b"0\t2\n", [31, 32, 33, 45]),
        ("T", b"0\t2\t\t0\ta\t1\tabcdefghij\t4\tB\t2\tc \t3\t\xc3\xa9\t5\n", [34]),
        ("T", b"0\t2\tabcdefghij\t4\tB\t2\tc \t3\t\xc3\xa9\t5\n", [35]),
        ("7", b"2\t1\tescape\n", [44]),
        ("T", b"0\t2\t1\tabc\n", [48, 58]),
        ("T", b"0\t2\t2\tabcdef\n", [49, 59]),
        ("T", b"0\t2\t2\tabcdef\t3\tabd\n", [54, 55]),
        ("T", b"0\t2\t1\tabc\t4\tab\t5\t\x00\n", [56]),
    ],
    "06_limit_offset": [
        ("3", b"2\t1\tnumber\n", [13, 14, 15, 16, 17, 20, 21, 25, 26, 33, 34, 35]),
        ("B", b"0\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\n", [23]),
    ],
    "07_in": [
        ("3", b"2\t1\tnumber\n", [14, 20, 24, 25]),
        ("6", b"2\t1\tinvalueslen\n", [18, 19, 21, 40]),
        (
            "6",
            b"0\t3\t2\t1\t2\t3\t1\t3\t4\t2\t1\t5\t2\t2\t6\t2\t2\t7\t\x00\t1\t8\t\x00\t\x00\t4\t2\t1\t5\t2\t2\t6\t2\t2\n",
            [27],
        ),
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
        ("4", b"1\t1\ttype\n", [18, 19, 20, 24, 28, 30]),
        ("3", b"2\t1\tnumber\n", [27, 31, 32]),
        ("V", b"1\t1\ttype\n", [29]),
        (
            "seen",
            b"1\taa\t11\t12\td\te\t13\n12\ttoolong\t1\t1\ttoolong\te\t1\n22\tg\t1\t1\td\te\t1\n30\tj\t1\t1\td\te\t1\n",
            [38],
        ),
        ("seen", b"", [46]),
    ],
    "10_insert_defaults": [
        ("1", b"1\t1\tnotnull\n", [3]),
        ("seen", b"0\t17\n", [4, 6]),
        ("4", b"1\t1\tnotnull\n", [5]),
        ("seen", b"", [7, 9]),
        ("seen", b"0\t1\t0\n", [8]),
    ],
    "11_auto_increment": [
        ("13", b"0\t1\t102\n", [12]),
        ("4", b"1\t1\ttype\n", [14]),
        ("13", b"0\t1\t103\n", [15]),
        ("13", b"0\t1\t104\n0\t1\t105\n0\t1\t106\n", [16]),
        ("13", b"0\t1\t107\n1\t1\t121\n0\t1\t108\n", [17]),
        ("13", b"0\t1\t109\n", [18]),
        (
            "seen",
            b"-5\tj\n1\ta\n2\tb\n3\tc\n4\td\n5\te\n100\tf\n101\tg\n102\ti\n103\tl\n104\tm\n105\tn\n106\to\n107\tp\n108\tq\n109\tr\n",
            [19],
        ),
        ("13", b"0\t1\t111\n", [21]),
        ("seen", b"j\na\nb\nc\nd\ne\nf\ng\ni\nl\nm\nn\no\np\nq\nr\nsql\ns\n", [22]),
        ("T", b"0\t1\t1\n", [24]),
        ("T", b"0\t1\t2\n", [25]),
        ("T", b"0\t1\t3\n", [26]),
        ("T", b"0\t1\t4\n", [27]),
        ("T", b"0\t1\t5\n", [28]),
        ("T", b"0\t1\t6\n", [29]),
        ("T", b"0\t1\t7\n", [30]),
        ("T", b"0\t1\t8\n", [31]),
        ("T", b"0\t1\t128\n", [35]),
        ("T", b"0\t1\t129\n", [36]),
        ("seen", b"1\tv0\n2\tv1\n3\tv2\n4\tv3\n5\tv4\n6\tv5\n7\tv6\n8\tv7\n126\tv0\n127\tv1\n128\tv2\n129\tv3\n", [38]),
    ],
    "12_types_numeric": [
        ("T", b"0\t15\t1\t1\t1\t1\t1\t1\t1\t1\t1.0\t1.0\t1.0\t1\t1\t1\t1\n", [3]),
        ("4", b"1\t1\ttype\n", [4, 6, 8, 10, 12, 14, 20]),
        ("seen", b"0\t15\n", [5, 7, 9, 11, 13, 15, 21]),
        (
            "T",
            b"0\t15\t8\t0\t0\t0\t0\t0\t0\t0\t3.4028235e+38\t1.7976931348623157e+308\t0.0\t-0.0004\t0\t\x01A\t0\n",
            [17],
        ),
        ("T", b"0\t15\t9\t0\t0\t0\t0\t0\t0\t0\t1e-07\t1e-10\t0.0\t0\t0\t\x01B\x01@\t0\n", [19]),
        (
            "seen",
            b"1\t1\t1\t1\t1\t1\t1\t1\t1.0\t1.0\t1.0\t1\t1\t31\t1\n8\t0\t0\t0\t0\t0\t0\t0\t3.4028235e+38\t1.7976931348623157e+308\t0.0\t-0.0004\t0\t01\t0\n9\t0\t0\t0\t0\t0\t0\t0\t1e-07\t1e-10\t0.0\t0\t0\t0200\t0\n",
            [22],
        ),
    ],
    "14_types_string": [
        ("T", b'0\t13\t1\tab\tab\tab\tab\tab\tab\ta\tx\ttt\t{"a":1}\t::1\t123e4567-e89b-12d3-a456-426614174000\n', [3]),
        (
            "T",
            b"0\t13\t2\tab  \tab  \tab  \tab\tab  \tab  \tB\tx,z\ttt \t[]\t1.2.3.4\t123E4567E89B12D3A456426614174000\n",
            [5],
        ),
        (
            "T",
            b"0\t13\t3\tabcdef\tabcdef\tabcdef\tabcdef\tabcdef\tabcdef\tnope\tx,nope\t"
            + b"x" * 300
            + b"\tnot json\tbad\tbad\n",
            [7],
        ),
        ("4", b"1\t1\ttype\n", [8, 10, 12, 16]),
        ("seen", b"0\t13\n", [9, 11, 13, 17]),
        (
            "T",
            b"0\t13\t7\ta\ta\t\xf0\x9f\x98\x80\xf0\x9f\x98\x80\t\xe2\x82\xac\t\x01@\x01@\t\x01@\x01@\t4\t9\t\tnull\t\x00\t\x00\n",
            [15],
        ),
        (
            "T",
            b'1\t6162\t6162\t6162\t6162\t6162\t6162\ta\tx\t2\t{"a":1}\t::1\t123e4567-e89b-12d3-a456-426614174000\n2\t61622020\t61622020\t61622020\t6162\t61622020\t61622020\tB\tx,z\t3\t[]\t1.2.3.4\t123E4567E89B12D3A456426614174000\n3\t616263646566\t616263646566\t616263646566\t616263646566\t616263646566\t616263646566\tnope\tx,nope\t300\tnot json\tbad\tbad\n7\t61\t61\tF09F9880F09F9880\tE282AC\t0000\t0000\t4\t9\t0\tnull\tNULL\tNULL\n',
            [18],
        ),
    ],
    "15_binary": [
        ("7", b"2\t1\tescape\n", [8, 9, 10, 15, 16, 17]),
        ("seen", without(b"3", b"4", b"5", b"10", b"11", b"12"), [21]),
        (
            "seen",
            b"0\t3\t6\ta\x10b?c\xbfd\tx\t7\t\x01@\x01@\t\x01@a\t8\t\x01@\t\x01@\x01@\t9\t\t\x00\t13\tab\tcd\t14\tab\tcd\x01M\t15\ta\x01Mb\tcd\x01M\n",
            [22],
        ),
        ("T", b"22\t100000\t1000\n", [34]),
    ],
    "16_update": [
        ("2", b"0\t4\t1\tA2\t10\t1\n", [13]),
        ("2", b"0\t4\t2\tB\t10\t2\n", [15]),
        ("4", b"1\t1\tnotnull\n", [18]),
        ("seen", b"0\t4\t3\t\x00\t20\t3\n", [19]),
        (
            "seen",
            b"1\tA2\t10\t1\n2\tB\t10\t2\n3\tNULL\t20\t3\n4\td\t20\t4\n5\te\tNULL\t5\n1\ta\t10\t1\n2\tb\t10\t2\n3\tc\t20\t3\n4\td\t20\t4\n5\te\t30\t5\n",
            [20],
        ),
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
        (
            "seen",
            b"-1\tz\t1\t6\n1\tx\t10\t1\n2\tx\t20\t2\n3\ty\t10\t3\n4\ty\tNULL\t4\n5\tNULL\t5\t5\n20\tp\t1\t7\n21\tp\t1\t7\n22\tp\t1\t7\n",
            [14],
        ),
    ],
    "25_engines": [
        ("none", b"0\t2\t2\t20\t3\t30\n", [17]),
        ("none", b"0\t2\t1\t10\n", [18]),
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


# Where MariaDB answers as the original did, and SQLite not.
AS_THE_ORIGINAL: Mapping[str, Sequence[int]] = {
    "05_find_strings_nulls": [26, 28, 31, 32, 34, 35, 64, 71],
    "10_insert_defaults": [3, 8],
    "11_auto_increment": [12, 24, 25, 26, 27, 28, 35, 36, 38],
    "12_types_numeric": [3, 19],
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

LISTS = {"sqlite": ON_SQLITE, "mariadb": ON_MARIADB, "postgresql": ON_POSTGRESQL}


def expected(name: str, step: int, response: bytes, database: str = "sqlite") -> tuple[str, bytes]:
    """Return what Roost answers to a step, and the rule by which that differs, "" where it does not."""
    for rule, answer, steps in LISTS[database].get(name, ()):
        if step in steps:
            return rule, answer if isinstance(answer, bytes) else answer(response)
    if database == "sqlite" or (database == "mariadb" and step in AS_THE_ORIGINAL.get(name, ())):
        return "", response
    # Most steps are answered as on SQLite.
    as_on_mariadb = database == "postgresql" and step in AS_ON_MARIADB.get(name, ())
    return expected(name, step, response, "mariadb" if as_on_mariadb else "sqlite")
