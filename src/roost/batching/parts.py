"""Parts: the requests that a batch runs together in one transaction, all of them at first and fewer after a failure.

A batch uses only this interface of its requests: whether they must be committed, how they are halved, and how they are
refused. So one policy serves the callers of a store (`Atoms`, here) and the connections of a server (`server/turn.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from time import monotonic
from typing import Any, Protocol

from roost.batching.atoms import Atom, answer, refuse_all
from roost.batching.known import Known, perform, performed
from roost.batching.stats import Stats
from roost.dialects.dialect import Wanted
from roost.errors import Busy
from roost.structures.plan import Context

__all__ = ["Atoms", "Context", "Part", "Running", "SlowPath", "taking"]


class SlowPath(Protocol):
    """Takes the atoms that need a lock of another session."""

    def concerns(self, atom: Atom) -> bool:
        """Whether the atom needs a lock for which others wait here already; if so, mark it for the slow path."""
        ...

    def send(self, atom: Atom, error: Busy) -> None:
        """Mark an atom for the slow path."""
        ...


class Part(Protocol):
    """Requests that run together. Its length is their number; a part of length 1 cannot be halved."""

    def __len__(self) -> int: ...

    @property
    def writes(self) -> bool:
        """Whether there is something to commit."""
        ...

    def run(self, context: Context) -> Running:
        """Run the requests.

        Return None if they are to be committed. Otherwise everything is rolled back, and the returned parts are run
        instead, the last one first.
        """
        ...

    def committed(self, stats: Stats) -> None:
        """Answer and count the requests, since COMMIT has succeeded."""
        ...

    def refuse(self, error: BaseException) -> None:
        """Answer the unanswered requests with an error."""
        ...

    def halves(self) -> list[Part]:
        """Return both halves, the first one last, since parts are run from the end; nothing for a single request."""
        ...

    def late(self, until: float) -> Part | None:
        """Return the requests whose deadline is not after `until`; None if there are none."""
        ...

    def left(self) -> Part | None:
        """Return the unanswered requests; None if there are none."""
        ...

    def send_to(self, slow_path: SlowPath, error: Busy) -> None:
        """Send the only request to the slow path, where it waits for a lock of another session."""
        ...


Running = Generator[Wanted, Any, Sequence[Part] | None]


class Atoms(Part):
    """Atoms of a store's callers."""

    __slots__ = ("_atoms", "_known")

    def __init__(self, atoms: list[Atom], known: Known) -> None:
        self._atoms = atoms
        self._known = known

    def __len__(self) -> int:
        return len(self._atoms)

    @property
    def writes(self) -> bool:
        """Whether one of the atoms writes."""
        return any([atom.writes for atom in self._atoms])

    def run(self, context: Context) -> Running:
        """Run all atoms, and set their results, which become their answers when they are committed."""
        atoms = self._atoms
        if len(atoms) == 1:
            results = yield from performed(atoms[0].operations, self._known, context, atoms[0].once)
        elif once := [atom for atom in atoms if atom.once is not None]:  # each has a transaction of its own
            rest = [atom for atom in atoms if atom.once is None]
            return [self._part([atom]) for atom in reversed(once)] + ([self._part(rest)] if rest else [])
        else:
            results = yield from perform([op for atom in atoms for op in atom.operations], self._known, context)
        if not answer(atoms, results):
            return None
        if len(atoms) == 1:
            atoms[0].done = True
            return []
        alone = [atom for atom in atoms if atom.error is not None and atom.size > 1]
        if not alone:
            return None
        # Their changes must be undone, and only a transaction of its own can determine the answer of each.
        rest = [atom for atom in atoms if atom not in alone]
        return [self._part([atom]) for atom in reversed(alone)] + ([self._part(rest)] if rest else [])

    def _part(self, atoms: list[Atom]) -> Part:
        return Atoms(atoms, self._known)

    def committed(self, stats: Stats) -> None:
        """Mark each atom as done; count the operations, and the time for which the first caller has waited."""
        atoms = self._atoms
        for atom in atoms:
            atom.done = True
        operations = sum([len(atom.operations) for atom in atoms])
        stats.batches += 1
        stats.operations += operations
        stats.sizes.add(operations)
        stats.micros.add(int((monotonic() - atoms[0].begun) * 1e6), len(atoms))

    def refuse(self, error: BaseException) -> None:
        """Answer each unanswered atom with a copy of the error."""
        refuse_all(self._atoms, error)

    def halves(self) -> list[Part]:
        """Return the second half and the first one; nothing for a single atom."""
        middle = len(self._atoms) // 2
        return [self._part(self._atoms[middle:]), self._part(self._atoms[:middle])] if middle else []

    def late(self, until: float) -> Part | None:
        """Return the atoms whose deadline is not after `until`; None if there are none."""
        late = [atom for atom in self._atoms if atom.deadline <= until]
        return self._part(late) if late else None

    def left(self) -> Part | None:
        """Return the atoms that are not done; None if there are none."""
        left = [atom for atom in self._atoms if not atom.done]
        return self._part(left) if left else None

    def send_to(self, slow_path: SlowPath, error: Busy) -> None:
        """Send the only atom to the slow path."""
        slow_path.send(self._atoms[0], error)


def taking(take: Callable[[], list[Atom]], known: Known, slow_path: SlowPath | None) -> Callable[[], Part]:
    """Make a function that takes the waiting atoms, except those refused or sent to the slow path at once."""

    def taken() -> Part:
        atoms = [atom for atom in take() if not known.refuses(atom)]
        if slow_path is not None:
            atoms = [atom for atom in atoms if not slow_path.concerns(atom)]
        return Atoms(atoms, known)

    return taken
