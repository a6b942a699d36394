"""What a structure of your own is made of: docs/own-structure.md. It may change between minor versions until 1.0."""

from roost.dialects.dialect import Dialect, Row
from roost.errors import Invalid
from roost.structures.clock import duration
from roost.structures.console import REQUIRED, Console, PeekConsole
from roost.structures.operation import Operation, first
from roost.structures.plan import Context
from roost.structures.program import ProgramPlan, Write
from roost.structures.reading import Ask
from roost.structures.refusing import RefusingPlan
from roost.structures.registry import register
from roost.structures.relation import Relation
from roost.structures.rules import has_head, rule, sweep
from roost.structures.steps import (
    INT,
    Do,
    Each,
    Fact,
    Fetch,
    Give,
    Head,
    Leave,
    Let,
    Next,
    Now,
    Program,
    Refuse,
    Step,
    number,
)
from roost.structures.structure import Group, Key, Structure, column_facts
from roost.structures.wire import Wire
from roost.structures.words.words import Words
from roost.types.column_types import ColumnType
from roost.types.columns import Column

__all__ = [
    "INT",
    "REQUIRED",
    "Ask",
    "Column",
    "ColumnType",
    "Console",
    "Context",
    "Dialect",
    "Do",
    "Each",
    "Fact",
    "Fetch",
    "Give",
    "Group",
    "Head",
    "Invalid",
    "Key",
    "Leave",
    "Let",
    "Next",
    "Now",
    "Operation",
    "PeekConsole",
    "Program",
    "ProgramPlan",
    "Refuse",
    "RefusingPlan",
    "Relation",
    "Row",
    "Step",
    "Structure",
    "Wire",
    "Words",
    "Write",
    "column_facts",
    "duration",
    "first",
    "has_head",
    "number",
    "register",
    "rule",
    "sweep",
]
