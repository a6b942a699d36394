"""console: pages in the browser that show the structures of a database."""

from __future__ import annotations

import importlib.util
import json
import os
import secrets

import click

from roost.cli.app import Failure, GlobalOptions, shared, stored
from roost.databases.addresses import Address
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
    from roost.console.app import Options, allowed  # of the extra
    from roost.console.looking import SECONDS
    from roost.console.serving import serve

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
