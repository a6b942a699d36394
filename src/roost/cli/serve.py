"""serve: HandlerSocket over the tables and structures of a database, and memcached's protocol over a cache."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import click

from roost.cli.app import Failure, GlobalOptions, must_be_there, shared
from roost.cli.console import MODULES
from roost.databases import open_engine
from roost.server import settings as serving
from roost.server.logs import log_to_stderr


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each setting to a command, and one for the file of each secret."""
    for name, setting in reversed(serving.SETTINGS.items()):
        if name == "url":
            continue
        if setting.secret:
            help_text = (
                f"A file with that secret in its only line; safer than {_spelt(name)}, which the process list shows."
            )
            command = click.option(_spelt(f"{name}_file"), f"{name}_file", metavar="PATH", help=help_text)(command)
        default = _default(name, setting.default)
        help_text = f"{setting.help_text} [default: {default}]" if default else setting.help_text
        command = click.option(_spelt(name), name, metavar=setting.metavar, help=help_text)(command)
    return command


def _spelt(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _default(name: str, value: Any) -> str:
    if name == "workers":
        return "one per CPU"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value).lower()


@click.command()
@click.argument("url", required=False)
@click.option(
    "--config",
    metavar="PATH",
    envvar=f"{serving.PREFIX}CONFIG",
    help="A TOML file with settings, named as these options with _ for -; SIGHUP reads it again.",
)
@_options
@shared
@click.pass_obj
def serve(cli: GlobalOptions, /, url: str | None, config: str | None, **options: str | None) -> None:
    """Serve a database by the HandlerSocket protocol, and a cache by memcached's.

    The database is a SQLite file, MariaDB or PostgreSQL. Its tables and Roost's structures are served for reads on one
    port and for writes on another; one cache is served to any client of memcached. Every option can also be set in the
    file of --config, or in the environment as ROOST_SERVE_READ and so on; an option wins over the environment, which
    wins over the file.

    It prints a line for each address as soon as all are served. On SIGTERM it answers the received requests and exits;
    on SIGHUP it reads the settings and certificates again.

    \b
    Examples:
      roost serve sqlite:////srv/app.db
      roost serve postgresql://app@db/shop --write none
      roost serve --read 0.0.0.0:9998 --read-secret-file /etc/roost/secret --write none
      roost serve sqlite:////srv/app.db --memcached 127.0.0.1:11211 --cache pages
      roost serve --config /etc/roost.toml --http 127.0.0.1:9100
    """
    said: dict[str, object] = {**options, "url": url or cli.store}

    def load() -> serving.Settings:
        return serving.load(config, os.environ, said)

    settings = load()
    _must_be_servable(settings)
    log_to_stderr("roost")
    raise click.exceptions.Exit(asyncio.run(_run(settings, load, partial(_announce, cli.json))))


def _must_be_servable(settings: serving.Settings) -> None:
    if importlib.util.find_spec("fcntl") is None:
        raise Failure("roost serve needs a system with forks and flock, such as Linux; Windows has neither")
    needed = {
        **({"apsw": ("the server", "server")} if settings.is_file else {}),
        **({"prometheus_client": ("--http", "server")} if settings.http else {}),
        **(dict.fromkeys(MODULES, ("--console", "console")) if settings.console else {}),
    }
    for module, (what, extra) in needed.items():
        if importlib.util.find_spec(module) is None:
            raise Failure(f"{what} needs {module}: `pip install 'roost[{extra}]'` brings it")
    if not settings.is_file:
        open_engine(
            settings.url, timeout=settings.timeout, trace=None, random=Random()
        )  # checks the URL; does not connect
    else:
        must_be_there(settings.url)


async def _run(
    settings: serving.Settings, load: Callable[[], serving.Settings], announce: Callable[[list[tuple[str, str]]], None]
) -> int:
    from roost.server.supervisor import Supervisor  # imports modules that no other command needs

    return await Supervisor(settings, load, announce).run()


def _announce(as_json: bool, listeners: list[tuple[str, str]]) -> None:
    if as_json:
        found: dict[str, list[str]] = {"read": [], "write": [], "http": []}
        for what, address in listeners:
            found.setdefault(what, []).append(address)
        click.echo(json.dumps(found))
    else:
        for what, address in listeners:
            click.echo(f"{what} {address}")
