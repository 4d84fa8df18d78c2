"""What was paid for is never lost and never paid for twice: an append-only file of completions, one JSON object a line.

Three kinds of line: ``sent`` before a call goes out, ``done`` with its completion, ``failed`` with why there is none.
A ``sent`` without an end is a call that was under way when the process died: its answer is lost, it is counted as
spent in full, and it is asked again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import msgspec

from invsim.client.prompt import Message
from invsim.errors import InputError
from invsim.live.budget import Budget
from invsim.live.completion import Completion, Settings


class Where(NamedTuple):
    """The attempt that a call is for."""

    arm: str
    stream: int
    episode: int
    attempt: int

    def __str__(self) -> str:
        return f"arm {self.arm}, stream {self.stream}, episode {self.episode}, attempt {self.attempt}"


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the journal.

    Parameters
    ----------
    kind : "sent", "done" or "failed"
    key : str
    arm, stream, episode, attempt
        See ``Where``.
    most_input, most_output : int
        Tokens that were set aside for one sending.
    completion : Completion or None
        Of "done".
    error : str
        Of "failed".
    sendings, unanswered : int
        Of "failed": times it was sent, and see ``Completion``.
    """

    kind: Literal["sent", "done", "failed"]
    key: str
    arm: str = ""
    stream: int = 0
    episode: int = 0
    attempt: int = 0
    most_input: int = 0
    most_output: int = 0
    completion: Completion | None = None
    error: str = ""
    sendings: int = 1
    unanswered: int = 0


class BadLine(NamedTuple):
    """A line that could not be read."""

    number: int
    what: str

    def __str__(self) -> str:
        return f"line {self.number}: {self.what}"


def key_of(settings: Settings, where: Where, messages: Sequence[Message], sampling_seed: int | None) -> str:
    """Return what a call is filed under: a hash of all that its answer depends on, and of the attempt it is for."""
    facts = {
        **settings.shaping(),
        "sampling_seed": sampling_seed,
        **where._asdict(),
        "messages": [list(each) for each in messages],
    }
    return hashlib.sha256(msgspec.json.encode(facts, order="deterministic")).hexdigest()


class Journal:
    """The journal of a folder, open for one process at a time.

    Parameters
    ----------
    path : Path
        Made where it is missing.

    Raises
    ------
    InputError
        If another process has it open.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] = path.open("a+b")
        _lock(self._file, path)
        self._answers: dict[str, Completion] = {}
        self.lines: list[Line] = []
        self.bad: list[BadLine] = []
        self._read()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def get(self, key: str) -> Completion | None:
        """Return the completion filed under a key."""
        return self._answers.get(key)

    def append(self, line: Line) -> None:
        """Write a line and wait until it is on the disk."""
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._take(line)

    def charge(self, budget: Budget) -> None:
        """Count in a budget all that the lines so far say was spent."""
        open_calls: dict[str, Line] = {}
        for line in self.lines:
            if line.kind == "sent":
                # Sent before, and sent again without an end in between: the first answer was lost.
                if line.key in open_calls:
                    budget.lost(line.most_input, line.most_output)
                open_calls[line.key] = line
                continue
            open_calls.pop(line.key, None)
            if line.completion is not None:
                budget.settle(line.completion, line.most_input, line.most_output)
            else:
                budget.failed(line.sendings, line.unanswered, line.most_input, line.most_output)
        for line in open_calls.values():
            budget.lost(line.most_input, line.most_output)

    def _take(self, line: Line) -> None:
        self.lines.append(line)
        if line.completion is not None:
            self._answers.setdefault(line.key, line.completion)

    def _read(self) -> None:
        self._file.seek(0)
        good_to = 0
        for number, raw in enumerate(self._file, 1):
            if not raw.endswith(b"\n"):  # the process died while it wrote
                self.bad.append(BadLine(number, f"torn after {len(raw)} bytes; cut off"))
                self._file.truncate(good_to)
                break
            good_to += len(raw)
            try:
                self._take(msgspec.json.decode(raw, type=Line))
            except msgspec.DecodeError as error:
                self.bad.append(BadLine(number, f"not a line of a journal ({error}); passed over"))
        self._file.seek(0, os.SEEK_END)


def _lock(file: IO[bytes], path: Path) -> None:
    """Keep other processes out, where the system has file locks: two runs would pay for the same calls."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise InputError("is in use by another run; wait for it, or choose another --out", where=str(path)) from None


def line_of(kind: Literal["sent", "done", "failed"], key: str, where: Where, **rest: Any) -> Line:
    """Return a line for an attempt."""
    return Line(kind=kind, key=key, **where._asdict(), **rest)
