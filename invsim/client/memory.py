"""What a client keeps between episodes: an immutable store of fixes, and what a step of the protocol did to it.

A store is never changed in place. Every step takes one and returns another, so that a step can be replayed, compared
and tested as a plain function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from invsim.world.wire import Parameters, Suggestion

Versions = Mapping[str, str]
NO_VERSIONS: Versions = MappingProxyType({})


class Slot(NamedTuple):
    """What an entry answers for: a suggestion family and the key of the row that its episodes are about."""

    family: str
    key: str


@dataclass(frozen=True, eq=False, slots=True)
class Entry:
    """One cached fix. Its identity is (slot, value); the stamps say in which state of the server it was right.

    Parameters
    ----------
    slot : Slot
    value : str
        Canonical text of the parameters.
    parameters : mapping
        Fields to merge into a request.
    table : str
        The table the fix was read from.
    stamps : mapping of table to version
        What the entry depends on: the scalar table at L1, the dependency vector for arms that read it.
    """

    slot: Slot
    value: str
    parameters: Parameters
    table: str
    stamps: Versions

    def restamped(self, versions: Versions, tables: Iterable[str] | None = None) -> Entry:
        """Return the entry with its stamps brought to ``versions``, over other tables if ``tables`` is given."""
        names = self.stamps if tables is None else tables
        stamps = {name: versions[name] for name in names if name in versions}
        return Entry(self.slot, self.value, self.parameters, self.table, stamps)


def entry_from(slot: Slot, suggestion: Suggestion, versions: Versions, *, vectors: bool) -> Entry | None:
    """Return the entry a suggestion makes, or None for one that must not be stored.

    The vector, where the arm reads it and the server sent it, takes precedence over the scalar table. The stamps are
    the versions that came with the success: it is in that state of the server that the fix was seen to work.
    """
    if not suggestion.cacheable or suggestion.table is None:
        return None
    if vectors and suggestion.tables is not None:
        stamps = {name: versions[name] for name, _ in suggestion.tables if name in versions}
    else:
        stamps = {suggestion.table: versions[suggestion.table]} if suggestion.table in versions else {}
    return Entry(slot, suggestion.value, suggestion.parameters, suggestion.table, stamps)


class Memory:
    """An immutable store of entries, newest last within a slot, with the versions it was last squared against."""

    __slots__ = ("rules_version", "size", "slots", "versions")

    def __init__(
        self,
        slots: Mapping[Slot, tuple[Entry, ...]] = MappingProxyType({}),
        versions: Versions = NO_VERSIONS,
        rules_version: str | None = None,
    ) -> None:
        self.slots = slots
        self.versions = versions
        self.rules_version = rules_version
        self.size = sum(map(len, slots.values()))

    def __iter__(self) -> Iterator[Entry]:
        for entries in self.slots.values():
            yield from entries

    def __len__(self) -> int:
        return self.size

    def lookup(self, slot: Slot) -> tuple[Entry, ...]:
        """Return what is injected for a slot, oldest first."""
        return self.slots.get(slot, ())

    def having_seen(self, versions: Versions | None, rules_version: str | None) -> Memory:
        """Return the same entries, squared against what a response carried; what it left out stays as it was."""
        versions = self.versions if versions is None else versions
        return Memory(self.slots, versions, self.rules_version if rules_version is None else rules_version)

    def with_entry(self, entry: Entry, *, append: bool) -> Memory:
        """Return the store with an entry added; an identical one is dropped, and others stay only if ``append``."""
        present = self.slots.get(entry.slot, ())
        others = tuple(each for each in present if each.value != entry.value) if append else ()
        return Memory({**self.slots, entry.slot: (*others, entry)}, self.versions, self.rules_version)

    def mapped(self, change: Callable[[Entry], Entry | None]) -> Memory:
        """Return the store with every entry replaced by what ``change`` makes of it; None drops it."""
        slots: dict[Slot, tuple[Entry, ...]] = {}
        for slot, entries in self.slots.items():
            kept = tuple(new for entry in entries if (new := change(entry)) is not None)
            if kept:
                slots[slot] = kept
        return Memory(slots, self.versions, self.rules_version)


class Step(NamedTuple):
    """What one message did: the store from now on, and the entries it evicted and restamped.

    ``restamps`` lists one tuple of entries per restamp operation (one table brought up to date, or one family
    compared); ``alerts`` names what the client noticed: "table NAME" or "rules".
    """

    memory: Memory
    evicted: tuple[Entry, ...] = ()
    restamps: tuple[tuple[Entry, ...], ...] = ()
    alerts: tuple[str, ...] = ()

    def then(self, other: Step) -> Step:
        """Return both steps as one, ``other`` having started from this one's store."""
        return Step(
            other.memory,
            self.evicted + other.evicted,
            self.restamps + other.restamps,
            self.alerts + other.alerts,
        )
