"""Claude Code sessions: JSON lines, one a content block, linked by ``uuid`` and ``parentUuid``.

Lines that share a message id are one turn, with one bill, of which the last line has the final figures; a call's answer
may stand between two of them. A message id used again in another session, or under another request id, is another turn.
Sidechains, the sessions of subagents, are episodes of their own. Parents come before children, whatever the order of
the lines.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from invsim.traces.reader import Faults
from invsim.traces.readers.fields import Fields
from invsim.traces.readers.messages import add_message, time_of
from invsim.traces.readers.records import read_records
from invsim.traces.readers.turns import Episode, Identity, Turn
from invsim.traces.schema import Call

_SESSION = re.compile(rb'"sessionId"\s*:')
_EVENT = re.compile(rb'"(?:uuid|parentUuid|isSidechain)"\s*:')


class ClaudeCodeReader:
    """Reads sessions of Claude Code."""

    name = "claude-code"

    def detect(self, head: bytes, path: Path) -> bool:
        """Return whether there are sessions with linked lines."""
        return bool(_SESSION.search(head)) and bool(_EVENT.search(head))

    def read(self, path: Path, faults: Faults) -> Iterator[Call]:
        """Yield the calls of a file, session by session."""
        lines = [
            Fields(value, place, faults)
            for place, value, _, _ in read_records(path, faults, _is_line)
            if value["type"] in ("user", "assistant") or "parentUuid" in value
        ]
        torn = any(each.kind == "torn-line" for each in faults.found)
        episodes: dict[str, Episode] = {}
        roots: dict[str, str] = {}
        for line in _by_parent(_once(lines, faults), faults):
            name = _episode_of(line, roots, path)
            if name not in episodes:
                identity = Identity(self.name, str(path), name, order_source="parent")
                episodes[name] = Episode(identity, faults)
            _add_line(line, episodes[name])
        for episode in episodes.values():
            yield from episode.calls(complete=not torn)


def _is_line(value: Any) -> bool:
    """Whether a value is a line of a session: summaries and snapshots are, and tell nothing of calls."""
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def _once(lines: list[Fields], faults: Faults) -> Iterator[Fields]:
    """Yield each line once: a session that was taken up again repeats the lines of the one before."""
    seen: set[tuple[str, str | None]] = set()
    for line in lines:
        uuid = line.text("uuid")
        if uuid is not None:
            if (uuid, line.text("sessionId")) in seen:
                faults.add(line.place, "duplicate-line", f"a line of uuid {uuid!r} came before", lost=False)
                continue
            seen.add((uuid, line.text("sessionId")))
        yield line


def _by_parent(lines: Iterator[Fields], faults: Faults) -> Iterator[Fields]:
    """Yield the lines with each parent before its children, and otherwise in the order of the file."""
    kept = list(lines)
    known = {uuid for each in kept if (uuid := each.text("uuid"))}
    waiting: dict[str, list[Fields]] = {}
    out: set[str | None] = set()
    for line in kept:
        parent = line.text("parentUuid")
        if parent in known and parent not in out:
            waiting.setdefault(str(parent), []).append(line)
            continue
        ready = deque([line])
        while ready:
            each = ready.popleft()
            yield each
            out.add(each.text("uuid"))
            ready.extend(waiting.pop(str(each.text("uuid")), ()))
    for lost in waiting.values():  # each other's parents, in a ring
        for line in lost:
            faults.add(line.place, "parent-loop", "a line that comes before itself", lost=False)
            yield line


def _episode_of(line: Fields, roots: dict[str, str], path: Path) -> str:
    """Return the episode a line belongs to: its session, or the sidechain, by its agent or by its first line."""
    session = line.text("sessionId") or path.stem
    if not line.flag("isSidechain"):
        return session
    uuid = line.text("uuid") or ""
    root = line.text("agentId") or roots.get(line.text("parentUuid") or "") or uuid
    roots[uuid] = root
    return f"{session}/{root}"


def _add_line(line: Fields, episode: Episode) -> None:
    message = line.table("message")
    kind = line.data.get("type")
    if message is None or kind not in ("user", "assistant") or line.data.get("isMeta") is True:
        return
    if kind == "user":
        dated = {**message.data, "role": "user", "timestamp": line.data.get("timestamp")}
        add_message(Fields(dated, message.place, line.faults), episode)
        return
    at = time_of(line)
    message_id, request_id = message.text("id"), line.text("requestId")
    key = f"{message_id}/{request_id or ''}" if message_id else None

    def dialect(_: Fields, turn: Turn) -> None:
        turn.at = turn.at or at
        if message_id:
            turn.usage_id = f"{episode.identity.episode_id}/{key}"
        if turn.model == "<synthetic>":  # written by the client, not served
            turn.model = turn.model_source = None

    add_message(message, episode, key=key, dialect=dialect)
