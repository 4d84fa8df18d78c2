"""The plan as facts about the server alone, for the engines that do not talk to it.

Drift that is scripted between episodes passes the same worlds in every stream, so whatever the server would answer can
be asked beforehand: which fixes work in which episode, what a failed episode is told, what moved since the episode
before. Nothing here knows an arm or a compliance model; the engines that read it bring their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from invsim.client.agent import carries
from invsim.client.memory import Slot
from invsim.errors import InvsimError
from invsim.sim.plan import DriftEvent, Plan, Task
from invsim.sim.scenario import MAX_ATTEMPTS
from invsim.world.drift import after
from invsim.world.server import ReloadReport, RuleChange, World
from invsim.world.wire import Level, Parameters, Request, Response, Suggestion

SOLVED, PLAIN = -2, -1
"""First requests that apply no fix: the right answer worked out, and the task as it stands."""

TABULATED = 32
"""Plans whose facts are kept: a plan never changes, and a study asks of the same one again and again."""

NEVER = MAX_ATTEMPTS + 1
"""The attempt at which a planner that never recovers would."""


class NotTabularError(InvsimError):
    """A plan that only the event engine can run."""


@dataclass(frozen=True)
class SlotFacts:
    """A slot of the memory, and every fix that can come to stand in it.

    Parameters
    ----------
    slot : Slot
    table : str
        Table its fixes are read from.
    values : tuple of str
        Canonical texts of the fixes that the server can suggest for it, in order of appearance; a fix is referred to
        by its index here.
    """

    slot: Slot
    table: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Recovery:
    """How an episode whose first try failed goes on, if its planner first complies at a given attempt.

    Parameters
    ----------
    attempts : int
        Attempts made in all, 2..5.
    completed : bool
    committed : int
        Fix that is stored on completion; -1 for none.
    failures : tuple of frozenset of str
        Per failed response, the first try's first: the families of its suggestions.
    """

    attempts: int
    completed: bool
    committed: int
    failures: tuple[frozenset[str], ...]

    @property
    def heard(self) -> frozenset[str]:
        """Families whose suggestions came with a failed response, the first try's included."""
        return frozenset().union(*self.failures)


@dataclass(frozen=True)
class FirstRequest:
    """What the server says to one possible first request: whether it passes, and whether its own policy is satisfied.

    ``recoveries[k]`` is what follows when the planner complies from attempt ``k + 2`` on, k = 0..3; ``recoveries[4]``
    when it never does. Empty when the request passes.
    """

    ok: bool
    right: bool
    recoveries: tuple[Recovery, ...]


@dataclass(frozen=True)
class Moved:
    """A table whose version is not the one that the episode before ended with.

    Parameters
    ----------
    keys : frozenset of str
        Rows in the server's last diff of the table.
    chained : bool
        Whether that diff starts at the version the episode before ended with. If not, what lies between is unknown.
    downstream : frozenset of str
        Nodes ("table:key") that the last reload reported as affected.
    """

    keys: frozenset[str]
    chained: bool
    downstream: frozenset[str]


@dataclass(frozen=True)
class State:
    """What the oracles compare: per slot, the identity of its row, its table's version, and its table's vector."""

    rows: tuple[int, ...]
    versions: tuple[str, ...]
    vectors: tuple[frozenset[str], ...]


@dataclass(frozen=True)
class DriftFacts:
    """One drift event: the states around it, and the table it reloaded (None for a rule change)."""

    index: int
    before: State
    after: State
    reloaded: str | None


@dataclass(frozen=True)
class EpisodeFacts:
    """One episode.

    Parameters
    ----------
    constraint : int
        Index into ``plan.classes``.
    slot : int
        Index into ``Facts.slots``; -1 for a task without a constraint.
    first_occurrence : bool
    works : tuple of bool
        Per fix of the slot, whether it satisfies the slot's own policy in this episode.
    first : mapping
        By first request: ``SOLVED``, ``PLAIN``, or the index of a fix.
    drift : tuple of DriftFacts
        Events since the episode before, in order.
    moved : mapping of table to Moved
        Empty below L1 and in the first episode: a client has nothing to compare with.
    fingerprint_moved : bool
        Whether the rules stamp differs from the episode before; False below L6 and in the first episode.
    rule_changes : tuple of RuleChange
        Declarations since the episode before.
    vectors : mapping of table to tuple of str, or None
        Dependency vector of a suggestion read from each table; None below L4.
    state : State
    """

    constraint: int
    slot: int
    first_occurrence: bool
    works: tuple[bool, ...]
    first: Mapping[int, FirstRequest]
    drift: tuple[DriftFacts, ...]
    moved: Mapping[str, Moved]
    fingerprint_moved: bool
    rule_changes: tuple[RuleChange, ...]
    vectors: Mapping[str, tuple[str, ...]] | None
    state: State


