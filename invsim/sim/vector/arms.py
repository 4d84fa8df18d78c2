"""The arms, compiled to programs for the engine that works on whole arrays of streams.

They are written out here a second time, from their definition, so that the two engines check each other. The one arm
that keeps several fixes of a key is in ``append``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from invsim.client.planners.base import Injected
from invsim.client.planners.probabilistic import Behaviour
from invsim.sim.facts import DriftFacts, EpisodeFacts, Facts
from invsim.sim.scenario import MAX_ATTEMPTS
from invsim.sim.vector.decisions import Bools, Codes, Coding, Outcome, outcomes
from invsim.sim.vector.program import (
    Change,
    Comparison,
    Held,
    Judgement,
    Kept,
    Numbering,
    Part,
    Program,
    Settling,
    Step,
)
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


# Compilation ----------------------------------------------------------------------------------------------------------


def compile_arm(facts: Facts, traits: Traits, rates: Sequence[Behaviour], codings: Sequence[Coding]) -> Program:
    """Return the program of an arm that keeps one fix of a key at the most.

    Parameters
    ----------
    facts : Facts
    traits : Traits
    rates, codings : sequence
        One per episode.
    """
    compiler = _Compiler(facts, traits, rates, codings)
    steps = tuple(compiler.step(at) for at in range(len(facts.episodes)))
    return Program(len(facts.slots), steps, compiler.judgements(facts.closing), certain_alerts(facts, traits))


def certain_alerts(facts: Facts, traits: Traits) -> tuple[int, ...]:
    """Return the episode in which each drift event is noticed whatever the draws are; -1 for none."""
    alerts, drifted = [-1] * len(facts.plan.drift), 0
    for at, episode in enumerate(facts.episodes):
        drifted += len(episode.drift)
        noticed = {f"table {name}" for name in episode.moved} if traits.evicts else set()
        stamp = traits.rules == "stamp" and episode.fingerprint_moved
        if stamp or (traits.rules == "declaration" and episode.rule_changes):
            noticed.add("rules")
        for event in range(drifted):
            if alerts[event] < 0 and facts.plan.drift[event].subject in noticed:
                alerts[event] = at
    return tuple(alerts)


def strides(facts: Facts, codings: Sequence[Coding]) -> list[int]:
    """Return, per slot, the most cells of any of its episodes."""
    most = [1] * len(facts.slots)
    for episode, cells in zip(facts.episodes, codings, strict=True):
        if episode.slot >= 0:
            most[episode.slot] = max(most[episode.slot], cells.size)
    return most


class _Compiler:
    """Builds the steps in order, and keeps which states can be reached."""

    def __init__(self, facts: Facts, traits: Traits, rates: Sequence[Behaviour], codings: Sequence[Coding]) -> None:
        self.facts, self.traits, self.rates, self.codings = facts, traits, rates, codings
        self.slots = [Numbering(stride) for stride in strides(facts, codings)]
        self.drifted = 0

    def step(self, at: int) -> Step:
        """Return the step of an episode."""
        episode = self.facts.episodes[at]
        self.drifted += len(episode.drift)
        judgements = self.judgements(episode.drift)
        numbering = self.slots[episode.slot] if episode.slot >= 0 else Numbering(self.codings[at].size)
        index = _Index(numbering, {held: self._outcomes(at, held) for held in numbering.of})
        outcome = index.table(lambda held, each: _byte(episode, held, each))
        bytes_ = index.values(outcome)
        rules = first_response(self.facts, self.traits, episode)
        changes = tuple(each for rule in rules if (each := self._change(rule, episode, range(len(self.slots)))))
        comparisons = self._comparisons(episode, index)
        quiet = not changes and not comparisons
        return Step(
            slot=episode.slot,
            judgements=judgements,
            outcome=outcome.astype(np.uint8),
            changes=changes,
            comparisons=comparisons,
            contradicted=self._contradicted(episode) if self.traits.evicts else (),
            becomes=self._becomes(episode, numbering, index) if quiet else None,
            settling=None if quiet else self._settling(episode, numbering, index),
            drifted=bool(episode.drift),
            rule_events=self._rule_events(),
            certain=bytes_.pop() if len(bytes_) == 1 else None,
        )

    def judgements(self, drift: Sequence[DriftFacts]) -> tuple[Judgement, ...]:
        """Return which entries the drift makes wrong."""
        found = [self._judgement(slot, drift) for slot in range(len(self.slots))] if drift else []
        return tuple(each for each in found if each.by_table.any())

    def _judgement(self, slot: int, drift: Sequence[DriftFacts]) -> Judgement:
        table, numbering = self.facts.slots[slot].table, self.slots[slot]

        def newly(kept: Kept, event: DriftFacts) -> bool:
            return kept.wrong(slot, event.after) and not kept.wrong(slot, event.before)

        def by_row(kept: Kept) -> int:
            return sum(newly(kept, event) for event in drift)

        def by_table(kept: Kept) -> int:
            return sum(newly(kept, event) or event.reloaded == table for event in drift)

        return Judgement(slot, numbering.counts(by_row), numbering.counts(by_table))

    def _contradicted(self, episode: EpisodeFacts) -> tuple[tuple[int, Bools], ...]:
        tables = [
            (slot, numbering.flags(lambda kept, slot=slot: kept.row != episode.state.rows[slot]))
            for slot, numbering in enumerate(self.slots)
        ]
        return tuple((slot, table) for slot, table in tables if table.any())

    def _rule_events(self) -> tuple[int, ...]:
        events = range(self.drifted if self.traits.rules == "comparison" else 0)
        return tuple(event for event in events if self.facts.plan.drift[event].subject == "rules")

    # The episode's own slot -------------------------------------------------------------------------------------------

    def _outcomes(self, at: int, held: Held) -> tuple[Outcome, ...]:
        episode = self.facts.episodes[at]
        stale = held.kept.fix if held.kept else -1
        found = outcomes(episode, self.rates[at], self.codings[at], _injected(episode, held), stale)
        return found if self.traits.stores else tuple(each._replace(stored=-1) for each in found)

    def _stored(self, episode: EpisodeFacts, fix: int) -> Held:
        slot, state = episode.slot, episode.state
        table = self.facts.slots[slot].table
        vector = episode.vectors[table] if self.traits.vectors and episode.vectors is not None else [table]
        return Held(True, Kept(fix, frozenset(vector), state.rows[slot], state.versions[slot], state.vectors[slot]))

    def _becomes(self, episode: EpisodeFacts, numbering: Numbering, index: _Index) -> Codes | None:
        """Close an episode in which nothing befell the store but its own fix."""
        reached = set()

        def becomes(held: Held, outcome: Outcome) -> int:
            if outcome.stored >= 0:
                held = self._stored(episode, outcome.stored)
            elif outcome.completed and episode.slot >= 0:
                held = held._replace(completed=True)
            reached.add(held)
            return numbering.code(held)

        before = index.table(lambda held, _: numbering.of[held])
        table = index.table(becomes)
        numbering.keep(reached)
        return None if np.array_equal(before, table) else table

    def _settling(self, episode: EpisodeFacts, numbering: Numbering, index: _Index) -> Settling:
        """Close an episode in which something befell the store."""

        def stored(_: Held, outcome: Outcome) -> int:
            return numbering.code(self._stored(episode, outcome.stored)) if outcome.stored >= 0 else -1

        completed = numbering.codes(lambda held: numbering.code(held._replace(completed=True)))
        return Settling(index.table(stored), completed, numbering.flags(lambda _: True))

    # What befalls the store -------------------------------------------------------------------------------------------

    def _comparisons(self, episode: EpisodeFacts, index: _Index) -> tuple[tuple[Comparison, ...], ...]:
        """Return the comparisons of vectors that can change something, per failed response."""
        if not self.traits.compares or episode.vectors is None:
            return ()
        found = [tuple(self._compared(episode, index, at, episode.vectors)) for at in range(MAX_ATTEMPTS)]
        while found and not found[-1]:
            found.pop()
        return tuple(found)

    def _compared(
        self, episode: EpisodeFacts, index: _Index, at: int, vectors: Mapping[str, Collection[str]]
    ) -> Iterator[Comparison]:
        for family in sorted({family for outcome in index.outcomes() for family in _news(outcome, at)}):
            slots = [slot for slot, each in enumerate(self.facts.slots) if each.slot.family == family]
            if slots and self.facts.slots[slots[0]].table:
                rule = comparison(frozenset(vectors[self.facts.slots[slots[0]].table]))
                change = self._change(rule, episode, slots, certain=False)
                if change:
                    heard = index.table(lambda _, outcome, family=family: family in _news(outcome, at))
                    yield Comparison(heard.astype(np.bool_), change)

    def _change(
        self, rule: Rule, episode: EpisodeFacts, slots: Iterable[int], *, certain: bool = True
    ) -> Change | None:
        """Apply a rule to the states that can be reached, in every stream or in some; None if it changes nothing."""
        verdicts = {
            slot: {held: rule.verdict(slot, held.kept) for held in self.slots[slot].of if held.kept} for slot in slots
        }
        notices = self._notices(verdicts) if rule.notifies else {}
        told = {target for _, target in notices}
        touched = [
            slot
            for slot, each in verdicts.items()
            if slot in told or any(verdict.evicted or verdict.operations for verdict in each.values())
        ]
        parts = tuple(
            self._part(slot, verdicts[slot], episode, rule.operations, told=slot in told, certain=certain)
            for slot in touched
        )
        by_position = [
            (touched.index(source), touched.index(target), each) for (source, target), each in notices.items()
        ]
        return Change(parts, rule.operations, tuple(by_position)) if parts else None

    def _notices(self, verdicts: Mapping[int, Mapping[Held, Verdict]]) -> dict[tuple[int, int], Bools]:
        """Return who can take along whom: entries for one key, of which one depends on the other's table."""
        found: dict[tuple[int, int], Bools] = {}
        going = [slot for slot, each in verdicts.items() if any(verdict.evicted for verdict in each.values())]
        for source in going:  # grows on the way
            (_, key), table = self.facts.slots[source].slot, self.facts.slots[source].table
            for target in verdicts:
                if target != source and self.facts.slots[target].slot.key == key:
                    depends = self.slots[target].flags(lambda kept, table=table: table in kept.tables)
                    if depends.any():
                        found[source, target] = depends
                        going += [] if target in going else [target]
        return found

    def _part(
        self,
        slot: int,
        verdicts: Mapping[Held, Verdict],
        episode: EpisodeFacts,
        operations: int,
        *,
        told: bool,
        certain: bool,
    ) -> Part:
        numbering, reached = self.slots[slot], set() if certain else set(self.slots[slot].of)

        def evicted(held: Held) -> bool:
            return held in verdicts and verdicts[held].evicted

        def leaves(held: Held) -> int:
            if evicted(held) or (told and held.kept):
                held = held._replace(kept=None)
                reached.add(held)
            return numbering.code(held)

        def stays(held: Held) -> int:
            if held.kept and not evicted(held):
                held = held._replace(kept=held.kept._replace(tables=verdicts[held].tables))
            if not evicted(held):
                reached.add(held)
            return numbering.code(held)

        def restamped(at: int) -> Bools | None:
            table = numbering.flags(lambda kept: at in verdicts[Held(True, kept)].operations)
            return table if table.any() else None

        gone = numbering.flags(lambda kept: evicted(Held(True, kept)))
        part = Part(
            slot=slot,
            gone=gone if gone.any() or told else None,
            right_by_row=numbering.flags(lambda kept: kept.wrong(slot, episode.state)),
            right_by_table=numbering.flags(lambda kept: kept.outdated(slot, episode.state)),
            restamped=tuple(restamped(at) for at in range(operations)),
            leaves=numbering.codes(leaves),
            stays=after
            if (after := numbering.codes(stays)).tolist() != numbering.codes(numbering.code).tolist()
            else None,
        )
        numbering.keep(reached)
        return part


