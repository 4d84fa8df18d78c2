"""The client's store as a Markov chain: states, and how an episode moves them.

A state is what the store holds at the end of an episode, reduced to what the future can still tell apart. Episodes use
fresh draws, so the chain's law is one forward pass; and an episode touches few slots, so that it is worked out once
for all states that agree on these and on the size of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from invsim.errors import InvsimError
from invsim.sim.exact.arms import Client, Conduct, Entry, Origin, Store, required, wrong_by_row
from invsim.sim.exact.cells import Cell, judged
from invsim.sim.exact.kernel import (
    ADDRESSABLE,
    ATTEMPTS,
    ENTRIES,
    OF_STEP,
    QUANTITIES,
    Fate,
    Floats,
    Indices,
    Kernel,
    Target,
    fates,
)
from invsim.sim.facts import DriftFacts, EpisodeFacts, Facts

Held = tuple[bool, tuple[Entry, ...]]
"""What is known of a slot: whether its key has completed, and its entries."""

StateKey = tuple[int, ...]
"""Per slot the number of what it holds; then rule events noticed; then entries that nothing will ask about again."""


CellsOf = Callable[[int, tuple[int, ...]], Sequence[Cell]]
"""What an episode can come to with some fixes injected."""


class StateSpaceError(InvsimError):
    """More states than the caller allows."""

    def __init__(self, states: int, limit: int, episode: int) -> None:
        self.states, self.limit, self.episode = states, limit, episode
        super().__init__(
            f"{states} states of the client are reachable in episode {episode}, more than max_states = {limit}; "
            "use --engine vector, or raise max_states"
        )


@dataclass(frozen=True)
class Step:
    """One episode of the whole chain.

    Parameters
    ----------
    episode : int
    kernels : sequence of Kernel
    kernel : ndarray of int, shape (states before,)
    source, goal : ndarray of int, shape (transitions,)
        States before and after, ordered by state before; of a state, one transition per target of its kernel.
    states : int
        States after.
    """

    episode: int
    kernels: Sequence[Kernel]
    kernel: Indices
    source: Indices
    goal: Indices
    states: int


class Chain:
    """The chain of one arm on tabulated facts.

    Parameters
    ----------
    facts : Facts
    conduct : Conduct
    cells_of : CellsOf
        The model, or several of them at once.
    max_states : int

    Notes
    -----
    A slot that does not occur again keeps only what evictions and the size of the store need; where no drift is to
    come, entries lose their origin; origins that every oracle question to come answers alike become one.
    """

    def __init__(self, facts: Facts, conduct: Conduct, cells_of: CellsOf, *, max_states: int) -> None:
        self.facts, self.conduct, self.cells_of, self.max_states = facts, conduct, cells_of, max_states
        self.reached = 1
        self.held: list[Held] = [(False, ())]
        self._number: dict[Held, int] = {self.held[0]: 0}
        self._states: list[StateKey] = [(0,) * (len(facts.slots) + 2)]
        self._size = [0]
        self._fates: dict[tuple[object, ...], tuple[Fate, ...]] = {}
        self._kernels: dict[tuple[object, ...], Kernel] = {}
        # Facts cut down to some episodes may leave slots that none of them asks for.
        self._last = dict.fromkeys(range(len(facts.slots)), -1)
        self._last |= {episode.slot: at for at, episode in enumerate(facts.episodes)}
        self._rules_drifted: list[int] = []
        self._unnoticed: set[int] = set()
        self._phase = 0
        self._future: list[DriftFacts] = []
        self._forgotten: dict[tuple[int, int, Entry], Entry] = {}
        self._alike: dict[tuple[object, ...], Origin] = {}

    def final(self) -> list[tuple[int, int]]:
        """Return, per state at the end, the evictions that drift after the last episode requires (row, table)."""
        found = []
        for state in self._states:
            pairs = [
                required(self.held[number][1], at, self.facts.slots[at].table, self.facts.closing)
                for at, number in enumerate(state[:-2])
            ]
            found.append((sum(each[0] for each in pairs), sum(each[1] for each in pairs)))
        return found

    def steps(self) -> Iterator[Step]:
        """Play the episodes in order."""
        for at, episode in enumerate(self.facts.episodes):
            if episode.drift:
                self._phase += 1
            self._look_ahead(at)
            yield self._step(at, episode)

    def _look_ahead(self, at: int) -> None:
        later = [event for episode in self.facts.episodes[at + 1 :] for event in episode.drift]
        self._future = [*later, *self.facts.closing]

    def _step(self, at: int, episode: EpisodeFacts) -> Step:
        certain = self._noticed_for_certain(episode)
        touched = self._touched(episode)
        alive = tuple([self._last[slot] > at for slot in touched])
        asked = self._phase, bool(episode.drift), id(episode.first), episode.first_occurrence, touched, alive
        client = Client(self.conduct, self.facts.slots, episode)
        size = self._size
        kernels: list[Kernel] = []
        place: dict[tuple[object, ...], int] = {}
        index: dict[StateKey, int] = {}
        kernel, source, goal = [], [], []
        for number, state in enumerate(self._states):
            local = tuple([state[slot] for slot in touched])
            outside = state[-1] + sum([size[each] for each in state[:-2]]) - sum([size[each] for each in local])
            which = place.get((local, state[-2], outside))
            if which is None:
                which = place[local, state[-2], outside] = len(kernels)
                key = (*asked, local, state[-2])
                if key not in self._kernels:
                    self._kernels[key] = self._played(at, client, touched, local, state[-2], certain)
                if (*key, outside) not in self._kernels:
                    self._kernels[*key, outside] = self._kernels[key].beside(outside)
                kernels.append(self._kernels[*key, outside])
            kernel.append(which)
            for held, noticed, aside in kernels[which].targets:
                following = list(state)
                for slot, each in zip(touched, held, strict=True):
                    following[slot] = each
                following[-2], following[-1] = noticed, state[-1] + aside
                source.append(number)
                goal.append(index.setdefault(tuple(following), len(index)))
            if len(index) > self.max_states:
                raise StateSpaceError(len(index), self.max_states, at)
        self._states = list(index)
        self.reached = max(self.reached, len(index))
        return Step(
            at, kernels, np.array(kernel, np.intp), np.array(source, np.intp), np.array(goal, np.intp), len(index)
        )

    # Which slots an episode touches, and which drift it tells of --------------------------------------------------

    def _touched(self, episode: EpisodeFacts) -> tuple[int, ...]:
        """Return the slots that decide, or are changed by, what happens in an episode."""
        if episode.drift:
            return tuple(range(len(self.facts.slots)))
        touched = {episode.slot} - {-1}
        if self.conduct.compares and self._rules_drifted:
            recoveries = [each for first in episode.first.values() for each in first.recoveries]
            heard = frozenset[str]().union(*(each.heard for each in recoveries))
            touched |= {at for at, slot in enumerate(self.facts.slots) if slot.slot.family in heard}
        return tuple(sorted(touched))

    def _noticed_for_certain(self, episode: EpisodeFacts) -> tuple[int, ...]:
        """Return the drift events that every stream notices in this episode; keep those yet to be noticed."""
        # What drifted before the first response is nothing that a client could notice.
        for event in episode.drift if episode is not self.facts.episodes[0] else ():
            self._unnoticed.add(event.index)
            if event.reloaded is None:
                self._rules_drifted.append(event.index)
        subjects = {f"table {table}" for table in episode.moved} if self.conduct.tables else set()
        by_stamp = self.conduct.rules in {"stamp", "alert"} and episode.fingerprint_moved
        if by_stamp or (self.conduct.rules == "oracle" and episode.rule_changes):
            subjects.add("rules")
        found = tuple(sorted(at for at in self._unnoticed if self.facts.plan.drift[at].subject in subjects))
        self._unnoticed -= set(found)
        return found

    # One episode from one state -----------------------------------------------------------------------------------

    def _played(
        self,
        at: int,
        client: Client,
        touched: tuple[int, ...],
        local: tuple[int, ...],
        noticed: int,
        certain: tuple[int, ...],
    ) -> Kernel:
        """Return the kernel from the states in which the touched slots hold ``local`` and nothing else is stored."""
        episode, slot, slots = client.episode, client.episode.slot, self.facts.slots
        store: Store = {each: self.held[number][1] for each, number in zip(touched, local, strict=True)}
        completed = {each: self.held[number][0] for each, number in zip(touched, local, strict=True)}
        size = sum(map(len, store.values()))
        asked = [required(entries, each, slots[each].table, episode.drift) for each, entries in store.items()]
        wanted = sum(row for row, _ in asked), sum(table for _, table in asked)
        known = slot >= 0 and completed[slot]
        plays = {}
        found: dict[Target, list[tuple[Floats, Floats]]] = {}
        for fate in self._fates_of(at, tuple([entry.fix for entry in store[slot]]) if slot >= 0 else ()):
            if fate.heard not in plays:
                plays[fate.heard] = client.play(store, fate.heard)
            after, tally = plays[fate.heard]
            told, now_noticed = certain, noticed
            if tally.compared and self.conduct.rules == "lazy":
                told, now_noticed = (*certain, *self._rules_drifted[noticed:]), len(self._rules_drifted)
            amounts = fate.quantities.copy()
            attempts = amounts[:, ATTEMPTS]
            sizes = tally.sizes
            # Every attempt carries the store as the response before left it.
            amounts[:, ENTRIES] = size + (
                sum(sizes[: int(attempts[0]) - 1]) if fate.heard else (attempts - 1) * sizes[0]
            )
            amounts[:, ADDRESSABLE] = known
            amounts[:, OF_STEP] = (
                tally.evicted, tally.restamped, tally.operations, tally.right_by_row, tally.right_by_table, *wanted,
                tally.failures,
            )  # fmt: skip
            amounts[:, [len(QUANTITIES) + each for each in told]] = 1.0
            done = completed
            if fate.completed and slot >= 0:
                done = {**completed, slot: True}
                if fate.committed >= 0:
                    after = {**after, slot: client.commit(after[slot], slot, fate.committed)}
            held, aside = self._reduced(at, episode.vectors, after, done)
            found.setdefault((held, now_noticed, aside), []).append((fate.probabilities, amounts))
        parts = [each for group in found.values() for each in group]
        lengths = [sum(len(each) for each, _ in group) for group in found.values()]
        return Kernel(
            list(found),
            np.cumsum([0, *lengths[:-1]]),
            np.concatenate([each for each, _ in parts]),
            np.concatenate([each for _, each in parts]),
        )

    def _fates_of(self, at: int, fixes: tuple[int, ...]) -> tuple[Fate, ...]:
        """Return the outcomes of an episode, grouped by what they do to the store."""
        episode = self.facts.episodes[at]
        hears = self.conduct.compares and bool(self._rules_drifted)
        asked = id(episode.first), episode.first_occurrence, hears, fixes
        if asked not in self._fates:
            found = self.cells_of(at, fixes)
            self._fates[asked] = fates(found, judged(episode, fixes), hears=hears, events=len(self.facts.plan.drift))
        return self._fates[asked]

    # Forgetting what no longer matters ----------------------------------------------------------------------------

    def _reduced(
        self, at: int, vectors: Mapping[str, tuple[str, ...]] | None, store: Store, completed: dict[int, bool]
    ) -> tuple[tuple[int, ...], int]:
        """Return what the slots hold as far as it matters, and how many entries are set aside."""
        held, aside = [], 0
        for slot, entries in store.items():
            alive = self._last[slot] > at
            kept = tuple([self._without_past(slot, entry, vectors) for entry in entries])
            if not alive:
                aside += sum(entry.origin is None for entry in kept)
                kept = tuple(
                    sorted(
                        (entry._replace(fix=0) for entry in kept if entry.origin is not None),
                        key=lambda entry: (sorted(entry.depends), str(entry.origin)),
                    )
                )
            held.append(self._numbered((alive and completed[slot], kept)))
        return tuple(held), aside

    def _without_past(self, slot: int, entry: Entry, vectors: Mapping[str, tuple[str, ...]] | None) -> Entry:
        """Return an entry with an origin that stands for all that answer the oracles alike, from now on."""
        asked = self._phase, slot, entry
        if asked not in self._forgotten:
            self._forgotten[asked] = self._forget(slot, entry, vectors)
        return self._forgotten[asked]

    def _forget(self, slot: int, entry: Entry, vectors: Mapping[str, tuple[str, ...]] | None) -> Entry:
        if entry.origin is None:
            return entry
        if self._future:
            row, version, _ = entry.origin
            states = [self._future[0].before, *(event.after for event in self._future)]
            answers = [
                (wrong_by_row(entry, slot, each), row == each.rows[slot], version == each.versions[slot])
                for each in states
            ]
            alike = self._phase, slot, tuple(answers)
            return entry._replace(origin=self._alike.setdefault(alike, entry.origin))
        current = vectors is None or entry.depends == frozenset(vectors[self.facts.slots[slot].table])
        return entry._replace(origin=None) if current or not self.conduct.compares else entry

    def _numbered(self, held: Held) -> int:
        number = self._number.get(held)
        if number is None:
            number = self._number[held] = len(self.held)
            self.held.append(held)
            self._size.append(len(held[1]))
        return number
