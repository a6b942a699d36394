"""Statements on connections to MariaDB and MySQL, apart from the plans' own."""

from __future__ import annotations

from functools import lru_cache

from roost.databases.mariadb.session import NO_LIMIT

# The name of the lock on creating and altering structures. MySQL accepts 64 characters.
CREATE_LOCK = "LEFT(CONCAT('roost ', DATABASE()), 64)"

# READ COMMITTED whatever the server's default: what a write depends on is read by locking reads.
BEGIN = """\
SET SESSION {own}, innodb_lock_wait_timeout = {wait}, lock_wait_timeout = {metadata};
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION"""
READ_SETTINGS = """\
SET SESSION {own}, lock_wait_timeout = {metadata};
SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"""
BEGIN_READ = "START TRANSACTION READ ONLY"  # one snapshot, from its first row on: a lock on the table is older

# Of what is said outside of transactions. The servers' defaults are 50 seconds, and a day for a table's lock.
WAITS = "innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}"
MOST_SECONDS = 31_536_000  # that lock_wait_timeout takes
SNAPSHOT = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"  # of a query that is no transaction

# One operation by itself, which waits for nobody's lock: in a compound statement no limit below a second holds.
ASK = f"SET STATEMENT sql_select_limit = {NO_LIMIT}, sql_big_selects = 1, lock_wait_timeout = 0 FOR "
ALONE = """\
SET STATEMENT innodb_lock_wait_timeout = 0, lock_wait_timeout = 0 FOR BEGIN NOT ATOMIC
DECLARE `the count` BIGINT;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
START TRANSACTION;
{work};
INSERT INTO roost_writers (writer, batch, at) VALUES (%s, %s + {answer}, UTC_TIMESTAMP())
  ON DUPLICATE KEY UPDATE batch = IF(batch < VALUES(batch), VALUES(batch), NULL), at = VALUES(at){returning};
COMMIT; END"""

# Writes the number that identifies a batch; in the same round trip as BEGIN. A number that is not larger than the last
# one is refused: a text that reaches the server after its outcome was looked up must not be executed.
NOTE = """\
INSERT INTO roost_writers (writer, batch, at) VALUES (X'{writer}', {batch}, UTC_TIMESTAMP())
  ON DUPLICATE KEY UPDATE batch = IF(batch < {batch}, {batch}, NULL), at = UTC_TIMESTAMP()"""
FORGET = "DELETE FROM roost_writers WHERE writer = X'{writer}'"
LAST_BATCH = "SELECT batch FROM roost_writers WHERE writer = X'{writer}' FOR UPDATE"
# If the batch was not committed, takes the last number before the next batch's, so that a late text is refused. If it
# was, the row changes all the same: only the COMMIT of a change waits for a replica (semi-synchronous replication), and
# a replica that has this change has the batch.
TAKE_LAST = """\
INSERT INTO roost_writers (writer, batch, at) VALUES (X'{writer}', {last}, UTC_TIMESTAMP())
  ON DUPLICATE KEY UPDATE batch = IF(batch BETWEEN {batch} AND {last}, batch, {last}),
    at = IF(at = UTC_TIMESTAMP(), at - INTERVAL 1 SECOND, UTC_TIMESTAMP())"""
OLD_WRITERS = """\
SELECT writer FROM roost_writers WHERE at < UTC_TIMESTAMP() - INTERVAL 1 DAY LIMIT 100 FOR UPDATE SKIP LOCKED"""
SHORT_WAIT = "SET SESSION innodb_lock_wait_timeout = 1"  # for what is tried again
NO_WAIT = "SET SESSION innodb_lock_wait_timeout = 0"  # the same, which MySQL does not have
# On another node of Galera than before: it waits until it has what was committed on the others.
GALERA_WAITS = "SET SESSION wsrep_sync_wait = {}"
CATCHING_UP = 7
BEGINNING = 1  # START TRANSACTION waits
# Refused (1047) by a node that is not primary, or takes no queries: SET and SHOW are not, nor what reads no table. A
# node that answers outside of the primary component (wsrep_dirty_reads) answers what was there when it left.
GALERA_READY = f"""\
SET SESSION wsrep_dirty_reads = 0;
{GALERA_WAITS};
SELECT 1 FROM (SELECT 1) AS something"""

# A statement that takes locks may run for `lock_wait`, and for what it may need by itself (measured: 20 µs per row).
# One that is over then may have waited for a lock, or for a slow disk. So the batch is run once more, and waits for no
# lock at all: innodb_lock_wait_timeout has whole seconds only, but 0 tells exactly whether somebody holds one.
SECONDS_PER_VALUE = 0.0001
BYTES_PER_VALUE = 16  # of a text, which may have many rows as JSON
LIMITED = "SET STATEMENT max_statement_time = {seconds:.3f} FOR "
UNBLOCKED = "SET STATEMENT max_statement_time = {seconds:.3f}, innodb_lock_wait_timeout = 0, lock_wait_timeout = 0 FOR "
TOO_LONG = 1969
LEAST_SECONDS = 1.0  # that a statement which waits for no lock has, whatever the store's timeout


# Comments that are executed: the first by MariaDB alone, the second by MySQL from 8.0.20 on. The version that a
# connection tells may be a proxy's; this is answered by the server behind it.
WHICH = """\
SELECT 0 /*M! + 2 */ /*!80020 + 1 */, @@max_allowed_packet, CONCAT_WS(' ', @@hostname, @@port, @@datadir, @@server_id),
  @@read_only, CONNECTION_ID()"""
OF_SESSION = """\
SELECT @@character_set_client, @@character_set_connection, @@character_set_results, DATABASE()"""  # as the URL has it
GALERA = "SHOW SESSION VARIABLES LIKE 'wsrep_on'"  # there is none in MySQL
NODE = "SHOW STATUS LIKE 'wsrep_gcomm_uuid'"  # of Galera; another one after each start


@lru_cache
def alone(work: str, answer: str, answers: bool) -> str:
    """Return `ALONE` for one operation's work."""
    return ALONE.format(work=work, answer=answer, returning=" RETURNING batch" if answers else "")


def follows(applied: str, position: str, server: str) -> bool:
    """Return whether a replica that has applied these GTIDs has no transaction that the primary lacks.

    position, server: the primary's GTIDs at some time, and its server id, which all later transactions have.

    A replica that was not rebuilt after a failover may be ahead of the primary, with transactions that were lost:
    waiting for a GTID compares sequence numbers only, whichever server assigned them.

    >>> follows("0-2-20", "0-1-17", "2"), follows("0-1-17", "0-1-17", "2"), follows("0-1-20", "0-1-17", "2")
    (True, True, False)
    """
    known = _by_domain(position)
    for domain, (origin, number) in _by_domain(applied).items():
        origin_then, number_then = known.get(domain, (origin, number))
        if number > number_then and origin != server:
            return False
        if number == number_then and origin != origin_then:
            return False
    return True


def _by_domain(gtids: str) -> dict[str, tuple[str, int]]:
    found = {}
    for each in gtids.split(",") if gtids else ():
        domain, origin, number = each.strip().split("-")
        found[domain] = origin, int(number)
    return found
