"""The typed event log of a stream: what happened, in order, with its tick."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from invsim.client.memory import Entry
from invsim.world.server import ReloadReport, Report

EntryName: TypeAlias = tuple[str, str, str]
"""Family, key and value of an entry."""


class DriftApplied(msgspec.Struct, frozen=True, tag="drift"):
    """The server reloaded a table or changed a rule."""

    tick: int
    subject: str
    detail: dict[str, object]


class EpisodeStarted(msgspec.Struct, frozen=True, tag="episode"):
    """An episode began, with what memory held for its key."""

    tick: int
    episode: int
    constraint: str
    key: str | None
    injected: str
    entries: list[str]
    store: int


class Attempted(msgspec.Struct, frozen=True, tag="attempt"):
    """A request went out and was answered."""

    tick: int
    episode: int
    attempt: int
    action: str
    request: dict[str, object]
    ok: bool
    suggested: list[str]


class Noticed(msgspec.Struct, frozen=True, tag="alert"):
    """The client noticed drift."""

    tick: int
    episode: int
    subject: str


class Evicted(msgspec.Struct, frozen=True, tag="evict"):
    """Entries left the store."""

    tick: int
    episode: int
    entries: list[EntryName]


class Restamped(msgspec.Struct, frozen=True, tag="restamp"):
    """One restamp operation: entries kept under newer stamps."""

    tick: int
    episode: int
    entries: list[EntryName]


class Committed(msgspec.Struct, frozen=True, tag="commit"):
    """An episode completed and its suggestion was stored."""

    tick: int
    episode: int
    entry: EntryName
    stamps: dict[str, str]


class EpisodeEnded(msgspec.Struct, frozen=True, tag="end"):
    """An episode completed, or exhausted its attempts."""

    tick: int
    episode: int
    attempts: int
    completed: bool


Event: TypeAlias = DriftApplied | EpisodeStarted | Attempted | Noticed | Evicted | Restamped | Committed | EpisodeEnded
EventLog: TypeAlias = list[Event]


def names(entries: Iterable[Entry]) -> list[EntryName]:
    """Return the identities of entries."""
    return [(entry.slot.family, entry.slot.key, entry.value) for entry in entries]


def drift_applied(tick: int, subject: str, report: Report) -> DriftApplied:
    """Return the event for a server report."""
    if isinstance(report, ReloadReport):
        return DriftApplied(tick, subject, report.to_dict())
    rule = {"from": report.rule.from_table, "to": report.rule.to_table, "relation": report.rule.relation}
    change = "declared" if report.added else "withdrawn"
    return DriftApplied(tick, subject, {change: rule, "rules_version": report.rules_version})


def to_lines(log: Iterable[Event], *, stream: int, arm: str) -> bytes:
    """Return the log as JSON lines, each led by its stream and arm."""
    lines = (msgspec.json.encode({"stream": stream, "arm": arm, **msgspec.to_builtins(event)}) for event in log)
    return b"".join(line + b"\n" for line in lines)
