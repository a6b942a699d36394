"""doctor: examine a database, how each guarantee holds there, and which settings would improve it."""

from __future__ import annotations

import dataclasses

import click

from roost.cli.app import GlobalOptions, shared
from roost.cli.screen import answer_table


@click.command()
@click.argument("url", required=False)
@shared
@click.pass_obj
def doctor(settings: GlobalOptions, url: str | None) -> None:
    """Examine a database: how each guarantee holds, and which settings would improve it.

    It only reads. Without a URL it examines the store of --store or ROOST_STORE.

    \b
    Examples:
      roost doctor
      roost doctor postgresql://user:password@host/database
    """
    if url is not None:
        settings.store = url
    with settings.open(catalog=False) as store:
        found = store.doctor()
    rows = [(each.subject, each.found, each.means, each.advice) for each in found]
    answer_table(
        settings,
        [dataclasses.asdict(each) for each in found],
        f"What holds on {store.url}",
        ("", "found", "so", "to gain more"),
        rows,
    )
