"""A scenario made ready to run: requests against a world, drift as operations, and who counts for what.

Compiling plays the drift once through the real server. That checks every operation, and the worlds it passes through
are the ones that all streams share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from invsim.client.arms import Arm, get_arm
from invsim.client.memory import Entry, Slot
from invsim.errors import InputError, InvsimError
from invsim.rng import PURPOSES
from invsim.sim.scenario import DriftFile, Scenario, TaskFile
from invsim.world.domain import Domain, load_domain
from invsim.world.drift import Declare, Edit, Operation, Reload, Withdraw, after
from invsim.world.server import ReloadReport, Report, World
from invsim.world.wire import Level, Request, Shape

Mask = npt.NDArray[np.bool_]


class Task:
    """One kind of task: its request, and the requests that fixes turn it into, each built once.

    Parameters
    ----------
    name, constraint : str
    slot : Slot or None
        What its fix is filed under; None for a task that meets no constraint.
    shape : Shape or None
    request : Request
    """

    __slots__ = ("_merged", "_solutions", "constraint", "name", "request", "shape", "slot")

    def __init__(self, name: str, constraint: str, slot: Slot | None, shape: Shape | None, request: Request) -> None:
        self.name, self.constraint, self.slot, self.shape, self.request = (
            name,
            constraint,
            slot,
            shape,
            request,
        )
        self._merged: dict[str, Request] = {}
        self._solutions: dict[World, Request | None] = {}

    def with_fix(self, entry: Entry) -> Request:
        """Return the task with a cached fix merged in."""
        request = self._merged.get(entry.value)
        if request is None:
            request = self._merged[entry.value] = self.request.merged(entry.parameters)
        return request

    def with_patch(self, patch: Mapping[str, Mapping[str, object]]) -> Request:
        """Return the task with suggestions merged in, given as canonical text -> parameters."""
        text = "\n".join(patch)
        request = self._merged.get(text)
        if request is None:
            fields = dict(self.request.fields)
            for parameters in patch.values():
                fields.update(parameters)  # type: ignore[arg-type]
            request = self._merged[text] = Request(fields)
        return request

    def solved(self, world: World) -> Request | None:
        """Return the request that passes every policy of ``world``; None when there is none."""
        if world not in self._solutions:
            self._solutions[world] = world.solution(self.request)
        return self._solutions[world]


@dataclass(frozen=True)
class DriftEvent:
    """An operation and the tick it happens at, before the attempts of that tick.

    ``after_episode`` is the last episode that starts before it, or -1.
    """

    tick: int
    after_episode: int
    operation: Operation
    report: Report

    @property
    def rotation(self) -> bool:
        """Whether it changed, added or removed rows: a reload with a diff that is not empty."""
        return isinstance(self.report, ReloadReport) and bool(self.report.diff.keys)

    @property
    def subject(self) -> str:
        """What a client that notices it names: "table NAME" or "rules"."""
        return f"table {self.report.diff.table}" if isinstance(self.report, ReloadReport) else "rules"


@dataclass(frozen=True)
class Window:
    """A named set of episodes over which a first-try rate is reported."""

    name: str
    mask: Mask


@dataclass(frozen=True, eq=False)
class Plan:
    """What the engines run. Compared by identity, so that what follows from it can be kept.

    Parameters
    ----------
    name, title : str
    domain : Domain
    world : World
        Initial state, at the scenario's wire level.
    episodes : tuple of Task
        One per episode; equal tasks are one object.
    first_occurrence : tuple of bool
        Whether no earlier episode had the same slot.
    drift : tuple of DriftEvent
        In order of time.
    arms : tuple of Arm
    episode_ticks : int
        From the start of one episode to the start of the next; a retry comes one tick after the attempt before.
    classes : tuple of str
        Constraint classes in order of first appearance.
    class_index : ndarray of int, shape (episodes,)
    eligible : ndarray of bool, shape (episodes,)
        Episodes that the paper's compliance counts.
    windows : tuple of Window
    as_written : bool
        Whether it is served at the manifest's wire level.
    notes : tuple of str
        What is allowed and yet looks like a mistake.
    """

    name: str
    title: str
    domain: Domain
    world: World
    episodes: tuple[Task, ...]
    first_occurrence: tuple[bool, ...]
    drift: tuple[DriftEvent, ...]
    arms: tuple[Arm, ...]
    episode_ticks: int
    classes: tuple[str, ...]
    class_index: npt.NDArray[np.int64]
    eligible: Mask
    windows: tuple[Window, ...]
    as_written: bool = True
    notes: tuple[str, ...] = ()

    @property
    def slots(self) -> int:
        """Draws per stream."""
        return len(self.episodes) * PURPOSES

    def shape_of(self, constraint: str) -> Shape | None:
        """Return the hint shape of a class."""
        return next(task.shape for task in self.episodes if task.constraint == constraint)

    def first(self, episodes: int) -> Plan:
        """Return the plan of the first episodes alone, with the drift that still meets one of them.

        Raises
        ------
        InputError
            For a number that is not from 1 to the episodes there are.
        """
        if not 1 <= episodes <= len(self.episodes):
            raise InputError(f"must be 1 to the stream's {len(self.episodes)} episodes", value=episodes)
        if episodes == len(self.episodes):
            return self
        tasks = self.episodes[:episodes]
        classes = tuple(dict.fromkeys(task.constraint for task in tasks))
        windows = (Window(each.name, each.mask[:episodes]) for each in self.windows)
        return replace(
            self,
            episodes=tasks,
            first_occurrence=self.first_occurrence[:episodes],
            drift=tuple(each for each in self.drift if each.tick < episodes * self.episode_ticks),
            classes=classes,
            class_index=np.array([classes.index(task.constraint) for task in tasks], dtype=np.int64),
            eligible=self.eligible[:episodes],
            windows=tuple(each for each in windows if each.mask.any()),
            as_written=False,
        )


def compile_plan(scenario: Scenario, *, level: Level | None = None, domain: Domain | None = None) -> Plan:
    """Resolve a scenario against its domain.

    Parameters
    ----------
    scenario : Scenario
    level : Level, optional
        Serve at this wire level in place of the manifest's.
    domain : Domain, optional
        Resolve against this domain in place of the one the manifest names.

    Raises
    ------
    UnknownNameError, InputError
        An unknown domain, family, table, row, rule or arm, named with its place in the manifest.
    """
    manifest, source = scenario.manifest, scenario.source
    if domain is None:
        domain = load_domain(manifest.domain, beside=scenario.beside, where=source.where("domain"))
    written = Level.parse(manifest.wire, where=source.where("wire"))
    level = written if level is None else level
    world = domain.world(level=level)
    tasks = {name: _task(scenario, domain, name, file) for name, file in manifest.tasks.items()}
    episodes = tuple(tasks[name] for name in manifest.stream.split())
    drift = _drift(scenario, world, len(episodes))
    _check_keys(scenario, domain, tasks)
    classes = tuple(dict.fromkeys(task.constraint for task in episodes))
    eligible = _eligible(scenario, domain, episodes, drift)
    return Plan(
        name=manifest.name,
        title=manifest.title,
        domain=domain,
        world=world,
        episodes=episodes,
        first_occurrence=_first_occurrences(episodes),
        drift=drift,
        arms=tuple(get_arm(name, where=source.where("arms")) for name in manifest.arms),
        episode_ticks=manifest.episode_ticks,
        classes=classes,
        class_index=np.array([classes.index(task.constraint) for task in episodes], dtype=np.int64),
        eligible=eligible,
        windows=_windows(scenario, episodes, eligible),
        as_written=level is written,
        notes=_notes(domain, tasks, world, drift),
    )


def _task(scenario: Scenario, domain: Domain, name: str, file: TaskFile) -> Task:
    request = Request(file.request)
    if file.family is None or file.key is None:
        return Task(name, file.constraint, None, None, request)
    policy = domain.family(file.family, where=scenario.source.where("tasks", name, "family"))
    return Task(name, file.constraint, Slot(file.family, file.key), policy.shape, request)


def _check_keys(scenario: Scenario, domain: Domain, tasks: Mapping[str, Task]) -> None:
    """Refuse a key that is not the row the request names: its fixes would be filed under another row's name."""
    for name, task in tasks.items():
        field = getattr(domain.family(task.slot.family), "key", None) if task.slot is not None else None
        if task.slot is None or field is None:
            continue
        named = str(task.request.fields.get(field))
        if named != task.slot.key:
            what = f"key must be what the request's {field!r} names, {named!r}"
            raise scenario.error(what, "tasks", name, "key", value=task.slot.key)


