"""Operations for Django's migrations: create, alter and drop a structure.

An operation stores the structure's definition, in the same text as the catalog, and writes that into a squashed
migration: what a migration does must not change with the application's code.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar

from django.db import router, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.operations.fields import FieldOperation
from django.db.migrations.operations.models import ModelOperation
from django.db.migrations.state import ProjectState

from roost.batching.known import Known
from roost.catalog.alter import Changes, alter
from roost.catalog.catalog import create, ddl, drop, drop_ddl, script
from roost.contrib.django.address import dialect_of
from roost.contrib.django.executor import DjangoExecutor, change
from roost.databases.engine import drive
from roost.dialects.dialect import Row
from roost.errors import Invalid, Missing
from roost.structures.registry import from_definition
from roost.structures.structure import Structure

# A structure, or the facts of its definition as in a migration that Django wrote.
Declared = Structure | Mapping[str, Any]


class StructureOperation(Operation):
    """The common base of the operations on structures."""

    reduces_to_sql = True
    serialization_expand_args: ClassVar[list[str]] = ["structure", "was", "defaults"]
    word: ClassVar[str]
    fragment: ClassVar[str]  # of a migration's name

    def __init__(self, structure: Declared) -> None:
        self.structure = _frozen(structure)
        self.name = self.structure.name

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        self._run(app_label, schema_editor, back=False)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        self._run(app_label, schema_editor, back=True)

    def _run(self, app_label: str, editor: BaseDatabaseSchemaEditor, back: bool) -> None:
        if router.allow_migrate(editor.connection.alias, app_label, structure=self.name):
            self.apply(Known(dialect_of(editor.connection)), editor, back)

    def apply(self, known: Known, editor: BaseDatabaseSchemaEditor, back: bool) -> None:
        """Do it, or the reverse; or print the SQL."""
        raise NotImplementedError

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change nothing: structures are not models, so `makemigrations` neither creates nor deletes them."""

    def describe(self) -> str:
        return f"{self.word} {self.structure.kind} {self.name}"

    @property
    def migration_name_fragment(self) -> str:
        return self.fragment.format(self.name)

    def references_model(self, name: str, app_label: str) -> bool:
        """Return False: the optimizer may move other operations past this one when migrations are squashed."""
        return False

    def reduce(self, operation: Operation, app_label: str) -> bool | list[Operation]:
        """Return the operations that replace the two; True if the two may be reordered."""
        if isinstance(operation, StructureOperation):
            return self.followed_by(operation) if operation.name == self.name else True
        if isinstance(operation, (ModelOperation, FieldOperation)):
            return True
        return super().reduce(operation, app_label)

    def followed_by(self, operation: StructureOperation) -> bool | list[Operation]:
        """Return the operations that replace this and a later one on the same structure; False to keep both."""
        return False


class _WholeStructure(StructureOperation):
    """The common base of `CreateStructure` and `DropStructure`, each of which reverses the other."""

    makes: ClassVar[bool]  # whether it is the one that creates

    def __init__(self, structure: Declared, view: bool = True) -> None:
        super().__init__(structure)
        self.view = view

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        more = {} if self.view else {"view": False}
        return type(self).__name__, [], {"structure": _facts(self.structure), **more}

    def apply(self, known: Known, editor: BaseDatabaseSchemaEditor, back: bool) -> None:
        plan, makes = known.plan(self.structure), self.makes is not back
        if editor.collect_sql:
            _is_told(editor, self.name)
        if editor.collect_sql and makes:
            _collect(editor, ddl(known.catalog, [plan], self.view))
        elif editor.collect_sql:
            _collect(editor, drop_ddl(known.catalog, [plan], self.view))
        elif makes:
            change(create(known.catalog, [plan], self.view), editor.connection)
        else:
            change(drop(known.catalog, [plan]), editor.connection)


class CreateStructure(_WholeStructure):
    """Create a structure if it is missing; `Mismatch` if it exists with another declaration.

    The reverse drops it with all its data: its view, its tables and its entry in the catalog.

    view: also create the view for SQL clients; see `roost.Store.create`.

    >>> import roost
    >>> from roost.contrib.django.operations import CreateStructure
    >>> CreateStructure(roost.Counter("pageviews")).describe()
    'Create counter pageviews'
    """

    word, fragment, makes = "Create", "{}", True

    def followed_by(self, operation: StructureOperation) -> bool | list[Operation]:
        if isinstance(operation, AlterStructure):
            view = self.view if operation.view is None else operation.view
            return [CreateStructure(operation.structure, view=view)]
        return [] if isinstance(operation, DropStructure) else False


