"""What a structure of your own is made of: docs/own-structure.md. It may change between minor versions until 1.0."""

from roost.dialects.dialect import Dialect, Row
from roost.errors import Invalid
from roost.structures.console import REQUIRED, Console
from roost.structures.operation import Operation
from roost.structures.program import ProgramPlan, Write, first
from roost.structures.reading import Ask
from roost.structures.registry import register
from roost.structures.relation import Relation
from roost.structures.steps import Do, Each, Give, Head, Leave, Let, Next, Now, Program, Refuse, Step, number
from roost.structures.structure import Group, Structure, column_facts, key_from
from roost.structures.wire import Wire
from roost.structures.words.words import Words
from roost.types.column_types import ColumnType
from roost.types.columns import Column

__all__ = [
    "REQUIRED",
    "Ask",
    "Column",
    "ColumnType",
    "Console",
    "Dialect",
    "Do",
    "Each",
    "Give",
    "Group",
    "Head",
    "Invalid",
    "Leave",
    "Let",
    "Next",
    "Now",
    "Operation",
    "Program",
    "ProgramPlan",
    "Refuse",
    "Relation",
    "Row",
    "Step",
    "Structure",
    "Wire",
    "Words",
    "Write",
    "column_facts",
    "first",
    "key_from",
    "number",
    "register",
]
