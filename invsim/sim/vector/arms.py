"""The arms: what each makes of a message, entry by entry.

They are written out here a second time, from their definition, so that the two engines check each other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from invsim.sim.facts import EpisodeFacts, Facts
from invsim.sim.vector.program import Kept
from invsim.world.server import RuleChange


@dataclass(frozen=True)
class Traits:
    """What an arm does.

    Parameters
    ----------
    stores, appends : bool
        Whether it keeps fixes at all, and whether it keeps a key's old ones beside the new.
    evicts : str
        What goes when a table's version moves: "" nothing, "tables" all that depends on it, "rows" what its diff names.
    notifies, downstream : bool
        Whether an evicted row takes along the entries that depend on it, and those that the server reports downstream.
    vectors, compares : bool
        Whether it reads dependency vectors, and whether it compares them on a failed response.
    clears : bool
        Whether a moved fingerprint empties the store.
    rules : str
        What tells it of rule drift: "" nothing, "comparison", "stamp" or "declaration".
    """

    stores: bool = True
    appends: bool = False
    evicts: str = ""
    notifies: bool = False
    downstream: bool = False
    vectors: bool = False
    compares: bool = False
    clears: bool = False
    rules: str = ""


_ROWS = Traits(evicts="rows")
_VECTORS = replace(_ROWS, vectors=True, compares=True)
TRAITS: Mapping[str, Traits] = {
    "A0": Traits(stores=False),
    "A1": Traits(appends=True),
    "A2": Traits(evicts="tables"),
    "A2D": _ROWS,
    "A2DC": replace(_VECTORS, notifies=True, rules="comparison"),
    "A2DG": replace(_VECTORS, downstream=True, rules="comparison"),
    "A2DR": replace(_ROWS, clears=True, rules="stamp"),
    "A2DRC": replace(_VECTORS, rules="stamp"),
    "A2DO": replace(_ROWS, vectors=True, rules="declaration"),
}


# What a message does to an entry --------------------------------------------------------------------------------------


class Verdict(NamedTuple):
    """What a message does to an entry: evict it, else restamp it in some operations; and what it then depends on."""

    evicted: bool
    operations: Collection[int]
    tables: frozenset[str]


@dataclass(frozen=True)
class Rule:
    """A verdict on each entry, and the number of restamp operations it may take."""

    verdict: Callable[[int, Kept], Verdict]
    operations: int = 0
    notifies: bool = False


def first_response(facts: Facts, traits: Traits, episode: EpisodeFacts) -> Iterator[Rule]:
    """Yield what the first response of an episode makes of the store, in order."""
    if traits.evicts == "tables" and episode.moved:
        yield Rule(lambda _, kept: Verdict(not kept.tables.isdisjoint(episode.moved), (), kept.tables))
    if traits.evicts == "rows" and episode.moved:
        yield _rows(facts, traits, episode)
    if traits.rules == "declaration":
        yield from (_declaration(facts, change) for change in episode.rule_changes)
    if traits.clears and episode.fingerprint_moved:
        yield Rule(lambda _, kept: Verdict(True, (), kept.tables))


def _rows(facts: Facts, traits: Traits, episode: EpisodeFacts) -> Rule:
    moved = episode.moved
    downstream = {node for each in moved.values() for node in each.downstream} if traits.downstream else frozenset()

    def verdict(slot: int, kept: Kept) -> Verdict:
        key, table = facts.slots[slot].slot.key, facts.slots[slot].table
        mine = [each for name, each in moved.items() if name in kept.tables]
        hit = any(not each.chained or key in each.keys for each in mine) or f"{table}:{key}" in downstream
        return Verdict(hit, [at for at, name in enumerate(moved) if name in kept.tables], kept.tables)

    return Rule(verdict, len(moved), traits.notifies)


def _declaration(facts: Facts, change: RuleChange) -> Rule:
    start, end = change.rule.edge

    def withdrawn(_: int, kept: Kept) -> Verdict:
        return Verdict({start, end} <= kept.tables, (), kept.tables)

    def declared(slot: int, kept: Kept) -> Verdict:
        table = facts.slots[slot].table
        return Verdict(table == end, (0,), kept.tables | {end}) if table in (start, end) else _untouched(kept)

    return Rule(declared, 1) if change.added else Rule(withdrawn)


def _untouched(kept: Kept) -> Verdict:
    return Verdict(False, (), kept.tables)


def comparison(vector: frozenset[str]) -> Rule:
    """Return what a suggestion's vector makes of the entries of its family."""

    def verdict(_: int, kept: Kept) -> Verdict:
        return Verdict(not kept.tables <= vector, (0,), vector) if kept.tables != vector else _untouched(kept)

    return Rule(verdict, 1)


def certain_alerts(facts: Facts, traits: Traits) -> tuple[int, ...]:
    """Return the episode in which each drift event is noticed whatever the draws are; -1 for none."""
    alerts, drifted = [-1] * len(facts.plan.drift), 0
    for at, episode in enumerate(facts.episodes):
        drifted += len(episode.drift)
        noticed = {f"table {name}" for name in episode.moved} if traits.evicts else set()
        stamp = traits.rules == "stamp" and episode.fingerprint_moved
        if stamp or (traits.rules == "declaration" and episode.rule_changes):
            noticed.add("rules")
        for event in range(facts.before_contact, drifted):
            if alerts[event] < 0 and facts.plan.drift[event].subject in noticed:
                alerts[event] = at
    return tuple(alerts)
