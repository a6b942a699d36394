"""serve: HandlerSocket over a database, and memcached's protocol over a cache; console: pages about it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import secrets
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import click

from roost.cli.app import Failure, GlobalOptions, flag, must_be_there, shared, stored
from roost.databases import open_engine
from roost.databases.addresses import Address
from roost.server import settings as serving
from roost.server.processes import log_to_stderr
from roost.server.settings import secret_of

TOKEN = "ROOST_CONSOLE_TOKEN"
MODULES = ("starlette", "jinja2", "uvicorn", "prometheus_client")  # of the extra


@click.command()
@click.argument("url", required=False)
@click.option(
    "--address", default="127.0.0.1:8808", show_default=True, metavar="HOST:PORT", help="Where to serve; port 0: any."
)
@click.option("--host-name", "names", multiple=True, metavar="NAME", help="A host name by which it is reached.")
@click.option("--show-values", is_flag=True, help="Show rows, members and cached values, not only keys and numbers.")
@click.option("--allow", default="", metavar="VERB,…", help="What may be changed: clear, forget, remove.")
@click.option(
    "--token-file", metavar="PATH", help=f"A file with the token of the link in its only line. [env: {TOKEN}]"
)
@click.option("--no-token", is_flag=True, help="Let everybody on this machine look; for loopback addresses alone.")
@click.option("--no-browser", is_flag=True, help="Print the link and open nothing.")
@click.option("--attended", is_flag=True, hidden=True)
@shared
@click.pass_obj
def console(
    settings: GlobalOptions,
    /,
    url: str | None,
    address: str,
    names: tuple[str, ...],
    show_values: bool,
    allow: str,
    token_file: str | None,
    no_token: bool,
    no_browser: bool,
    attended: bool,
) -> None:
    """Show the structures of a database in the browser.

    It shows how full they are, what is written to them, and what they hold, and reads only while somebody looks: a few
    rows by an index, each page within a second. It changes nothing, unless --allow says what. The link that it prints
    has a token, without which nobody can look.

    \b
    Examples:
      roost console
      roost console postgresql://user:password@host/database
      roost console sqlite:////srv/app.db --show-values --allow clear,remove
    """
    for module in MODULES:
        if importlib.util.find_spec(module) is None:
            raise Failure(f"the console needs {module}: `pip install 'roost[console]'` brings it")
    from roost.console.app import Options, allowed, serve  # of the extra
    from roost.console.reading import SECONDS

    if url is not None:
        settings.store = url
    if no_token:
        token = None
    elif token_file is not None:
        token = secret_of(token_file)
    else:
        token = os.environ.get(TOKEN) or secrets.token_urlsafe(32)
    options = Options(show_values, allowed(allow), token, names)
    with settings.open() as store:
        stored(store)  # whether there is a database at all
    with settings.open(timeout=SECONDS) as store:
        serve(
            store,
            options,
            Address.parse(address),
            lambda link: click.echo(json.dumps({"console": link}) if settings.json else f"console {link}"),
            browser=not no_browser,
            attended=attended,
        )


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each setting to a command, and one for the file of each secret."""
    for name, setting in reversed(serving.SETTINGS.items()):
        if name == "url":
            continue
        if setting.secret:
            help_text = (
                f"A file with that secret in its only line; safer than {flag(name)}, which the process list shows."
            )
            command = click.option(flag(f"{name}_file"), f"{name}_file", metavar="PATH", help=help_text)(command)
        default = _default(name, setting.default)
        help_text = f"{setting.help_text} [default: {default}]" if default else setting.help_text
        command = click.option(flag(name), name, metavar=setting.metavar, help=help_text)(command)
    return command


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
