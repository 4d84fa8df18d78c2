"""The SimPy engine: one environment a stream, an agent process and a drift process on a real server.

SimPy's clock counts half ticks: attempts and episode starts fall on even ones, drift on odd ones, so that an event at a
tick comes before the attempts of that tick whatever the order of scheduling.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator
from typing import NamedTuple, TypeAlias

import numpy as np
import simpy

from invsim.client.agent import Agent
from invsim.client.arms import Arm
from invsim.client.memory import Entry, Slot, Step
from invsim.client.planners.base import Action, ComplianceModel, Injected, NoCall, Situation
from invsim.errors import InputError, PlannerError
from invsim.rng import PURPOSES, uniforms
from invsim.sim import events
from invsim.sim.exchange import Exchange, Watcher
from invsim.sim.plan import DriftEvent, Plan, Task
from invsim.sim.result import PER_EPISODE, PER_STREAM, Block
from invsim.sim.scenario import MAX_ATTEMPTS
from invsim.world.drift import play
from invsim.world.server import ReloadReport, Server, World
from invsim.world.tables import Row
from invsim.world.wire import Parameters, Request, Response, Suggestion

HALF_TICKS = 2

# Looked up once: a member of an enumeration costs as much as a decision.
IGNORE, APPLY, APPLY_STALE, SOLVE = Action
NOTHING, VALID, CONFLICT, STALE = Injected

Process = Generator[simpy.Event, None, None]

Connect: TypeAlias = Callable[[World], Server]
"""Opens the server of one stream, at the world it starts from: the one in this process, or one at the end of a wire."""

Pace: TypeAlias = Callable[[], int]
"""Ticks that the planner's last decision took; the server's clock runs on meanwhile."""


class _Judged(NamedTuple):
    """What an injected set is worth, and its newest fix that is right and that is wrong.

    A fix is right when the policy it is about is satisfied with it, whatever else the request may break.
    """

    injected: Injected
    right: Entry | None
    wrong: Entry | None


NOTHING_INJECTED = _Judged(NOTHING, None, None)


class _Origin(NamedTuple):
    """The state of the server in which an entry was stored: what the oracles judge it by."""

    row: Row | None
    version: str
    vector: tuple[str, ...]


class _Stream:
    """One stream under way: server, agent, and the counts so far."""

    def __init__(
        self, plan: Plan, arm: Arm, model: ComplianceModel, draws: list[float], connect: Connect = Server
    ) -> None:
        self.plan, self.arm, self.model, self.draws = plan, arm, model, draws
        self.server = connect(plan.world)
        self.agent = Agent(arm, self.server)
        self.env = simpy.Environment()
        self.log: events.EventLog | None = None
        self.number = 0
        self.watch: Watcher | None = None
        self.pace: Pace | None = None
        self.rows: list[int] = []
        self.alerts = [-1] * len(plan.drift)
        self.origins: dict[tuple[Slot, str], _Origin] = {}
        self.restamp_operations = 0
        self.right_by_row = self.right_by_table = 0
        self.required_by_row = self.required_by_table = 0
        self.contract_failures = 0
        self.episode = 0
        self._evicted = self._restamped = 0
        self._drifted = 0
        self._before_contact = 0
        self._unsquared = False

    def run(self) -> None:
        """Play the stream to its end."""
        if self.plan.drift:
            self.env.process(self.drift())
        self.env.process(self.episodes())
        self.env.run()

    # The two processes ------------------------------------------------------------------------------------------

    def drift(self) -> Process:
        """Play each drift event at its tick."""
        for event in self.plan.drift:
            delay = HALF_TICKS * event.tick - 1 - self.env.now
            if delay > 0:  # events at one tick follow each other at once, and those at tick 0 precede all else
                yield self.env.timeout(delay)
            self._apply(event)

    def episodes(self) -> Process:
        """Work through the tasks."""
        plan, model, agent, server, env, draws = (
            self.plan, self.model, self.agent, self.server, self.env, self.draws
        )  # fmt: skip
        decide, handle, receive, timeout = model.decide, server.handle, agent.receive, env.timeout
        put, log, watch, pace = self.rows.extend, self.log, self.watch, self.pace
        period = HALF_TICKS * plan.episode_ticks
        completed_before: set[Slot | None] = set()
        for episode, task in enumerate(plan.episodes):
            yield timeout(max(episode * period - env.now, 0))  # a slow planner may be late for it
            self.episode = episode
            self._evicted = self._restamped = 0
            slot = task.slot
            entries = agent.recall(slot) if slot is not None else ()
            judged = _judge(task, entries, server.world) if entries else NOTHING_INJECTED
            injected = judged.injected
            if log is not None:
                log.append(self._started(task, injected, entries))
            situation = Situation(
                episode, task.constraint, task.shape, injected, 1, plan.first_occurrence[episode],
                task.request, entries, None,
            )  # fmt: skip
            action = decide(situation, draws[PURPOSES * episode])
            if pace is not None:
                yield timeout(HALF_TICKS * pace())
            request = task.request if action is IGNORE else self._first_request(task, action, judged)
            block = agent.memory.size
            valid = () if watch is None else self._valid(task, entries)
            response = unheard(request) if isinstance(request, NoCall) else handle(request)
            if log is not None:
                log.append(self._attempted(1, action, request, response))
            if watch is not None:
                self._tell(1, task, injected, entries, valid, action, request, response)
            step = None if isinstance(request, NoCall) else receive(response)
            if episode == 0:  # what drifted before the first response is nothing that a client could notice
                self._before_contact = self._drifted
            if step is not None or self._unsquared:
                self._account(step)
            attempts = 1
            if not response.ok:
                patch: dict[str, Parameters] = {}
                if action is APPLY and judged.right is not None:
                    patch[judged.right.value] = judged.right.parameters
                told: list[Suggestion] = []
                while attempts < MAX_ATTEMPTS:
                    yield timeout(HALF_TICKS)
                    attempts += 1
                    situation.attempt, situation.response = attempts, response
                    told += response.suggestions
                    for suggestion in response.suggestions:
                        patch.pop(suggestion.value, None)
                        patch[suggestion.value] = suggestion.parameters
                    action = decide(situation, draws[PURPOSES * episode + 1])
                    if pace is not None:
                        yield timeout(HALF_TICKS * pace())
                    request = self._retry_request(task, action, patch)
                    block += agent.memory.size
                    response = unheard(request) if isinstance(request, NoCall) else handle(request)
                    if log is not None:
                        log.append(self._attempted(attempts, action, request, response))
                    if watch is not None:
                        self._tell(attempts, task, injected, entries, valid, action, request, response)
                    step = None if isinstance(request, NoCall) else receive(response)
                    if step is not None or self._unsquared:
                        self._account(step)
                    if response.ok and slot is not None and not isinstance(request, NoCall):
                        self._commit(slot, told, request)
                    if response.ok:
                        break
            put((
                attempts, response.ok, injected, slot in completed_before if slot is not None else 0,
                self._evicted, self._restamped, block,
            ))  # fmt: skip
            if response.ok:
                completed_before.add(slot)
            if log is not None:
                log.append(events.EpisodeEnded(self.tick, episode, attempts, response.ok))

    # Requests ---------------------------------------------------------------------------------------------------

    def _first_request(self, task: Task, action: Action | Request | NoCall, judged: _Judged) -> Request | NoCall:
        if action is SOLVE:
            return task.solved(self.server.world) or task.request
        entry = judged.right if action is APPLY else judged.wrong if action is APPLY_STALE else None
        if entry is not None:
            return task.with_fix(entry)
        if isinstance(action, Request | NoCall):
            return action
        if not isinstance(action, Action):
            raise self._unusable(action)
        kind = "valid" if action is APPLY else "stale"
        what = f"model {self.model.name!r} answered {action.name} in episode {self.episode}"
        raise PlannerError(f"{what}, where no {kind} fix is injected ({judged.injected.name})")

    def _retry_request(
        self, task: Task, action: Action | Request | NoCall, patch: dict[str, Parameters]
    ) -> Request | NoCall:
        if action is APPLY and patch:
            return task.with_patch(patch)
        if action is SOLVE or action is APPLY:  # a plain-text error leaves working it out
            return task.solved(self.server.world) or task.request
        if action is IGNORE:
            return task.request
        if isinstance(action, Request | NoCall):
            return action
        raise self._unusable(action)

    def _unusable(self, action: object) -> PlannerError:
        what = f"model {self.model.name!r} answered {action!r} in episode {self.episode}"
        return PlannerError(
            f"{what}; an answer is an Action, a Request or a NoCall, and APPLY_STALE is for first tries"
        )

    # What a message did, and whether it was right -----------------------------------------------------------------

    def _account(self, step: Step | None) -> None:
        """Count what a response did to the store, and check the store against the server."""
        if step is not None:
            self._count(step)
        self._unsquared = False
        for entry in self.agent.memory:
            self._check_version(entry)

    def _count(self, step: Step) -> None:
        self._evicted += len(step.evicted)
        self._restamped += sum(map(len, step.restamps))
        self.restamp_operations += len(step.restamps)
        for entry in step.evicted:
            self.right_by_row += self._wrong_by_row(entry, self.server.world)
            self.right_by_table += self._wrong_by_table(entry, self.server.world)
        for subject in step.alerts:
            for at in range(self._before_contact, self._drifted):
                if self.alerts[at] < 0 and self.plan.drift[at].subject == subject:
                    self.alerts[at] = self.episode
        if self.log is not None:
            tick, episode = self.tick, self.episode
            self.log += [events.Noticed(tick, episode, subject) for subject in step.alerts]
            if step.evicted:
                self.log.append(events.Evicted(tick, episode, events.names(step.evicted)))
            self.log += [events.Restamped(tick, episode, events.names(each)) for each in step.restamps]

    def _commit(self, slot: Slot, told: list[Suggestion], request: Request) -> None:
        entry = self.agent.commit(slot, told, request)
        if entry is None:
            return
        world = self.server.world
        self.origins[slot, entry.value] = _Origin(
            world.tables[entry.table].rows.get(slot.key),
            world.versions[entry.table],
            world.vector(entry.table),
        )
        self._check_version(entry)
        if self.log is not None:
            (name,) = events.names([entry])
            self.log.append(events.Committed(self.tick, self.episode, name, dict(entry.stamps)))

    def _apply(self, event: DriftEvent) -> None:
        before = self.server.world
        report = play(self.server, event.operation)
        world = self.server.world
        self._drifted += 1
        self._unsquared = True
        reloaded = report.diff.table if isinstance(report, ReloadReport) else None
        for entry in self.agent.memory:
            newly = self._wrong_by_row(entry, world) and not self._wrong_by_row(entry, before)
            self.required_by_row += newly
            self.required_by_table += newly or entry.table == reloaded
        if self.log is not None:
            self.log.append(events.drift_applied(event.tick, event.subject, report))

    def _wrong_by_row(self, entry: Entry, world: World) -> bool:
        """Row oracle: the entry's row is not what it was, or its derivation has lost a table."""
        origin = self.origins[entry.slot, entry.value]
        if world.tables[entry.table].rows.get(entry.slot.key) != origin.row:
            return True
        return not set(origin.vector) <= set(world.vector(entry.table))

    def _wrong_by_table(self, entry: Entry, world: World) -> bool:
        """Cleared-table oracle: any new version of its table warrants clearing the entry."""
        moved = world.versions[entry.table] != self.origins[entry.slot, entry.value].version
        return moved or self._wrong_by_row(entry, world)

    def _check_version(self, entry: Entry) -> None:
        """Count an entry that is kept as current although the server's state contradicts it."""
        if not self.arm.checks_versions:
            return
        world = self.server.world
        for table, version in entry.stamps.items():
            if world.versions[table] != version:
                self.contract_failures += 1
                return
        if world.tables[entry.table].rows.get(entry.slot.key) != self.origins[entry.slot, entry.value].row:
            self.contract_failures += 1

    # The log ------------------------------------------------------------------------------------------------------

    @property
    def tick(self) -> int:
        return int(self.env.now) // HALF_TICKS

    def _started(self, task: Task, injected: Injected, entries: tuple[Entry, ...]) -> events.EpisodeStarted:
        return events.EpisodeStarted(
            tick=self.tick,
            episode=self.episode,
            constraint=task.constraint,
            key=task.slot.key if task.slot else None,
            injected=injected.name.lower(),
            entries=[entry.value for entry in entries],
            store=len(self.agent.memory),
        )

    def _tell(
        self,
        attempt: int,
        task: Task,
        injected: Injected,
        entries: tuple[Entry, ...],
        valid: tuple[bool, ...],
        action: Action | Request | NoCall,
        request: Request | NoCall,
        response: Response,
    ) -> None:
        sent = None if isinstance(request, NoCall) else request
        last = response.ok or attempt == MAX_ATTEMPTS
        if self.watch is not None:
            self.watch(
                Exchange(
                    self.number, self.episode, attempt, self.tick, task, injected, entries, valid, action, sent,
                    response, last,
                )
            )  # fmt: skip

    def _valid(self, task: Task, entries: tuple[Entry, ...]) -> tuple[bool, ...]:
        """Return of each entry whether it is right as the server stands."""
        return tuple(self.server.world.heeds(task.with_fix(entry), entry.slot.family) for entry in entries)

    def _attempted(
        self, attempt: int, action: Action | Request | NoCall, request: Request | NoCall, response: Response
    ) -> events.Attempted:
        return events.Attempted(
            tick=self.tick,
            episode=self.episode,
            attempt=attempt,
            action=action.name.lower() if isinstance(action, Action) else type(action).__name__.lower(),
            request=dict(request.fields) if isinstance(request, Request) else {},
            ok=response.ok,
            suggested=[suggestion.value for suggestion in response.suggestions],
        )

    @property
    def counts(self) -> tuple[int, ...]:
        """The stream's row in ``Block.streams``, in the order of ``PER_STREAM``."""
        return (
            self.restamp_operations,
            self.right_by_row,
            self.right_by_table,
            self.required_by_row,
            self.required_by_table,
            self.contract_failures,
        )


