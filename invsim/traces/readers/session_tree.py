"""The lines of Claude Code sessions as a tree of turns, and the paths through it that are episodes.

The tree is one of turns, not of lines. Each block of a message is a line of its own, and the answer to a call hangs
from the line of its call, so that a turn with parallel calls forks without the user having gone anywhere. Lines of one
message are therefore one turn, whatever is between them, and lines that are no turn stand with the turn before them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from invsim.traces.reader import Faults
from invsim.traces.readers.fields import Fields
from invsim.traces.readers.session_lines import Line, link_lines, speaks
from invsim.traces.schema import OrderSource


@dataclass(eq=False)
class Turn:
    """A turn of the model with the lines that stand with it; one of depth 0 is what comes before any turn."""

    name: str
    thread: str
    parent: Turn | None
    depth: int
    lost: bool
    by_order: bool = False
    lines: list[Fields] = field(default_factory=list)
    children: list[Turn] = field(default_factory=list)
    last: int = -1


class Path(NamedTuple):
    """The lines of an episode.

    Parameters
    ----------
    thread, name : str
        ``name`` is the episode's; that of the path to the last line is the thread's.
    lines : list of Fields
        Those that no path before it has, from the fork on.
    step : int
        Turns before them.
    late : bool
        Whether the model knew of calls that are not among them.
    left : bool
        Whether the session went on elsewhere.
    order_source : str
    """

    thread: str
    name: str
    lines: list[Fields]
    step: int
    late: bool
    left: bool
    order_source: OrderSource


def paths(
    lines: Iterable[Fields], default: str, faults: Faults, turn_of: Callable[[Fields], str | None]
) -> Iterator[Path]:
    """Yield the paths of some lines, thread by thread, that to the thread's last line first.

    Parameters
    ----------
    lines : iterable of Fields
    default : str
        Session of lines that name none.
    faults : Faults
    turn_of : callable
        Returns what all lines of a turn share, or None for a line that is no turn.
    """
    threads: dict[str, list[Turn]] = {}
    for root in _turns(link_lines(lines, default, faults), turn_of):
        threads.setdefault(root.thread, []).append(root)
    for roots in threads.values():
        yield from _of_thread(sorted(roots, key=lambda each: (bool(each.children), each.last), reverse=True))


# Turns --------------------------------------------------------------------------------------------------------------


def _turns(lines: Iterator[Line], turn_of: Callable[[Fields], str | None]) -> list[Turn]:
    """Return what is before the first turn of each tree."""
    made: list[Turn] = []
    by_key: dict[tuple[str, str], Turn] = {}
    stands: dict[Line, Turn] = {}
    for index, line in enumerate(lines):
        thread, turn = _before(line, stands)
        if turn is None:
            turn = Turn(line.name, thread, None, 0, line.lost)
            made.append(turn)
        if (key := turn_of(line.told)) is not None:
            before, turn = turn, by_key.get((thread, key))
            if turn is None:
                turn = Turn(line.name, thread, before, before.depth + 1, before.lost)
                by_key[thread, key] = turn
                before.children.append(turn)
                made.append(turn)
        stands[line] = turn
        turn.lines.append(line.told)
        turn.by_order |= line.by_order
        if speaks(line.told):
            turn.last = index
    for turn in reversed(made):
        if turn.parent is not None:
            turn.parent.last = max(turn.parent.last, turn.last)
    return [each for each in made if each.parent is None and (each.lines or each.children)]


def _before(line: Line, stands: dict[Line, Turn]) -> tuple[str, Turn | None]:
    """Return the thread of a line, and the turn in it that the line follows."""
    before = line.parent
    while before is not None and before.sidechain is not line.sidechain:
        before = before.parent
    if line.sidechain and (before is None or line.agent):
        thread = f"{line.session}/{line.agent or line.name}"
    else:
        thread = stands[before].thread if before else line.session
    while before is not None and stands[before].thread != thread:
        before = before.parent
    return thread, stands[before] if before else None


# Paths --------------------------------------------------------------------------------------------------------------


def _of_thread(roots: list[Turn]) -> Iterator[Path]:
    """Yield the paths of a thread; at a fork the branch that was spoken on last is the one that was kept."""
    forked = sum(bool(each.children) for each in roots) > 1
    starts = deque(roots)
    found: list[tuple[Turn, list[Turn]]] = []
    while starts:
        start = turn = starts.popleft()
        path = [turn]
        while turn.children:
            kept = max(turn.children, key=lambda each: each.last)
            starts.extend(each for each in turn.children if each is not kept)
            forked = forked or len(turn.children) > 1
            turn = kept
            path.append(turn)
        found.append((start, path))
    for number, (start, path) in enumerate(found):
        by_order = any(each.by_order for each in path)
        yield Path(
            thread=start.thread,
            name=f"{start.thread}#{start.name}" if number else start.thread,
            lines=[line for each in path for line in each.lines],
            step=max(0, start.depth - 1),
            late=start.lost or start.depth > 1,
            left=number > 0,
            order_source=("flattened" if forked else "index") if by_order else "parent",
        )
