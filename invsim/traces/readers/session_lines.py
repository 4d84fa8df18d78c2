"""The lines of Claude Code sessions, each beside the line it follows, in an order in which that one comes first."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from invsim.traces.reader import Faults
from invsim.traces.readers.fields import Fields


@dataclass(eq=False)
class Line:
    """A line, and the line it follows; None for the first of a tree.

    Parameters
    ----------
    told : Fields
    number : int
        Its place among the lines of the file.
    name : str
        Its uuid, or where it stands if it has none of its own.
    session : str
    sidechain : bool
        Whether a subagent wrote it.
    agent : str or None
    parent : Line or None
    lost : bool
        Whether there is a line before it that the file lacks.
    by_order : bool
        Whether the line it follows is that before it in the file, for want of a link.
    """

    told: Fields
    number: int
    name: str
    session: str
    sidechain: bool
    agent: str | None
    parent: Line | None = None
    lost: bool = False
    by_order: bool = False


def speaks(line: Fields) -> bool:
    """Return whether a line is a message of the user, of a tool or of the model; a client writes many others."""
    return line.data.get("type") in ("user", "assistant") and line.data.get("isMeta") is not True


def link_lines(lines: Iterable[Fields], default: str, faults: Faults) -> Iterator[Line]:
    """Yield lines with what each follows before it, and otherwise in the order of the file.

    Parameters
    ----------
    lines : iterable of Fields
    default : str
        Session of lines that name none.
    faults : Faults
        Takes lines that came before, and those that follow each other in a ring, which is cut.
    """
    return _in_order(_linked(lines, default, faults), faults)


class _Known:
    """Lines by their uuid, within their session and at large."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str | None, str], list[Line]] = {}

    def of(self, uuid: str, session: str | None = None) -> list[Line]:
        """Return the lines of a uuid in the order of the file."""
        return self._lines.get((session, uuid), [])

    def add(self, uuid: str, line: Line) -> None:
        """Add a line."""
        for session in (None, line.session):
            self._lines.setdefault((session, uuid), []).append(line)

    def nearest(self, uuid: str, line: Line) -> Line | None:
        """Return the last line of a uuid before another, in its session if it is there, or else the first."""
        found = self.of(uuid, line.session) or self.of(uuid)
        at = bisect_left(found, line.number, key=lambda each: each.number)
        return found[max(0, at - 1)] if found else None


def _linked(lines: Iterable[Fields], default: str, faults: Faults) -> list[Line]:
    kept: list[Line] = []
    known, callers = _Known(), dict[str, Line]()
    for number, told in enumerate(lines):
        uuid, session = told.text("uuid"), told.text("sessionId") or default
        sidechain = told.data.get("isSidechain") is True
        line = Line(told, number, uuid or told.place, session, sidechain, told.text("agentId") if sidechain else None)
        if uuid is not None:
            same = known.of(uuid)
            if same and speaks(told):
                if any(each.told.data.get("message") == told.data.get("message") for each in (same[0], same[-1])):
                    # Written again, or copied by a session that took this one up.
                    faults.add(told.place, "duplicate-line", f"a line of uuid {uuid!r} came before", lost=False)
                    continue
                faults.add(told.place, "duplicate-id", f"another line of uuid {uuid!r} came before", lost=False)
                line.name = told.place
            known.add(uuid, line)
        callers.update(dict.fromkeys(_ids(told, "tool_use", "id"), line))
        kept.append(line)
    before: dict[tuple[str, bool, str | None], Line] = {}
    for line in kept:
        stream = (line.session, line.sidechain, line.agent)
        _link(line, known, callers, before.get(stream))
        before[stream] = line
    return kept


def _link(line: Line, known: _Known, callers: dict[str, Line], before: Line | None) -> None:
    told = line.told
    compacted = told.data.get("subtype") == "compact_boundary" or told.data.get("isCompactSummary") is True
    keys = [key for key in ("parentUuid", "logicalParentUuid") if told.data.get(key) is not None]
    if keys:  # an answer follows its call, even if what else it follows is not there
        named = (known.nearest(told.text(key) or "", line) for key in keys)
        asked = (callers.get(each) for each in _ids(told, "tool_result", "tool_use_id"))
        line.parent = next((each for each in (*named, *asked) if each is not None), None)
        line.lost = line.parent is None
    elif compacted or "parentUuid" not in told.data:
        # What was compacted goes on from where it stood; of a log without links the order is all there is.
        line.parent, line.by_order = before, not compacted and before is not None


def _ids(told: Fields, kind: str, key: str) -> list[str]:
    """Return the ids in the blocks of one kind."""
    message = told.data.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    blocks = [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
    return [each[key] for each in blocks if each.get("type") == kind and isinstance(each.get(key), str)]


def _in_order(lines: list[Line], faults: Faults) -> Iterator[Line]:
    """Yield the lines with each parent before its children, and otherwise in the order of the file; rings are cut."""
    waiting: dict[Line, list[Line]] = {}
    out: set[Line] = set()

    def release(line: Line) -> Iterator[Line]:
        ready = deque([line])
        while ready:
            each = ready.popleft()
            out.add(each)
            yield each
            ready.extend(waiting.pop(each, ()))

    for line in lines:
        if line.parent is None or line.parent in out:
            yield from release(line)
        else:
            waiting.setdefault(line.parent, []).append(line)
    for line in lines:
        if line not in out:
            cut = _in_ring(line)
            faults.add(cut.told.place, "parent-loop", "a line that comes before itself", lost=False)
            if cut.parent is not None:
                waiting[cut.parent].remove(cut)
            cut.parent, cut.lost = None, True
            yield from release(cut)


def _in_ring(line: Line) -> Line:
    """Return a line of the ring that the parents of a line end in."""
    seen: set[Line] = set()
    while line not in seen and line.parent is not None:
        seen.add(line)
        line = line.parent
    return line
