"""Parts: the requests that a batch runs together in one transaction, all of them at first and fewer after a failure.

A batch knows nothing of what it runs but this: whether it has to be committed, how it is halved, and how it is refused.
So the same policy serves the callers of a store (`Atoms`, here) and the connections of a server (`server/turn.py`).
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
    """Where atoms go that need a lock which somebody else holds."""

    def concerns(self, atom: Atom) -> bool:
        """Whether the atom needs one that is waited for already; if so it is sent there."""
        ...

    def send(self, atom: Atom, error: Busy) -> None:
        """Send it there."""
        ...


class Part(Protocol):
    """Requests that are run together. Its length says how many there are; one by itself is not halved."""

    def __len__(self) -> int: ...

    @property
    def writes(self) -> bool:
        """Whether there is something to commit."""
        ...

    def run(self, context: Context) -> Running:
        """Run them.

        Returns None where they are to be committed. Otherwise everything is rolled back, and what is returned is run in
        their place, the last one first.
        """
        ...

    def committed(self, stats: Stats) -> None:
        """Answer them, and count them: COMMIT went through."""
        ...

    def refuse(self, error: BaseException) -> None:
        """Answer those that have no answer with an error."""
        ...

    def halves(self) -> list[Part]:
        """Return both halves as they are to be run, the first one last; none where it stands alone."""
        ...

    def late(self, until: float) -> Part | None:
        """Return those whose deadline is not after a moment; None where there are none."""
        ...

    def left(self) -> Part | None:
        """Return those that have no answer; None where there are none."""
        ...

    def send_to(self, slow_path: SlowPath, error: Busy) -> None:
        """Have the only one wait elsewhere for a lock that somebody else holds."""
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
        """Whether one of them does."""
        return any([atom.writes for atom in self._atoms])

    def run(self, context: Context) -> Running:
        """Run all, and give each its results, which are its answer if they are committed."""
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
        # What they did must be undone, and only a transaction of their own can tell their answer.
        rest = [atom for atom in atoms if atom not in alone]
        return [self._part([atom]) for atom in reversed(alone)] + ([self._part(rest)] if rest else [])

    def _part(self, atoms: list[Atom]) -> Part:
        return Atoms(atoms, self._known)

    def committed(self, stats: Stats) -> None:
        """Let each have its results; count the operations, and the time since the first caller waits."""
        atoms = self._atoms
        for atom in atoms:
            atom.done = True
        operations = sum([len(atom.operations) for atom in atoms])
        stats.batches += 1
        stats.operations += operations
        stats.sizes.add(operations)
        stats.micros.add(int((monotonic() - atoms[0].begun) * 1e6), len(atoms))

    def refuse(self, error: BaseException) -> None:
        """Answer each with an error of its own."""
        refuse_all(self._atoms, error)

    def halves(self) -> list[Part]:
        """Return the second half and the first one."""
        middle = len(self._atoms) // 2
        return [self._part(self._atoms[middle:]), self._part(self._atoms[:middle])] if middle else []

    def late(self, until: float) -> Part | None:
        """Return those whose callers wait no longer than that."""
        late = [atom for atom in self._atoms if atom.deadline <= until]
        return self._part(late) if late else None

    def left(self) -> Part | None:
        """Return those that are not done."""
        left = [atom for atom in self._atoms if not atom.done]
        return self._part(left) if left else None

    def send_to(self, slow_path: SlowPath, error: Busy) -> None:
        """Send the only one to the slow path."""
        slow_path.send(self._atoms[0], error)


def taking(take: Callable[[], list[Atom]], known: Known, slow_path: SlowPath | None) -> Callable[[], Part]:
    """Return what takes the atoms that wait: without those that cannot be stored, or go to the slow path at once."""

    def taken() -> Part:
        atoms = [atom for atom in take() if not known.refuses(atom)]
        if slow_path is not None:
            atoms = [atom for atom in atoms if not slow_path.concerns(atom)]
        return Atoms(atoms, known)

    return taken