class _Index:
    """An episode's index: the slot's code before the first response plus the cell of the draws."""

    def __init__(self, numbering: Numbering, followed: Mapping[Held, tuple[Outcome, ...]]) -> None:
        self.codes = dict(numbering.of)
        self.followed = followed
        self.size = max(self.codes.values()) + numbering.stride

    def outcomes(self) -> set[Outcome]:
        """Return all that can follow."""
        return {outcome for each in self.followed.values() for outcome in each}

    def values(self, table: Codes) -> set[int]:
        """Return the values that a table takes where the index can be."""
        return {
            int(table[self.codes[held] + cell]) for held, each in self.followed.items() for cell in range(len(each))
        }

    def table(self, value: Callable[[Held, Outcome], int]) -> Codes:
        """Return a table over the index."""
        table = np.zeros(self.size, dtype=np.intp)
        for held, code in self.codes.items():
            for cell, outcome in enumerate(self.followed[held]):
                table[code + cell] = value(held, outcome)
        return table


def _injected(episode: EpisodeFacts, held: Held) -> Injected:
    if held.kept is None:
        return Injected.NOTHING
    return Injected.VALID if episode.works[held.kept.fix] else Injected.STALE


def _byte(episode: EpisodeFacts, held: Held, outcome: Outcome) -> int:
    grows = outcome.stored >= 0 and held.kept is None
    return outcome.byte(_injected(episode, held), addressable=held.completed, grows=grows)


def _news(outcome: Outcome, at: int) -> frozenset[str]:
    """Return the families first heard of at a failed response; a vector heard before has nothing more to say."""
    heard: frozenset[str] = frozenset().union(*outcome.failures[:at])
    return outcome.failures[at] - heard if at < len(outcome.failures) else frozenset()
