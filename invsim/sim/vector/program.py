"""Programs: what an arm does in each episode, as lookup tables over the states that streams can be in.

Drift between episodes is the same in every stream, and the first response of an episode squares a client with it. So
all that streams differ in is, per slot, whether its key has completed and which fix is kept, with which dependencies
and from which state of the server. Such a state has a number, its code, and what an episode does to it is a table over
codes. Tables are built for the codes that can be reached, episode by episode; what cannot happen costs nothing later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import NamedTuple

import numpy as np

from invsim.sim.facts import State
from invsim.sim.vector.decisions import Bools, Bytes, Codes
from invsim.sim.vector.outcomes import Certainty


class Kept(NamedTuple):
    """A fix in the store: what it depends on, and the row, version and vector of its table when it was stored."""

    fix: int
    tables: frozenset[str]
    row: int
    version: str
    vector: frozenset[str]

    def wrong(self, slot: int, state: State) -> bool:
        """Row oracle: its row is another by now, or its derivation has lost a table."""
        return self.row != state.rows[slot] or not self.vector <= state.vectors[slot]

    def outdated(self, slot: int, state: State) -> bool:
        """Cleared-table oracle: its table has another version, or the row oracle says so."""
        return self.version != state.versions[slot] or self.wrong(slot, state)


class Held(NamedTuple):
    """State of a slot: whether its key has completed, and what is kept."""

    completed: bool = False
    kept: Kept | None = None


class Numbering:
    """Codes of a slot's states: multiples of a stride, so that a code plus a cell of draws is an index.

    Parameters
    ----------
    stride : int
        At least the number of cells in any episode of the slot.
    """

    def __init__(self, stride: int) -> None:
        self.stride = stride
        self.of: dict[Held, int] = {Held(): 0}

    def code(self, held: Held) -> int:
        """Return a state's code, the least free one if it has none."""
        if held not in self.of:
            taken = set(self.of.values())
            self.of[held] = next(code for code in count(0, self.stride) if code not in taken)
        return self.of[held]

    def keep(self, states: Collection[Held]) -> None:
        """Free the codes of all other states."""
        self.of = {held: code for held, code in self.of.items() if held in states}

    def codes(self, value: Callable[[Held], int]) -> Codes:
        """Return a table over codes."""
        values = [(code, value(held)) for held, code in list(self.of.items())]
        table = np.zeros(max(self.of.values()) + self.stride, dtype=np.intp)
        for code, each in values:
            table[code] = each
        return table

    def counts(self, value: Callable[[Kept], int]) -> Codes:
        """Return a table over codes that counts something of the entry; 0 where there is none."""
        return self.codes(lambda held: value(held.kept) if held.kept else 0)

    def flags(self, value: Callable[[Kept], bool]) -> Bools:
        """Return a table over codes that tells something of the entry; False where there is none."""
        return self.counts(value).astype(np.bool_)


# Programs -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """What a change does in one slot, as tables over its codes.

    Parameters
    ----------
    slot : int
    gone : ndarray of bool or None
        Whether the entry is evicted; None if none can be.
    right_by_row, right_by_table : ndarray of bool
        Whether either oracle agrees with its eviction.
    restamped : tuple of ndarray of bool or None
        Per operation, whether the entry is restamped unless it is evicted; None if none can be.
    leaves : ndarray of int
        The code from then on if the entry is evicted.
    stays : ndarray of int or None
        The code from then on if it is not; None if it remains the same.
    """

    slot: int
    gone: Bools | None
    right_by_row: Bools
    right_by_table: Bools
    restamped: tuple[Bools | None, ...]
    leaves: Codes
    stays: Codes | None


@dataclass(frozen=True)
class Change:
    """Entries evicted, restamped or widened on account of one message.

    ``notices`` lists (source, target, table over the target's codes), slots by position in ``parts``: evicting the
    source evicts the target where the table says so.
    """

    parts: tuple[Part, ...]
    operations: int
    notices: tuple[tuple[int, int, Bools], ...]


@dataclass(frozen=True)
class Comparison:
    """A change in the streams to whom a failed response brought a vector: ``heard`` tells, over the episode's index."""

    heard: Bools
    change: Change


@dataclass(frozen=True)
class Judgement:
    """Entries of a slot that drift makes wrong: how often by either oracle, as tables over the slot's codes."""

    slot: int
    by_row: Codes
    by_table: Codes


@dataclass(frozen=True)
class Settling:
    """How an episode closes in which the store changed.

    Parameters
    ----------
    stored : ndarray of int
        Over the episode's index: the slot's code with the new fix, -1 where there is none.
    completed : ndarray of int
        Over the slot's codes: the code once the key has completed.
    holds : ndarray of bool
        Over the slot's codes: whether there is an entry.
    """

    stored: Codes
    completed: Codes
    holds: Bools


@dataclass(frozen=True)
class Step:
    """One episode. Its index is the slot's code before the first response plus the cell of the draws.

    Parameters
    ----------
    slot : int
        -1 for a task without a constraint.
    judgements : tuple of Judgement
        On account of the drift since the episode before.
    outcome : ndarray of uint8
        Over the index: see ``decisions.ATTEMPTS`` and its likes.
    changes : tuple of Change
        At the first response, in every stream.
    comparisons : tuple of tuple of Comparison
        Per failed response.
    contradicted : tuple of (slot, ndarray of bool)
        Entries, over the slot's codes, that disagree with the server although their stamps are current.
    becomes : ndarray of int or None
        The slot's code afterwards, over the index; None if it stays, or if ``settling`` tells.
    settling : Settling or None
        Where there are changes or comparisons.
    drifted : bool
        Whether there was drift since the episode before.
    rule_events : tuple of int
        Drift events that a comparison can reveal.
    certain : int or None
        The outcome, if it is the same whatever the index is.
    """

    slot: int
    judgements: tuple[Judgement, ...]
    outcome: Bytes
    changes: tuple[Change, ...]
    comparisons: tuple[tuple[Comparison, ...], ...]
    contradicted: tuple[tuple[int, Bools], ...]
    becomes: Codes | None
    settling: Settling | None
    drifted: bool
    rule_events: tuple[int, ...]
    certain: int | None


@dataclass(frozen=True)
class Program:
    """An arm on a plan. ``alerts`` holds the episode in which every stream notices a drift event; -1 for none."""

    slots: int
    steps: tuple[Step, ...]
    closing: tuple[Judgement, ...]
    alerts: tuple[int, ...]

    @cached_property
    def certainty(self) -> Certainty:
        """Which episodes come out the same in every stream."""
        return Certainty([step.certain for step in self.steps])
