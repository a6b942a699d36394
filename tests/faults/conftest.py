"""Promises that are known not to be kept yet: reported as expected failures, with the reason."""

from __future__ import annotations

import pytest

ASYNC_CLOSE = "AsyncStore: what comes after close() is not always told Closed, nor a second close at once"
EXIT = "a store in use while the program ends or drops it is not always settled quietly"
FORK = "a fork waits for the batch under way no longer than the store's timeout, and not for check()"
HINT = "the hint at the thread's own transaction is given at once only where sqlite3 began it"
OPENING = "the first connection does not wait for, or tell of, every obstacle as later ones do"

# By the name of the test; True: it would hang, so it is not run.
KNOWN: dict[str, tuple[str, bool]] = {
    "test_fork_while_another_thread_waits_longer_than_the_timeout_of_the_store": (FORK, False),
    "test_fork_while_another_thread_reads_at_length": (FORK, False),
    "test_two_users_of_one_file": ("a lock file made by one user cannot be opened by another", False),
    "test_closed_twice_one_after_the_other": (ASYNC_CLOSE, True),
    "test_closed_twice_at_once": (ASYNC_CLOSE, True),
    "test_what_comes_after_close_is_refused_in_every_loop": (ASYNC_CLOSE, True),
    "test_one_loop_closes_while_tasks_of_another_wait": (ASYNC_CLOSE, True),
    "test_nothing_is_kept_of_a_loop_that_has_ended": ("a lane keeps its loop alive until the store goes", False),
    "test_what_comes_later_is_refused": ("check() and structures() still answer after close()", False),
    "test_a_program_that_ends_while_its_threads_work": (EXIT, True),
    "test_asyncio_stores_dropped_while_their_batches_are_under_way": (EXIT, True),
    "test_a_private_table_that_somebody_dropped": ("a dropped private table fails the neighbours in its batch", False),
    "test_a_database_of_somebody_else_is_waited_for_while_we_connect": (OPENING, False),
    "test_connecting_on_a_full_disk": (OPENING, False),
    "test_waiting_before_the_first_connection_is_counted_too": (OPENING, False),
    "test_told_soon_while_the_database_is_made": (OPENING, False),
    "test_told_at_the_timeout_where_the_application_begins_by_itself": (HINT, False),
    "test_nor_for_an_own_transaction_that_only_reads": (HINT, False),
    "test_nor_for_one_whose_write_was_refused": (HINT, False),
    "test_structures_as_the_catalog_has_them": ("generated row classes and enums cannot be pickled", False),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        known = KNOWN.get(getattr(item, "originalname", item.name))
        if known is not None:
            reason, hangs = known
            item.add_marker(pytest.mark.xfail(reason=reason, run=not hangs, strict=False))
