"""The nine arms over small tuples: what a response does to a store when all the server would say is known.

A second implementation of the arms, written from their definitions and sharing no code with the client. Every response
is observed and drift falls between episodes, so an entry's stamps always equal the versions that the client was last
squared against; what is left of them is the set of tables they are stamps of.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from invsim.sim.facts import DriftFacts, EpisodeFacts, SlotFacts, State

Origin = tuple[int, str, frozenset[str]]
"""What the oracles judge an entry by: row, version and vector of its table when it was stored."""


class Entry(NamedTuple):
    """A cached fix: its index, the tables it carries stamps of, and its origin (None where nothing will ask)."""

    fix: int
    depends: frozenset[str]
    origin: Origin | None


Store = dict[int, tuple[Entry, ...]]
"""Entries by slot, oldest first."""


@dataclass(frozen=True)
class Conduct:
    """What an arm does, as choices among words.

    Parameters
    ----------
    stores, append, vectors : bool
        Whether it keeps a memory, keeps old values beside new ones, reads dependency vectors.
    tables : {"", "table", "row", "notify", "downstream"}
        What a moved stamp evicts: nothing; the entries of the table; the rows in the diff; also the entries that
        depended on an evicted one; also the nodes that the server reports downstream.
    rules : {"", "lazy", "stamp", "alert", "oracle"}
        On rule drift: nothing; compare vectors on a failure; clear all when the fingerprint moves; notice by the
        fingerprint and compare on a failure; see each declaration.
    """

    stores: bool = True
    append: bool = False
    vectors: bool = False
    tables: str = ""
    rules: str = ""

    @property
    def compares(self) -> bool:
        """Whether a failed response has its vectors compared with the store."""
        return self.rules in {"lazy", "alert"}


CONDUCT: Mapping[str, Conduct] = {
    "A0": Conduct(stores=False),
    "A1": Conduct(append=True),
    "A2": Conduct(tables="table"),
    "A2D": Conduct(tables="row"),
    "A2DC": Conduct(vectors=True, tables="notify", rules="lazy"),
    "A2DG": Conduct(vectors=True, tables="downstream", rules="lazy"),
    "A2DR": Conduct(tables="row", rules="stamp"),
    "A2DRC": Conduct(vectors=True, tables="row", rules="alert"),
    "A2DO": Conduct(vectors=True, tables="row", rules="oracle"),
}


@dataclass
class Tally:
    """What the responses of an episode did to a store.

    ``sizes`` holds the size of the store after each response whose successor carries it; ``compared`` says whether a
    comparison of vectors evicted or restamped anything.
    """

    evicted: int = 0
    restamped: int = 0
    operations: int = 0
    right_by_row: int = 0
    right_by_table: int = 0
    failures: int = 0
    compared: bool = False
    sizes: list[int] = field(default_factory=list)


def wrong_by_row(entry: Entry, slot: int, state: State) -> bool:
    """Row oracle: the row is not what it was, or the derivation has lost a table."""
    if entry.origin is None:
        return False
    row, _, vector = entry.origin
    return state.rows[slot] != row or not vector <= state.vectors[slot]


def wrong_by_table(entry: Entry, slot: int, state: State) -> bool:
    """Cleared-table oracle: any new version warrants clearing the entry."""
    moved = entry.origin is not None and state.versions[slot] != entry.origin[1]
    return moved or wrong_by_row(entry, slot, state)


def required(entries: Iterable[Entry], slot: int, table: str, drift: Iterable[DriftFacts]) -> tuple[int, int]:
    """Return how many evictions the row oracle and the cleared-table oracle ask for on account of some drift."""
    by_row = by_table = 0
    events = tuple(drift)
    for entry in entries:
        for event in events:
            newly = wrong_by_row(entry, slot, event.after) and not wrong_by_row(entry, slot, event.before)
            by_row += newly
            by_table += newly or table == event.reloaded
    return by_row, by_table


class Client:
    """An arm at work in one episode, on all or part of a store.

    Parts that do not meet - by a moved stamp, a key, a family - can be played apart.
    """

    def __init__(self, conduct: Conduct, slots: tuple[SlotFacts, ...], episode: EpisodeFacts) -> None:
        self.conduct, self.slots, self.episode = conduct, slots, episode

    def play(self, store: Store, heard: tuple[frozenset[str], ...]) -> tuple[Store, Tally]:
        """Receive an episode's responses: the first, failed or not, and after it the other failed ones.

        Parameters
        ----------
        store : Store
        heard : tuple of frozenset of str
            Families suggested by each failed response; empty when the first try succeeds.
        """
        tally = Tally()
        store = self._tables(store, tally)
        store = self._rules(store, tally)
        for families in heard or (frozenset(),):
            if self.conduct.compares:
                store = self._compared(store, families, tally)
            tally.sizes.append(sum(map(len, store.values())))
        if self.episode.drift and self.conduct.tables:
            tally.failures = sum(self._contradicted(entry, at) for at, entries in store.items() for entry in entries)
        return store, tally

    def commit(self, entries: tuple[Entry, ...], slot: int, fix: int) -> tuple[Entry, ...]:
        """Return a slot's entries with a fix stored as of this episode."""
        if not self.conduct.stores:
            return entries
        state, table, vectors = self.episode.state, self.slots[slot].table, self.episode.vectors
        depends = frozenset(vectors[table] if self.conduct.vectors and vectors is not None else (table,))
        origin = state.rows[slot], state.versions[slot], state.vectors[slot]
        others = tuple(entry for entry in entries if entry.fix != fix) if self.conduct.append else ()
        return *others, Entry(fix, depends, origin)

    # Tables -----------------------------------------------------------------------------------------------------

    def _tables(self, store: Store, tally: Tally) -> Store:
        moved, manner = self.episode.moved, self.conduct.tables
        if not moved or not manner:
            return store
        gone = {(at, entry) for at, entries in store.items() for entry in entries if self._hit(at, entry)}
        if manner == "notify":
            gone = self._notified(store, gone)
        store = self._evicted(store, gone, tally)
        if manner != "table":
            for table in moved:
                kept = sum(table in entry.depends for entries in store.values() for entry in entries)
                tally.operations += kept > 0
                tally.restamped += kept
        return store

    def _hit(self, at: int, entry: Entry) -> bool:
        slot, manner = self.slots[at], self.conduct.tables
        moved = [each for table, each in self.episode.moved.items() if table in entry.depends]
        if manner == "table":
            return bool(moved)
        if any(not each.chained or slot.slot.key in each.keys for each in moved):
            return True
        node = f"{slot.table}:{slot.slot.key}"
        return manner == "downstream" and any(node in each.downstream for each in self.episode.moved.values())

    def _notified(self, store: Store, gone: set[tuple[int, Entry]]) -> set[tuple[int, Entry]]:
        """Close a set of evictions: same key, and a vector that holds the evicted entry's table."""
        gone, news = set(gone), list(gone)
        while news:
            source = self.slots[news.pop()[0]]
            for at, entries in store.items():
                if self.slots[at].slot.key == source.slot.key:
                    told = [(at, entry) for entry in entries if source.table in entry.depends]
                    news += [each for each in told if each not in gone]
                    gone.update(told)
        return gone

    # Rules ------------------------------------------------------------------------------------------------------

    def _rules(self, store: Store, tally: Tally) -> Store:
        if self.conduct.rules == "stamp" and self.episode.fingerprint_moved:
            return self._evicted(store, {(at, entry) for at, entries in store.items() for entry in entries}, tally)
        if self.conduct.rules == "oracle":
            for change in self.episode.rule_changes:
                store = self._declared(store, *change.rule.edge, change.added, tally)
        return store

    def _declared(self, store: Store, start: str, end: str, added: bool, tally: Tally) -> Store:
        held = [(at, entry) for at, entries in store.items() for entry in entries]
        if not added:
            return self._evicted(store, {each for each in held if {start, end} <= each[1].depends}, tally)
        store = self._evicted(store, {(at, entry) for at, entry in held if self.slots[at].table == end}, tally)
        widened = {(at, entry) for at, entry in held if self.slots[at].table == start and start != end}
        return self._widened(store, {each: each[1].depends | {end} for each in widened}, tally)

    def _compared(self, store: Store, families: frozenset[str], tally: Tally) -> Store:
        vectors = self.episode.vectors
        if vectors is None:
            return store
        for family in families:
            mine = [
                (at, entry, frozenset(vectors[self.slots[at].table]))
                for at, entries in store.items()
                if self.slots[at].slot.family == family
                for entry in entries
            ]
            lost = {(at, entry) for at, entry, vector in mine if not entry.depends <= vector}
            wider = {(at, entry): vector for at, entry, vector in mine if entry.depends < vector}
            tally.compared |= bool(lost or wider)
            store = self._widened(self._evicted(store, lost, tally), wider, tally)
        return store

    # The store --------------------------------------------------------------------------------------------------

    def _evicted(self, store: Store, gone: set[tuple[int, Entry]], tally: Tally) -> Store:
        if not gone:
            return store
        state = self.episode.state
        tally.evicted += len(gone)
        tally.right_by_row += sum(wrong_by_row(entry, at, state) for at, entry in gone)
        tally.right_by_table += sum(wrong_by_table(entry, at, state) for at, entry in gone)
        return {at: tuple(each for each in entries if (at, each) not in gone) for at, entries in store.items()}

    @staticmethod
    def _widened(store: Store, wider: Mapping[tuple[int, Entry], frozenset[str]], tally: Tally) -> Store:
        if not wider:
            return store
        tally.operations += 1
        tally.restamped += len(wider)
        return {
            at: tuple(each._replace(depends=wider.get((at, each), each.depends)) for each in entries)
            for at, entries in store.items()
        }

    def _contradicted(self, entry: Entry, at: int) -> bool:
        return entry.origin is not None and self.episode.state.rows[at] != entry.origin[0]