def unheard(answer: NoCall) -> Response:
    """Return what a client tells itself of an answer that it could not send."""
    return Response(ok=False, error=answer.reason)


def _judge(task: Task, entries: tuple[Entry, ...], world: World) -> _Judged:
    right = wrong = None
    for entry in entries:
        if world.heeds(task.with_fix(entry), entry.slot.family):
            right = entry
        else:
            wrong = entry
    return _Judged(VALID if wrong is None else STALE if right is None else CONFLICT, right, wrong)


def simulate_block(
    plan: Plan,
    *,
    arm: Arm,
    model: ComplianceModel,
    seed: int,
    first: int,
    count: int,
    connect: Connect = Server,
    watch: Watcher | None = None,
    pace: Pace | None = None,
) -> Block:
    """Simulate ``count`` streams from stream ``first`` on.

    Parameters
    ----------
    plan : Plan
    arm : Arm
    model : ComplianceModel
    seed : int
        Root of the keyed draws; the same stream of the same seed meets the same draws in every arm.
    first, count : int
    connect : callable, optional
        Opens the server that each stream meets.
    watch : callable, optional
        Told of every attempt as soon as it is answered.
    pace : callable, optional
        Lets a decision take time: drift may come between it and the answer to it. By default it takes none.

    Returns
    -------
    Block
    """
    draws = uniforms(seed, first=first, count=count, slots=plan.slots)
    rows = array("q")
    streams, alerts = [], []
    for at in range(count):
        stream = _Stream(plan, arm, model, draws[at].tolist(), connect)
        stream.number, stream.watch, stream.pace = first + at, watch, pace
        stream.run()
        rows.extend(stream.rows)
        streams.append(stream.counts)
        alerts.append(stream.alerts)
    return Block(
        first=first,
        episodes=np.frombuffer(rows, dtype=np.int64).reshape(count, len(plan.episodes), len(PER_EPISODE)),
        streams=np.array(streams, dtype=np.int64).reshape(count, len(PER_STREAM)),
        alerts=np.array(alerts, dtype=np.int64).reshape(count, len(plan.drift)),
    )


def rerun(
    plan: Plan, *, arm: Arm, model: ComplianceModel, seed: int, stream: int, connect: Connect = Server
) -> events.EventLog:
    """Play one stream again, bit for bit, and return its event log."""
    if stream < 0:
        raise InputError("a stream is 0 or more", value=stream)
    draws = uniforms(seed, first=stream, count=1, slots=plan.slots)
    played = _Stream(plan, arm, model, draws[0].tolist(), connect)
    played.log = []
    played.run()
    return played.log
