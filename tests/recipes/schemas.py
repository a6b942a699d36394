"""The real tables of others' libraries: `python -m tests.recipes.schemas URL` makes them by their own migrations.

Those of LangGraph's checkpoints are written out, since that library brings much else.
"""

from __future__ import annotations

import importlib.resources
import sys
from typing import Any
from urllib.parse import urlsplit

APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "oauth2_provider",
    "reversion",
    "simple_history",
    "django_tasks_db",
    "django_celery_results",
    "rest_framework_simplejwt.token_blacklist",
]

# langgraph-checkpoint-sqlite 3.1 and langgraph-checkpoint-postgres 3.2
LANGGRAPH = """
CREATE TABLE checkpoints (
    thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
    parent_checkpoint_id TEXT, type TEXT, checkpoint {json}, metadata {json},
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id));
CREATE TABLE {writes} (
    thread_id TEXT NOT NULL, checkpoint_ns TEXT NOT NULL DEFAULT '', checkpoint_id TEXT NOT NULL,
    task_id TEXT NOT NULL, task_path TEXT NOT NULL DEFAULT '', idx INTEGER NOT NULL, channel TEXT NOT NULL,
    type TEXT, {value},
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx));
"""

INDEXED = ("checkpoints", "checkpoint_writes")


def written_out(name: str) -> str:
    """Return the statements for the tables that are written out, on the database of a URL's scheme."""
    if name == "mysql":
        return ""
    if name == "postgresql":
        made = LANGGRAPH.format(
            json="JSONB NOT NULL DEFAULT '{}'", writes="checkpoint_writes", value="blob BYTEA NOT NULL"
        )
        return made + "".join([f"CREATE INDEX {table}_thread_id_idx ON {table} (thread_id);" for table in INDEXED])
    return LANGGRAPH.format(json="BLOB", writes="writes", value="value BLOB")


def procrastinate() -> str:
    """Return the schema that Procrastinate installs."""
    return (importlib.resources.files("procrastinate") / "sql/schema.sql").read_text()


def django_database(url: str) -> dict[str, Any]:
    """Return Django's settings for a database."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": parts.path[1:]}
    if parts.scheme == "mysql":
        import pymysql

        pymysql.install_as_MySQLdb()
    return {
        "ENGINE": f"django.db.backends.{parts.scheme}",
        "NAME": parts.path[1:],
        "HOST": parts.hostname,
        "PORT": parts.port,
        "USER": parts.username,
        "PASSWORD": parts.password or "",
    }


def migrate(url: str) -> None:
    """Make the tables of Django's libraries, and those of a model that has a history."""
    import django
    from django.conf import settings

    settings.configure(
        DATABASES={"default": django_database(url)},
        INSTALLED_APPS=APPS,
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        USE_TZ=True,
    )
    django.setup()
    from django.core.management import call_command
    from django.db import connection, models
    from simple_history.models import HistoricalRecords  # type: ignore[import-untyped]

    class Poll(models.Model):
        question: Any = models.CharField(max_length=200)
        history = HistoricalRecords(table_name="polls_historicalpoll")

        class Meta:
            app_label, db_table = "simple_history", "polls_poll"

    call_command("migrate", verbosity=0)
    with connection.schema_editor() as editor:
        editor.create_model(Poll)
        editor.create_model(Poll.history.model)


if __name__ == "__main__":
    migrate(sys.argv[1])