@dataclass(frozen=True)
class Facts:
    """A plan, tabulated.

    Parameters
    ----------
    plan : Plan
    slots : tuple of SlotFacts
    episodes : tuple of EpisodeFacts
    closing : tuple of DriftFacts
        Events after the last episode, in order. No client meets them, but the oracles count what they make wrong.
    """

    plan: Plan
    slots: tuple[SlotFacts, ...]
    episodes: tuple[EpisodeFacts, ...]
    closing: tuple[DriftFacts, ...]

    @property
    def before_contact(self) -> int:
        """Drift events before the first response, which no client can notice."""
        return len(self.episodes[0].drift)


@lru_cache(maxsize=TABULATED)
def tabulate(plan: Plan) -> Facts:
    """Ask the plan's server everything that its streams can ask.

    Raises
    ------
    NotTabularError
        When a drift event falls between the attempts of an episode, where how far a stream has come matters.
    """
    for event in plan.drift:
        into = event.tick % plan.episode_ticks
        inside = 0 < into < MAX_ATTEMPTS and event.tick < plan.episode_ticks * len(plan.episodes)
        if inside:
            what = f"the drift event at tick {event.tick} falls between the attempts of episode {event.after_episode}"
            raise NotTabularError(f"{what}; only --engine simpy can run that, and nothing exact can be said of it")
    return _Tabulator(plan).facts()


class _Tabulator:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.index: dict[Slot, int] = {}
        self.values: list[dict[str, int]] = []
        self.tables: list[str] = []
        for task in plan.episodes:
            if task.slot is not None and task.slot not in self.index:
                self.index[task.slot] = len(self.values)
                self.values.append({})
                self.tables.append(plan.domain.family(task.slot.family).table or "")
        self.parameters: list[list[Parameters]] = [[] for _ in self.values]
        self.rows: list[list[object]] = [[] for _ in self.values]
        self.answers: dict[tuple[World, Task, int], dict[int, FirstRequest]] = {}

    def facts(self) -> Facts:
        plan = self.plan
        worlds, closing = _worlds(plan)
        pending = [(worlds[at][0], task) for at, task in enumerate(plan.episodes) if task.slot is not None]
        # A fix that is told in one episode can, once stale, bring out another: go on until nothing new is told.
        known = -1
        while known != sum(map(len, self.values)):
            known = sum(map(len, self.values))
            for world, task in pending:
                self._first(world, task)
        episodes = tuple(self._episode(at, task, worlds) for at, task in enumerate(plan.episodes))
        slots = tuple(SlotFacts(slot, self.tables[at], tuple(self.values[at])) for slot, at in self.index.items())
        return Facts(plan, slots, episodes, tuple(self._drift(step) for step in closing))

    # Answers ----------------------------------------------------------------------------------------------------

    def _first(self, world: World, task: Task) -> dict[int, FirstRequest]:
        at = self.index.get(task.slot, -1) if task.slot is not None else -1
        fixes = list(self.parameters[at]) if at >= 0 else []
        asked = (world, task, len(fixes))
        if asked not in self.answers:
            requests = {SOLVED: task.solved(world) or task.request, PLAIN: task.request}
            requests |= {number: task.request.merged(parameters) for number, parameters in enumerate(fixes)}
            self.answers[asked] = {
                number: self._answers(world, task, at, request) for number, request in requests.items()
            }
        return self.answers[asked]

    def _answers(self, world: World, task: Task, slot: int, request: Request) -> FirstRequest:
        response = world.evaluate(request)
        right = task.slot is not None and world.heeds(request, task.slot.family)
        if response.ok:
            return FirstRequest(True, right, ())
        # A fix that is right stays in the request while the rest of it is mended.
        kept = request if right else task.request
        recoveries = (self._recovery(world, task, slot, kept, response, complies) for complies in range(2, NEVER + 1))
        return FirstRequest(False, right, tuple(recoveries))

    def _recovery(
        self, world: World, task: Task, slot: int, kept: Request, response: Response, complies: int
    ) -> Recovery:
        told: list[Suggestion] = []
        failures = [_families(response)]
        for attempt in range(2, MAX_ATTEMPTS + 1):
            told += response.suggestions
            request = _retry(world, task, kept, told) if attempt >= complies else task.request
            response = world.evaluate(request)
            if response.ok:
                return Recovery(attempt, True, self._stored(slot, told, request), tuple(failures))
            failures.append(_families(response))
        return Recovery(MAX_ATTEMPTS, False, -1, tuple(failures))

    def _stored(self, slot: int, told: Sequence[Suggestion], request: Request) -> int:
        """Return the number of the last suggestion of the slot's own family that may be kept; -1 if there is none."""
        if slot < 0:
            return -1
        family = next(key.family for key, at in self.index.items() if at == slot)
        mine = [each for each in told if each.type == family and carries(request, each)]
        if not mine or not mine[-1].cacheable or mine[-1].table is None:
            return -1
        value = mine[-1].value
        if value not in self.values[slot]:
            self.values[slot][value] = len(self.parameters[slot])
            self.parameters[slot].append(mine[-1].parameters)
        return self.values[slot][value]

    # Episodes ---------------------------------------------------------------------------------------------------

    def _episode(self, at: int, task: Task, worlds: Sequence[tuple[World, tuple[_Step, ...]]]) -> EpisodeFacts:
        plan = self.plan
        world, steps = worlds[at]
        seen = worlds[at - 1][0] if at else None
        first = self._first(world, task)
        slot = self.index[task.slot] if task.slot is not None else -1
        level = plan.world.level
        reloads = {step.report.diff.table: step.report for step in steps if isinstance(step.report, ReloadReport)}
        moved = {}
        if seen is not None and level >= Level.L1:
            moved = {
                table: Moved(
                    frozenset(report.diff.keys),
                    report.diff.old_version == seen.versions[table],
                    frozenset(report.affected_downstream),
                )
                for table, report in reloads.items()
                if world.versions[table] != seen.versions[table]
            }
            moved = {table: moved[table] for table in world.versions if table in moved}
        return EpisodeFacts(
            constraint=plan.classes.index(task.constraint),
            slot=slot,
            first_occurrence=plan.first_occurrence[at],
            works=tuple(first[number].right for number in range(len(self.parameters[slot]))) if slot >= 0 else (),
            first=first,
            drift=tuple(self._drift(step) for step in steps),
            moved=moved,
            fingerprint_moved=(seen is not None and level >= Level.L6 and world.rules_version != seen.rules_version),
            rule_changes=tuple(step.report for step in steps if isinstance(step.report, RuleChange)),
            vectors={table: world.vector(table) for table in world.tables} if level >= Level.L4 else None,
            state=self._state(world),
        )

    def _drift(self, step: _Step) -> DriftFacts:
        return DriftFacts(step.index, self._state(step.before), self._state(step.after), _reloaded(step.report))

    def _state(self, world: World) -> State:
        rows = []
        for slot, at in self.index.items():
            table = world.tables.get(self.tables[at])  # none where the fix is computed from the request
            row = table.rows.get(slot.key) if table else None
            if row not in self.rows[at]:
                self.rows[at].append(row)
            rows.append(self.rows[at].index(row))
        return State(
            tuple(rows),
            tuple(world.versions.get(table, "") for table in self.tables),
            tuple(frozenset(world.vector(table)) for table in self.tables),
        )


