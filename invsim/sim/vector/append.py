"""The append-only arm. Its store never drops a fix, so it can hold any of them in any order: too many states to list.

But a fix is one of a few per slot, and all that matters of it is which episode stored it last: that tells where it
originated, and which of two is the newer. So here one array per slot and fix holds 1 + that episode, 0 for none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from itertools import product

import numpy as np

from invsim.client.planners.base import Injected
from invsim.client.planners.probabilistic import Behaviour
from invsim.sim.facts import DriftFacts, EpisodeFacts, Facts, FirstRequest
from invsim.sim.vector.decisions import (
    ATTEMPTS,
    COMPLETED,
    STORED,
    Bools,
    Bytes,
    Codes,
    Coding,
    Counts,
    Drawn,
    Outcome,
    follow,
)
from invsim.sim.vector.outcomes import Certainty, Outcomes
from invsim.sim.vector.program import Judgement, Kept

Groups = tuple[tuple[int, ...], ...]
"""Fixes of a slot, those to which the server says the same together."""


@dataclass(frozen=True)
class Step:
    """One episode. Its index is what its slot shows times ``stride``, plus the cell of the draws.

    A slot shows 0 before its key has completed, and then ``1 + right * (len(wrong) + 1) + wrong``: 1 + the group of the
    newest fix of either kind, 0 where there is none.

    Parameters
    ----------
    slot : int
        -1 for a task without a constraint.
    judgements : tuple of Judgement
        On account of the drift since the episode before; tables over 1 + the episode that stored a fix.
    right, wrong : Groups
        Fixes of the slot that can be in the store by now, as this episode judges them.
    stride : int
    outcome : ndarray of uint8
        Over the index: see ``decisions.ATTEMPTS`` and its likes.
    stored : ndarray of int
        Over the index: the fix stored, -1 for none.
    stores : tuple of int
        The fixes that can be stored.
    certain : int or None
        The outcome, if it is the same whatever the index is.
    """

    slot: int
    judgements: tuple[Judgement, ...]
    right: Groups
    wrong: Groups
    stride: int
    outcome: Bytes
    stored: Codes
    stores: tuple[int, ...]
    certain: int | None


@dataclass(frozen=True)
class AppendProgram:
    """The append-only arm on a plan; ``fixes`` is the number of fixes of each slot."""

    fixes: tuple[int, ...]
    steps: tuple[Step, ...]
    closing: tuple[Judgement, ...]
    events: int

    @cached_property
    def certainty(self) -> Certainty:
        """Which episodes come out the same in every stream."""
        return Certainty([step.certain for step in self.steps])


def compile_append(facts: Facts, rates: Sequence[Behaviour], codings: Sequence[Coding]) -> AppendProgram:
    """Return the program of the append-only arm.

    Parameters
    ----------
    facts : Facts
    rates, codings : sequence
        One per episode.
    """
    known: list[list[int]] = [[] for _ in facts.slots]
    steps = tuple(_step(facts, at, rates[at], codings[at], known) for at in range(len(facts.episodes)))
    closing = _judgements(facts, facts.closing, len(facts.episodes), known)
    return AppendProgram(tuple(len(each.values) for each in facts.slots), steps, closing, len(facts.plan.drift))


def _step(facts: Facts, at: int, rates: Behaviour, coding: Coding, known: list[list[int]]) -> Step:
    episode = facts.episodes[at]
    judgements = _judgements(facts, episode.drift, at, known)
    mine = known[episode.slot] if episode.slot >= 0 else []
    right = _groups(episode, (fix for fix in mine if episode.works[fix]))
    wrong = _groups(episode, (fix for fix in mine if not episode.works[fix]))
    pairs = [(None, None), *product((None, *(each[0] for each in right)), (None, *(each[0] for each in wrong)))]
    followed = [follow(episode, rates, coding, right=valid, wrong=stale) for valid, stale in pairs]

    def byte(show: int, outcome: Outcome) -> int:
        return outcome.byte(_injected(*pairs[show]), addressable=show > 0, stored=outcome.stored >= 0)

    outcome = [each.table(partial(byte, show)) for show, each in enumerate(followed)]
    stored = [each.table(lambda outcome: outcome.stored) for each in followed]
    unconstrained = set(outcome[0].tolist()) if episode.slot < 0 else set()
    stores = tuple(sorted({each.stored for can in followed for each in can.outcomes} - {-1}))
    mine += [fix for fix in stores if fix not in mine]
    return Step(
        slot=episode.slot,
        judgements=judgements,
        right=right,
        wrong=wrong,
        stride=coding.size,
        outcome=np.concatenate(outcome).astype(np.uint8),
        stored=np.concatenate(stored),
        stores=stores,
        certain=unconstrained.pop() if len(unconstrained) == 1 else None,
    )


def _groups(episode: EpisodeFacts, fixes: Iterable[int]) -> Groups:
    groups: dict[FirstRequest, list[int]] = {}
    for fix in fixes:
        groups.setdefault(episode.first[fix], []).append(fix)
    return tuple(map(tuple, groups.values()))


def _injected(right: int | None, wrong: int | None) -> Injected:
    if right is None:
        return Injected.NOTHING if wrong is None else Injected.STALE
    return Injected.VALID if wrong is None else Injected.CONFLICT


def _judgements(
    facts: Facts, drift: Sequence[DriftFacts], at: int, known: Sequence[Sequence[int]]
) -> tuple[Judgement, ...]:
    """Return which fixes the drift before episode ``at`` makes wrong, by the episode that stored them."""
    slots = [slot for slot in range(len(facts.slots)) if drift and known[slot]]
    found = [_judgement(facts, drift, at, slot) for slot in slots]
    return tuple(each for each in found if each.by_table.any())


def _judgement(facts: Facts, drift: Sequence[DriftFacts], at: int, slot: int) -> Judgement:
    by_row, by_table = np.zeros((2, at + 1), dtype=np.intp)
    for origin in range(at):
        if facts.episodes[origin].slot == slot:
            state = facts.episodes[origin].state
            kept = Kept(-1, frozenset(), state.rows[slot], state.versions[slot], state.vectors[slot])
            for event in drift:
                newly = kept.wrong(slot, event.after) and not kept.wrong(slot, event.before)
                by_row[1 + origin] += newly
                by_table[1 + origin] += newly or event.reloaded == facts.slots[slot].table
    return Judgement(slot, by_row, by_table)


# Playing --------------------------------------------------------------------------------------------------------------


def play_append(program: AppendProgram, drawn: Drawn) -> Outcomes:
    """Return what becomes of the streams drawn."""
    out = Outcomes(
        first=drawn.first,
        count=drawn.count,
        certainty=program.certainty,
        most=sum(program.fixes),
        alerts=[-1] * program.events,
    )
    player = _Player(program, drawn, out)
    for at, step in enumerate(program.steps):
        player.episode(at, step)
    player.judge(program.closing)
    return out


class _Player:
    """The streams under way: which keys have completed, which episode stored each fix, and the size of each store."""

    def __init__(self, program: AppendProgram, drawn: Drawn, out: Outcomes) -> None:
        self.drawn, self.out = drawn, out
        self.nothing = np.zeros(drawn.count, dtype=np.intp)
        self.completed = [np.zeros(drawn.count, dtype=np.bool_) for _ in program.fixes]
        self.stored_by: list[dict[int, Counts]] = [{} for _ in program.fixes]
        self.dtype = np.min_scalar_type(len(program.steps))
        self.size: Counts = np.zeros(drawn.count, dtype=out.entries.dtype)

    def episode(self, at: int, step: Step) -> None:
        """Play one episode."""
        self.judge(step.judgements)
        if step.certain is not None:
            np.multiply(self.size, step.certain & ATTEMPTS, out=self.out.entries[at])
            return
        index, row = self._index(step, self.drawn.cells[at]), self.out.row(at)
        step.outcome.take(index, out=row, mode="clip")
        np.multiply(row & ATTEMPTS, self.size, out=self.out.entries[at])
        if step.slot >= 0:
            self.completed[step.slot] |= (row & COMPLETED).astype(np.bool_)
        for fix in step.stores:
            only = len(step.stores) == 1
            self._store(at, step.slot, fix, row >= STORED if only else step.stored.take(index) == fix)

    def judge(self, judgements: Sequence[Judgement]) -> None:
        """Count the fixes that drift makes wrong."""
        for each in judgements:
            for stored_by in self.stored_by[each.slot].values():
                self.out.add("required_by_row", each.by_row.take(stored_by))
                self.out.add("required_by_table", each.by_table.take(stored_by))

    def _index(self, step: Step, cells: Bytes | None) -> Codes:
        if step.slot < 0:
            return self.nothing if cells is None else cells.astype(np.intp)
        shown = self._shown(step)
        shown *= shown.dtype.type(step.stride)
        if cells is not None:
            shown += cells
        return shown.astype(np.intp)

    def _shown(self, step: Step) -> Counts:
        """Return what the slot shows, in integers that hold an index."""
        kinds = 1 + (len(step.right) + 1) * (len(step.wrong) + 1)
        shown: Counts = self.completed[step.slot].astype(np.min_scalar_type(kinds * step.stride))
        for groups, unit in ((step.right, len(step.wrong) + 1), (step.wrong, 1)):
            for number, newest in enumerate(self._newest(step.slot, groups), start=1):
                np.add(shown, shown.dtype.type(number * unit), out=shown, where=newest)
        return shown

    def _newest(self, slot: int, groups: Groups) -> list[Bools]:
        """Return, per group, where the newest of all their fixes is one of it."""
        stored_by = self.stored_by[slot]
        by_group = [reduce(np.maximum, (stored_by[fix] for fix in group)) for group in groups]
        if len(by_group) < 2:
            return [each > 0 for each in by_group]
        newest = reduce(np.maximum, by_group)
        return [(each == newest) & (newest > 0) for each in by_group]

    def _store(self, at: int, slot: int, fix: int, stored: Bools) -> None:
        stored_by = self.stored_by[slot].get(fix)
        if stored_by is None:
            stored_by = self.stored_by[slot][fix] = np.zeros(len(stored), dtype=self.dtype)
        self.size += stored & (stored_by == 0)
        np.copyto(stored_by, at + 1, where=stored)
