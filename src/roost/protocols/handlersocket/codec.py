"""HandlerSocket's `Codec`, of which a chunk is lines of text without the last LF, and its answers. No sockets, no SQL.

`Responder.play` is a generator: it yields requests to the database, is sent the results, and makes answers of them.
Requests of one form run together, whichever connections they came from. The lines of a connection run in their order:
each round takes the next lines of one form from every connection.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable, Sequence
from itertools import takewhile
from typing import Any, ClassVar

from roost.errors import Error, Missing
from roost.protocols import codec
from roost.protocols.codec import Piece, TooLong
from roost.protocols.handlersocket import answers as say
from roost.protocols.handlersocket.opened import UNAUTHORIZED, Form, Opened, Openings, Session
from roost.protocols.handlersocket.requests import SPELLING, Open, Refused, is_request, number, operation, parse_open
from roost.structures.index.budget import Budget
from roost.structures.index.runs import Columns

LOT = 1024  # requests of a run between two checks of the budget
SINGLES = 64  # the same, for requests that are not in a run


Asked = tuple[Any, ...]
Playing = Generator[Asked, Any, None]


class _Lines:
    """The lines of one connection that do not all have one form, and the place of the next one."""

    __slots__ = ("lines", "next", "piece", "session")

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self.session: Session = piece.session
        self.lines: list[str] = piece.requests.split("\n")
        self.next = 0


Single = tuple[_Lines, Opened, str, tuple[Any, ...]]  # one of the singles, and the connection that it came from
Runs = dict[Form, tuple[Opened, list[_Lines], list[list[str]]]]  # requests by form, and the connections they came from


class Responder(codec.Responder):
    """The lines of several connections, and their answers.

    version: of the schema, in the transaction that answers.
    """

    def __init__(
        self, pieces: Sequence[Piece], openings: Openings, version: int, budget: Budget, failed: Error | None = None
    ) -> None:
        super().__init__(pieces, budget, failed)
        self._openings = openings
        self._version = version

    def play(self) -> Playing:
        if self._failed is None:
            yield from self._whole_pieces()
        # A piece that was taken up has another rest, unless the budget has ended.
        going = every = [_Lines(piece) for piece in self.pieces if piece.rest is piece.requests]
        while going:
            going = yield from self._round(going)
        for each in every:
            piece = each.piece
            piece.rest = "\n".join(each.lines[each.next :]) if each.next < len(each.lines) else None

    def _current(self, session: Session, token: str) -> Generator[Asked, Any, Opened | None]:
        # The current opened index for this first token; None if the line has to be parsed to find out its error.
        opened = session.opened.get(token)
        if opened is None or not session.authorized or self._failed is not None:
            return None
        return opened if opened.version == self._version else (yield from self._resolve(session, token))

    def _resolve(self, session: Session, token: str) -> Generator[Asked, Any, Opened | None]:
        # Open the index again if the schema has changed since; None if it no longer exists.
        opened = session.opened[token]
        if opened.version != self._version:
            found = yield from self._found(opened.asked)
            if isinstance(found, Error):
                return None
            opened = session.opened[token] = found
        return opened

    def _found(self, asked: Open, looks: bool = True) -> Generator[Asked, Any, Opened | Error]:
        # What these names open in this version of the schema. looks: what is open already needs no other check.
        opened = self._openings.find(asked)
        if opened is not None and opened.version == self._version and looks:
            return opened
        if not self._openings.may(asked.database, asked.table):
            return Missing()
        target = yield "open", *asked[1:]
        return target if isinstance(target, Error) else self._openings.keep(asked, target, self._version)

    # --- runs -----------------------------------------------------------------------------------------------------

    def _whole_pieces(self) -> Playing:
        # Answer connections all of whose lines have one form, together; leave the others.
        version = self._version
        begun: dict[tuple[Opened, str], list[Piece]] = {}  # by the opened index and the first tokens of the first line
        taken = 0
        for piece in self.pieces:
            session, text = piece.session, piece.requests
            first = text.find("\t")
            opened = session.opened.get(text[:first])
            if opened is None or not session.authorized:
                continue
            if opened.version != version:
                opened = yield from self._resolve(session, text[:first])
                if opened is None:
                    continue
            taken += 1
            beginning = (opened, text[: text.find("\t", first + 1)])
            begun.setdefault(beginning, []).append(piece)
        only = len(begun) == 1 and taken == len(self.pieces)
        for (opened, _), pieces in begun.items():
            # Operations on several structures are left to `_round`, which runs them together, so that they take their
            # locks in one order.
            if opened.target.bulk or only:
                yield from self._together(opened, pieces, only)

    def _together(self, opened: Opened, pieces: list[Piece], only: bool) -> Playing:
        # Answer these pieces as one run, if they are one. only: the turn has no others.
        text = pieces[0].requests if len(pieces) == 1 else "\n".join([piece.requests for piece in pieces])
        form = None if "\x01" in text else opened.form(text.partition("\n")[0].split("\t"))
        columns = None if form is None else form.columns(text)
        if form is None or columns is None:
            return
        try:
            values = form.values(columns)
        except Refused:
            return
        total = len(columns[0])
        answers, seconds = yield from self._run(opened, form, values, total, only)
        each = seconds / max(1, len(answers))
        if len(answers) == total == len(pieces):
            for piece, answer in zip(pieces, answers, strict=True):
                piece.answer = answer + "\n"
                piece.rest = None
                piece.seconds = each
            return
        begin = 0
        for piece in pieces:
            lines = piece.requests.count("\n") + 1
            part = answers[begin : begin + lines]
            begin += lines
            if part:
                piece.answer = "\n".join(part) + "\n"
                piece.seconds = each * len(part)
                piece.rest = piece.requests.split("\n", len(part))[-1] if len(part) < lines else None

    def _run(
        self, opened: Opened, form: Form, values: Columns, total: int, only: bool = False
    ) -> Generator[Asked, Any, tuple[list[str], float]]:
        # Return the answers to the first requests, as far as the budget allows, and the seconds that they took.
        answers: list[str] = []
        seconds = 0.0
        while self._budget.open:
            begin = len(answers)
            lot = values if not begin and total <= LOT else [column[begin : begin + LOT] for column in values]
            if opened.target.bulk:
                results = yield "run", opened.target, form.shape, lot, only and lot is values
            else:
                results = yield "insert", opened.target, lot
            seconds += self.elapsed
            some = opened.answers.of(results, self)
            answers += some
            self._budget.take(sum(map(len, some)))
            if len(answers) == total:
                break
        self.requests += len(answers)
        return answers, seconds

    # --- line by line ---------------------------------------------------------------------------------------------

    def _round(self, going: list[_Lines]) -> Generator[Asked, Any, list[_Lines]]:
        # Take the next lines of each connection and run them together; return the connections that have more.
        runs: Runs = {}
        singles: list[Single] = []
        more = []
        for lines in going:
            if (yield from self._take(lines, runs, singles)):
                more.append(lines)
        for form, (opened, owners, rows) in runs.items():
            values = form.values(list(zip(*rows, strict=True)))
            answers, seconds = yield from self._run(opened, form, values, len(rows))
            _deliver(owners, answers, seconds)
        while singles and self._budget.open:
            # Modifications of structures take their locks in one order only if they run together, hence the larger lot.
            some = singles[: SINGLES if any([verb == "find" for _, _, verb, _ in singles]) else LOT]
            results = yield "perform", [(opened.target, verb, args) for _, opened, verb, args in some]
            answers = []
            for (_, opened, _, _), result in zip(some, results, strict=False):
                answers += opened.answers.of([result], self)
            self.requests += len(answers)
            self._budget.take(sum(map(len, answers)))
            _deliver([each[0] for each in some[: len(answers)]], answers, self.elapsed)
            del singles[: len(answers)]
        for lines, *_ in singles:
            lines.next -= 1
        return more

    def _take(self, lines: _Lines, runs: Runs, singles: list[Single]) -> Generator[Asked, Any, bool]:
        # Collect the next lines of one form, or the next lines without a form, and answer lines before them that need
        # no database; return whether the connection has more.
        taken: Form | None = None
        single = False
        while lines.next < len(lines.lines) and self._budget.open:
            line = lines.lines[lines.next]
            tokens = line.split("\t")
            opened = yield from self._current(lines.session, tokens[0])
            form = None if opened is None or not opened.target.bulk or "\x01" in line else opened.form(tokens)
            if form is not None and not form.fits(tokens):
                form = None
            if opened is not None and form is not None:
                if single or (taken is not None and form is not taken):
                    return True
                taken = form
                lines.next += 1
                _, owners, rows = runs.setdefault(form, (opened, [], []))
                owners.append(lines)
                rows.append(tokens)
                continue
            if taken is not None:
                return True
            if opened is not None:
                try:
                    request = _operation(opened, tokens)
                except Refused as refused:
                    if single:
                        return True
                    lines.next += 1
                    self._reply(lines, self._wrong(refused.word))
                    continue
                single = True
                lines.next += 1
                singles.append((lines, opened, *request))
                if self._budget.late:  # what was parsed is run all the same: a line may need all the time for itself
                    return True
                continue
            if single:
                return True
            lines.next += 1
            self.elapsed = 0.0
            answer = yield from self._answer(lines.session, tokens)
            lines.piece.seconds += self.elapsed
            if answer == UNAUTHORIZED and tokens[0] == "A" and lines.session.secret is not None:
                lines.piece.late = answer + "\n"
                return False
            self._reply(lines, answer)
            if lines.session.foreign:
                return False
        return False

    def _reply(self, lines: _Lines, answer: str) -> None:
        lines.piece.answer += answer + "\n"
        self.requests += 1
        self._budget.take(len(answer))

    def _answer(self, session: Session, tokens: list[str]) -> Generator[Asked, Any, str]:
        # The answer to a line that is not for an opened index.
        try:
            first = tokens[0]
            if first in ("A", "P") or not session.known:
                self._remember(session)
            if not session.known and not is_request(first):
                session.foreign = True
            if first == "A":
                return session.authorize(tokens)
            if first == "P":
                return (yield from self._open(session, tokens)) if session.authorized else UNAUTHORIZED
            if first[:1].isdigit() and first[:1].isascii():
                return (yield from self._unopened(session, tokens)) if session.authorized else UNAUTHORIZED
            return self._wrong("cmd")
        except Refused as refused:
            return self._wrong(refused.word)

    def _open(self, session: Session, tokens: list[str]) -> Generator[Asked, Any, str]:
        asked = parse_open(tokens)
        if self._failed is not None:
            return self._refusal(self._failed)
        opened = yield from self._found(asked, self._openings.looks)
        if isinstance(opened, Error):
            return self._refusal(opened)
        return "0\t1" if session.open(asked.number, opened) else self._wrong("limit")

    def _unopened(self, session: Session, tokens: list[str]) -> Generator[Asked, Any, str]:
        # A line whose first token is not the exact number of an opened index (such as 01), or whose index is gone.
        wanted = number(tokens[0])
        opened = session.opened.get(str(wanted))
        if opened is not None:
            if self._failed is not None:
                return self._refusal(self._failed)
            opened = yield from self._resolve(session, str(wanted))
            if opened is None:
                return self._wrong("open_table", 1)
            request = _operation(opened, tokens)
            (result,) = yield "perform", [(opened.target, *request)]
            return opened.answers.of([result], self)[0]
        # If a larger number is open, the original parses the IN list and the filters before it reports this one.
        if any([int(each) > wanted for each in session.opened]):
            try:
                operation(tokens, writes=True, parts=0, width=0, filters=())
            except Refused as refused:
                if refused.word in SPELLING:
                    return self._wrong(refused.word)
        return self._wrong("stmtnum")

    def _wrong(self, word: str, code: int = 2) -> str:
        self.errors += 1
        return say.error(code, word)

    def _refusal(self, error: Error) -> str:
        self.errors += 1
        return say.refusal(error)


def _deliver(owners: Sequence[_Lines], answers: list[str], seconds: float) -> None:
    each = seconds / max(1, len(answers))
    for lines, answer in zip(owners, answers, strict=False):
        lines.piece.answer += answer + "\n"
        lines.piece.seconds += each
    for lines in owners[len(answers) :]:  # unanswered, and the last lines taken from their connections: put back
        lines.next -= 1


def _operation(opened: Opened, tokens: list[str]) -> tuple[str, tuple[Any, ...]]:
    target = opened.target
    return operation(tokens, writes=opened.writes, parts=target.parts, width=target.width, filters=target.filters)


MOST_UNKNOWN = 2**12  # bytes of a line from a client that has not sent the secret, beyond those of the secret


class Framing:
    """Splits one connection's bytes into lines of text. Bytes that are not UTF-8 become lone surrogates.

    session: until it has sent the secret, only what was received together with a short line may be long.
    """

    __slots__ = ("_most_line", "_most_unknown", "_pieces", "_session", "held")

    def __init__(self, most_line: int, session: Session) -> None:
        self._most_line = most_line
        self._most_unknown = MOST_UNKNOWN + len(session.secret or b"")
        self._session = session
        self._pieces: list[bytes] = []  # the pieces of an incomplete line
        self.held = 0  # their bytes

    def limit(self, most_line: int, _: int) -> None:
        self._most_line = most_line

    def drop(self) -> None:
        self._pieces, self.held = [], 0

    def feed(self, data: bytes) -> str | None:
        """Take received bytes, and return the complete lines, without the last LF; None if there are none.

        Raises: TooLong.
        """
        end = data.rfind(b"\n")
        known = self._session.authorized
        if not known and self.held + (data.find(b"\n") if end >= 0 else len(data)) > self._most_unknown:
            raise TooLong(None)
        if end < 0:
            self._pieces.append(data)
            self.held += len(data)
            if self.held > self._most_line:
                raise TooLong(None)
            return None
        lines, rest = data[:end], data[end + 1 :]
        if rest or self._pieces:
            lines = b"".join([*self._pieces, lines])
            self._pieces, self.held = [rest] if rest else [], len(rest)
        if len(lines) > self._most_line:
            each = lines.split(b"\n")
            fit = list(takewhile(lambda line: len(line) <= self._most_line, each))
            if len(fit) < len(each):
                raise TooLong(_text(b"\n".join(fit)) if fit else None)
        return _text(lines)


def _text(lines: bytes) -> str:
    if b"\r" in lines:
        lines = (lines + b"\n").replace(b"\r\n", b"\n")[:-1]
    return lines.decode("utf-8", "surrogateescape")


class HandlerSocket:
    """HandlerSocket over the indexes opened in one database.

    openings: shared by the turns on all connections.
    """

    name: ClassVar[str] = "handlersocket"
    full: ClassVar[bytes] = b"2\t1\tlimit\n"
    too_long: ClassVar[bytes] = b"2\t1\ttoolong\n"

    def __init__(self, openings: Openings) -> None:
        self._openings = openings

    def framing(self, session: Session, most_line: int, most_block: int) -> Framing:
        return Framing(most_line, session)

    def writes(self, pieces: Sequence[Piece]) -> bool:
        """Whether the requests may modify something, which depends on the server's address alone."""
        return self._openings.writes

    def count(self, chunk: str) -> int:
        return chunk.count("\n") + 1

    def halves(self, chunk: str) -> tuple[str, str] | None:
        """Split a chunk into two halves; None if it is a single line."""
        lines = chunk.split("\n")
        middle = len(lines) // 2
        return ("\n".join(lines[:middle]), "\n".join(lines[middle:])) if middle else None

    def cut(self, chunk: str, size: int) -> tuple[str, str | None]:
        """Split off a first part of about `size` characters, at least one line; return it and the rest, if any."""
        cut = chunk.rfind("\n", 0, size)
        cut = chunk.find("\n", size) if cut < 0 else cut
        return (chunk[:cut], chunk[cut + 1 :]) if cut >= 0 else (chunk, None)

    def join(self, first: str, second: str) -> str:
        return f"{first}\n{second}"

    def modifies(self, chunk: str) -> bool:
        """Whether the first line may be a modification: it is an insert, or has more than five tokens."""
        line = chunk.partition("\n")[0]
        return line.count("\t") > 4 or line.partition("\t")[2].startswith("+")

    def key_of(self, session: Session, request: str) -> Hashable:
        """Return the index and the key of a line: equal for lines that modify by the same key of the same index."""
        tokens = request.split("\t")
        opened = session.opened.get(tokens[0])
        if len(tokens) < 3 or tokens[1] == "+" or not tokens[2].isdecimal() or len(tokens[2]) > 3:
            return opened and opened.asked, *tokens[1:]
        return opened and opened.asked, *tokens[1 : 3 + int(tokens[2])]

    def encode(self, answer: str) -> bytes:
        return answer.encode("utf-8", "surrogateescape")

    def responder(self, pieces: Sequence[Piece], version: int, budget: Budget, failed: Error | None) -> Responder:
        return Responder(pieces, self._openings, version, budget, failed)