class AlterStructure(StructureOperation):
    """Alter the stored structure to another declaration; see `roost.Store.alter` for what can be altered.

    was: the previous declaration, for reversing; None: the operation cannot be reversed. An added column stays when it
        is reversed, since its values would be lost; rows of the previous declaration get its default.
    defaults: the values that existing rows get in added columns, by column name; by default those of the row's
        dataclass, if the structure has one.
    view: True adds the view, False drops it; None leaves it as it is.

    >>> import roost
    >>> from roost.contrib.django.operations import AlterStructure
    >>> AlterStructure(roost.Counter("pageviews", slots=16), was=roost.Counter("pageviews")).describe()
    'Alter counter pageviews'
    """

    word, fragment = "Alter", "alter_{}"

    def __init__(
        self,
        structure: Declared,
        was: Declared | None = None,
        defaults: Mapping[str, Any] | None = None,
        view: bool | None = None,
    ) -> None:
        super().__init__(structure)
        self.was = None if was is None else _frozen(was)
        if self.was is not None and self.was.name != self.name:
            raise Invalid(f"{self.name}: was is another structure, {self.was.name}; a structure keeps its name")
        self.defaults = {**(_defaults(structure) if isinstance(structure, Structure) else {}), **(defaults or {})}
        self.view = view

    @property
    def reversible(self) -> bool:  # type: ignore[override]
        return self.was is not None

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        was = None if self.was is None else _facts(self.was)
        made = {"structure": _facts(self.structure), "was": was, "defaults": self.defaults or None, "view": self.view}
        return "AlterStructure", [], {name: value for name, value in made.items() if value is not None}

    def apply(self, known: Known, editor: BaseDatabaseSchemaEditor, back: bool) -> None:
        structure, view = self.structure, self.view
        if back:
            assert self.was is not None
            structure, view = self.was, None if view is None else not view
        defaults = {name: _member(structure, name, value) for name, value in self.defaults.items()}
        # Columns that neither declaration has were left by a reversed operation that had added them.
        kept = back or (self.was is not None and {*self.was.columns} <= {*structure.columns})
        work = alter(known.catalog, known.plan(structure), view, defaults, keep_columns=kept)
        if editor.collect_sql:
            _Printer(editor).print(work, self.name)
        else:
            change(work, editor.connection)

    def followed_by(self, operation: StructureOperation) -> bool | list[Operation]:
        if isinstance(operation, AlterStructure) and {self.view, operation.view} != {True, False}:
            view = self.view if operation.view is None else operation.view
            defaults = {**self.defaults, **operation.defaults}
            return [AlterStructure(operation.structure, was=self.was, defaults=defaults, view=view)]
        if isinstance(operation, DropStructure) and self.was is not None:  # whose reverse is that of both
            return [DropStructure(self.was, view=operation.view if self.view is None else not self.view)]
        return False


class DropStructure(_WholeStructure):
    """Drop a structure with all its data; the reverse creates it again, empty.

    view: whether the reverse also creates the view for SQL clients.

    >>> import roost
    >>> from roost.contrib.django.operations import DropStructure
    >>> DropStructure(roost.Counter("pageviews")).describe()
    'Drop counter pageviews'
    """

    word, fragment, makes = "Drop", "drop_{}", False


class _Printer(DjangoExecutor):
    """Collects the statements that `alter` would write. It runs the reads, since the writes depend on them."""

    def __init__(self, schema_editor: BaseDatabaseSchemaEditor) -> None:
        super().__init__(schema_editor.connection)
        self._editor = schema_editor
        self._programs: list[str] = []  # the statements, where they are collected together

    def print(self, work: Changes, name: str) -> None:
        """Collect the statements of `alter`."""
        why = "is changed before" if _is_told(self._editor, name) else ""
        try:
            if not why:
                with transaction.atomic(using=self._editor.connection.alias):
                    drive(work, self)
        except Missing:
            why = "is not there yet"
        finally:
            self.close()
        _collect(self._editor, self._programs)
        if why:
            self._editor.execute(f"-- {name} {why}: what is changed depends on what is stored by then", params=None)

    def obey(self, word: Any) -> None:
        """Do nothing."""

    def answer(self, sql: str, row: Row = (), returns: bool = False) -> Any:
        """Run a read; collect a write."""
        if returns:
            return super().answer(sql, row, returns)
        text, values = self.printed(sql, row)
        if self.dialect.family == "mariadb":
            self._programs.append(text)
        else:
            self._editor.execute(text, values)
        return 1


def _collect(schema_editor: BaseDatabaseSchemaEditor, statements: Sequence[str]) -> None:
    dialect = dialect_of(schema_editor.connection)
    if dialect.family == "mariadb" and statements:
        schema_editor.collected_sql += script(dialect, statements)  # Django ends a statement by one `;` at most
        return
    for sql in statements:
        schema_editor.execute(sql, params=None)


def _is_told(schema_editor: BaseDatabaseSchemaEditor, name: str) -> bool:
    # Whether an operation of the same migration has told what it does to a structure: it is not done, nor stored.
    told: set[str] = vars(schema_editor).setdefault("_roost_told", set())
    is_told = name in told
    told.add(name)
    return is_told


def _frozen(declared: Declared) -> Structure:
    # Rebuilt from its definition even if a structure is given, so that it holds no reference to the application's code.
    text = declared.definition if isinstance(declared, Structure) else json.dumps(declared, separators=(",", ":"))
    return from_definition(text)


def _facts(structure: Structure) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(structure.definition)
    return facts


def _defaults(structure: Structure) -> dict[str, Any]:
    rows = getattr(structure, "rows", None)
    found: dict[str, Any] = {}
    for field in dataclasses.fields(rows.type) if rows is not None else ():
        if field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory()
    return {name: value.value if isinstance(value, Enum) else value for name, value in found.items()}


def _member(structure: Structure, name: str, value: Any) -> Any:
    enum = next((each.type.enum for each in structure.columns if each.name == name), None)
    return value if enum is None or value is None else enum(value)