def _notes(domain: Domain, tasks: Mapping[str, Task], world: World, drift: tuple[DriftEvent, ...]) -> tuple[str, ...]:
    worlds = [world]
    for event in drift:
        worlds.append(after(worlds[-1], event.operation)[0])
    notes = []
    for name, task in tasks.items():
        if task.slot is None:
            continue
        if all(each.heeds(task.request, task.slot.family) for each in worlds):
            notes.append(f"task {name!r} never breaks the policy of {task.slot.family}, so it has nothing to learn")
        elif domain.family(task.slot.family).table is None:
            notes.append(f"task {name!r} is mended by {task.slot.family}, whose fixes may not be stored")
    return tuple(notes)


def _drift(scenario: Scenario, world: World, episodes: int) -> tuple[DriftEvent, ...]:
    manifest, ticks = scenario.manifest, scenario.manifest.episode_ticks
    timed: list[tuple[int, int, Operation]] = []
    for at, file in enumerate(manifest.drift):
        tick = file.at_tick if file.after_episode is None else (file.after_episode + 1) * ticks
        timed.append((tick or 0, at, _operation(scenario, file)))
    events = []
    for tick, at, operation in sorted(timed, key=lambda item: item[:2]):
        try:
            world, report = after(world, operation)
        except InvsimError as error:
            raise InputError(str(error), where=scenario.source.where("drift", at)) from None
        last_started = min((tick - 1) // ticks, episodes - 1) if tick > 0 else -1
        events.append(DriftEvent(tick, last_started, operation, report))
    return tuple(events)


def _operation(scenario: Scenario, file: DriftFile) -> Operation:
    if file.reload is not None and file.snapshot is not None:
        return Reload(file.reload, scenario.manifest.snapshots[file.snapshot])
    if file.declare_rule is not None:
        return Declare(file.declare_rule.build())
    if file.remove_rule is not None:
        return Withdraw(file.remove_rule.build().triple)
    return Edit(file.edit or file.republish or "", file.put, tuple(file.remove))


def _first_occurrences(episodes: tuple[Task, ...]) -> tuple[bool, ...]:
    seen: set[Slot] = set()
    flags = []
    for task in episodes:
        flags.append(task.slot is not None and task.slot not in seen)
        if task.slot is not None:
            seen.add(task.slot)
    return tuple(flags)


def _eligible(scenario: Scenario, domain: Domain, episodes: tuple[Task, ...], drift: tuple[DriftEvent, ...]) -> Mask:
    """All episodes of the class but the first ever, and the first ones after each rotation of its table."""
    mask = np.zeros(len(episodes), dtype=np.bool_)
    rule = scenario.manifest.eligibility
    if rule is None:
        return mask
    mine = [at for at, task in enumerate(episodes) if task.constraint == rule.constraint]
    mask[mine[rule.skip_first :]] = True
    slots = {task.slot for at in mine if (task := episodes[at]).slot is not None}
    subjects = {f"table {domain.family(slot.family).table}" for slot in slots if slot is not None}
    for event in drift:
        if event.rotation and event.subject in subjects:
            later = [at for at in mine if at > event.after_episode]
            mask[later[: rule.skip_after_rotation]] = False
    return mask


def _windows(scenario: Scenario, episodes: tuple[Task, ...], eligible: Mask) -> tuple[Window, ...]:
    windows = []
    for number, window in enumerate(scenario.manifest.windows):
        mine = np.array([task.constraint == window.constraint for task in episodes])
        if window.eligible_and_cold:
            cold = np.zeros_like(mine)
            cold[np.flatnonzero(mine)[:1]] = True
            mask = (mine & eligible) | cold
        elif window.episodes is not None:
            mask = mine & np.isin(np.arange(len(episodes)), window.episodes)
        else:
            last = len(episodes) - 1 if window.last is None else window.last
            at = np.arange(len(episodes))
            mask = mine & (at >= window.first) & (at <= last)
        if not mask.any():
            raise scenario.error(f"window {window.name!r} holds no episode of its class", "windows", number)
        windows.append(Window(window.name, mask))
    return tuple(windows)