@dataclass(frozen=True)
class _Step:
    index: int
    before: World
    after: World
    report: ReloadReport | RuleChange


def _worlds(plan: Plan) -> tuple[list[tuple[World, tuple[_Step, ...]]], list[_Step]]:
    """Return, per episode, the world it meets and the drift since the episode before; and the drift after the last."""
    world, steps = plan.world, []
    for index, event in enumerate(plan.drift):
        following, report = _applied(world, event)
        steps.append(_Step(index, world, following, report))
        world = following
    found, world = [], plan.world
    for at in range(len(plan.episodes)):
        due = [step for step in steps if plan.drift[step.index].tick <= at * plan.episode_ticks]
        steps = steps[len(due) :]
        world = due[-1].after if due else world
        found.append((world, tuple(due)))
    return found, steps


def _applied(world: World, event: DriftEvent) -> tuple[World, ReloadReport | RuleChange]:
    return after(world, event.operation)


def _families(response: Response) -> frozenset[str]:
    return frozenset(suggestion.type for suggestion in response.suggestions)


def _reloaded(report: ReloadReport | RuleChange) -> str | None:
    return report.diff.table if isinstance(report, ReloadReport) else None


def _retry(world: World, task: Task, kept: Request, told: Sequence[Suggestion]) -> Request:
    """Return what is kept of the first request with all it was told; a plain-text error leaves working it out."""
    if not told:
        return task.solved(world) or task.request
    request = kept
    latest = {suggestion.value: suggestion.parameters for suggestion in told}
    order = {suggestion.value: at for at, suggestion in enumerate(told)}
    for value in sorted(latest, key=lambda each: order[each]):
        request = request.merged(latest[value])
    return request
