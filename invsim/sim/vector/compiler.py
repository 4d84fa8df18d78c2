"""From an arm to a program: the tables of each episode, for the states that can be reached by then."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from invsim.client.planners.base import Injected
from invsim.client.planners.probabilistic import Behaviour
from invsim.sim.facts import DriftFacts, EpisodeFacts, Facts
from invsim.sim.scenario import MAX_ATTEMPTS
from invsim.sim.vector.arms import Rule, Traits, Verdict, certain_alerts, comparison, first_response
from invsim.sim.vector.decisions import Bools, Codes, Coding, Followed, Outcome, follow
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
        self._known: dict[tuple[int, bool, int | None], Followed] = {}

    def step(self, at: int) -> Step:
        """Return the step of an episode."""
        episode = self.facts.episodes[at]
        self.drifted += len(episode.drift)
        judgements = self.judgements(episode.drift)
        numbering = self.slots[episode.slot] if episode.slot >= 0 else Numbering(self.codings[at].size)
        index = _Index(numbering, {held: self._followed(at, held) for held in numbering.of})
        byte = partial(_byte, self.traits.stores, episode)
        rules = first_response(self.facts, self.traits, episode)
        changes = tuple(each for rule in rules if (each := self._change(rule, episode, range(len(self.slots)))))
        comparisons = self._comparisons(episode, index)
        quiet = not changes and not comparisons
        return Step(
            slot=episode.slot,
            judgements=judgements,
            outcome=index.table(byte).astype(np.uint8),
            changes=changes,
            comparisons=comparisons,
            contradicted=self._contradicted(episode) if episode.drift or comparisons else (),
            becomes=self._becomes(episode, numbering, index) if quiet else None,
            settling=None if quiet else self._settling(episode, numbering, index),
            drifted=bool(episode.drift),
            rule_events=self._rule_events(),
            certain=index.only(byte),
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
        rows = episode.state.rows
        tables = [numbering.flags(partial(_has_another_row, rows[slot])) for slot, numbering in enumerate(self.slots)]
        return tuple((slot, table) for slot, table in enumerate(tables) if table.any())

    def _rule_events(self) -> tuple[int, ...]:
        events = range(self.facts.before_contact, self.drifted) if self.traits.rules == "comparison" else ()
        return tuple(event for event in events if self.facts.plan.drift[event].subject == "rules")

    # The episode's own slot -------------------------------------------------------------------------------------------

    def _followed(self, at: int, held: Held) -> Followed:
        episode, fix = self.facts.episodes[at], held.kept.fix if held.kept else None
        asked = id(episode.first), episode.first_occurrence, fix  # equal episodes share their answers
        if asked not in self._known:
            right = fix is not None and episode.works[fix]
            injected = {"right" if right else "wrong": fix}
            self._known[asked] = follow(episode, self.rates[at], self.codings[at], **injected)
        return self._known[asked]

    def _stored(self, episode: EpisodeFacts, fix: int) -> Held:
        slot, state = episode.slot, episode.state
        table = self.facts.slots[slot].table
        vector = episode.vectors[table] if self.traits.vectors and episode.vectors is not None else [table]
        return Held(True, Kept(fix, frozenset(vector), state.rows[slot], state.versions[slot], state.vectors[slot]))

    def _becomes(self, episode: EpisodeFacts, numbering: Numbering, index: _Index) -> Codes | None:
        """Close an episode in which nothing befell the store but its own fix."""
        reached = set()

        def becomes(held: Held, outcome: Outcome) -> int:
            if outcome.stored >= 0 and self.traits.stores:
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
            stores = outcome.stored >= 0 and self.traits.stores
            return numbering.code(self._stored(episode, outcome.stored)) if stores else -1

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
                    heard = index.table(partial(_hears_of, family, at))
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
                    depends = self.slots[target].flags(partial(_depends_on, table))
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
        numbering, before = self.slots[slot], set(self.slots[slot].of)
        evicted = {held for held, verdict in verdicts.items() if verdict.evicted}
        emptied = {held: held._replace(kept=None) for held in (verdicts if told else evicted)}
        stay = {
            held: Held(held.completed, held.kept._replace(tables=verdicts[held].tables))
            for held in verdicts.keys() - evicted
            if held.kept
        }

        def restamped(at: int) -> Bools | None:
            table = numbering.flags(lambda kept: at in verdicts[Held(True, kept)].operations)
            return table if table.any() else None

        part = Part(
            slot=slot,
            gone=numbering.flags(lambda kept: Held(True, kept) in evicted) if emptied else None,
            right_by_row=numbering.flags(lambda kept: kept.wrong(slot, episode.state)),
            right_by_table=numbering.flags(lambda kept: kept.outdated(slot, episode.state)),
            restamped=tuple(restamped(at) for at in range(operations)),
            leaves=numbering.codes(lambda held: numbering.code(emptied.get(held, held))),
            stays=numbering.codes(lambda held: numbering.code(stay.get(held, held)))
            if any(held != after for held, after in stay.items())
            else None,
        )
        after = {*emptied.values(), *stay.values(), *(before - verdicts.keys())}
        numbering.keep(after if certain else after | before)
        return part


class _Index:
    """An episode's index: the slot's code before the first response plus the cell of the draws."""

    def __init__(self, numbering: Numbering, followed: Mapping[Held, Followed]) -> None:
        self.codes = dict(numbering.of)
        self.followed = followed
        self.size = max(self.codes.values()) + numbering.stride

    def outcomes(self) -> set[Outcome]:
        """Return all that can follow."""
        return {outcome for each in self.followed.values() for outcome in each.outcomes}

    def table(self, value: Callable[[Held, Outcome], int]) -> Codes:
        """Return a table over the index."""
        table = np.zeros(self.size, dtype=np.intp)
        for held, code in self.codes.items():
            cells = self.followed[held].table(partial(value, held))
            table[code : code + len(cells)] = cells
        return table

    def only(self, value: Callable[[Held, Outcome], int]) -> int | None:
        """Return a value if it is the same wherever the index can be."""
        values = {value(held, outcome) for held in self.codes for outcome in self.followed[held].outcomes}
        return values.pop() if len(values) == 1 else None


def _injected(episode: EpisodeFacts, held: Held) -> Injected:
    if held.kept is None:
        return Injected.NOTHING
    return Injected.VALID if episode.works[held.kept.fix] else Injected.STALE


def _byte(stores: bool, episode: EpisodeFacts, held: Held, outcome: Outcome) -> int:
    stored = stores and outcome.stored >= 0 and held.kept is None
    return outcome.byte(_injected(episode, held), addressable=held.completed, stored=stored)


def _has_another_row(row: int, kept: Kept) -> bool:
    return kept.row != row


def _depends_on(table: str, kept: Kept) -> bool:
    return table in kept.tables


def _hears_of(family: str, at: int, _: Held, outcome: Outcome) -> bool:
    return family in _news(outcome, at)


def _news(outcome: Outcome, at: int) -> frozenset[str]:
    """Return the families first heard of at a failed response; a vector heard before has nothing more to say."""
    heard: frozenset[str] = frozenset().union(*outcome.failures[:at])
    return outcome.failures[at] - heard if at < len(outcome.failures) else frozenset()
