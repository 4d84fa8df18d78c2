"""Tasks with a fix that is known to be right: what a preflight puts before a planner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from invsim.client.memory import Entry, Slot
from invsim.sim.plan import Task, compile_plan
from invsim.sim.scenario import load_scenario
from invsim.world.server import World
from invsim.world.wire import Request, Shape, Value

SCENARIOS = ("payments", "recipes")
"""Shipped scenarios, one of each domain, whose tasks are the patterns."""

NUMBERS = (5, 500)
"""Range of the numbers that are drawn into a task: whole, so that no other policy minds them."""


@dataclass(frozen=True)
class Case:
    """A task, the world it is set in, and the fix that the world would have suggested."""

    task: Task
    entry: Entry
    world: World


def entry_for(task: Task, world: World) -> Entry | None:
    """Return the fix of a task as it stands in a world; None for a task that breaks no policy of its slot."""
    if task.slot is None:
        return None
    for suggestion in world.evaluate(task.request).suggestions:
        if suggestion.type == task.slot.family and suggestion.table is not None:
            return Entry(task.slot, suggestion.value, suggestion.parameters, suggestion.table, {})
    return None


def case(shape: Shape, number: int, *, seed: int) -> Case:
    """Return one case of a hint shape.

    Cases go through all rows of both shipped domains in a drawn order, then again in another, with other numbers each
    time; a case depends on its shape, number and seed alone.

    Parameters
    ----------
    shape : Shape
    number : int
        0 or more.
    seed : int
    """
    patterns = _patterns(shape)
    turn, at = divmod(number, len(patterns))
    pattern = Random(f"{seed}/{shape}/{turn}").sample(patterns, len(patterns))[at]
    random = Random(f"{seed}/{shape}/{number}")
    fields: dict[str, Value] = {
        name: float(random.randint(*NUMBERS)) if isinstance(value, float) else value
        for name, value in pattern.task.request.fields.items()
    }
    task = pattern.task
    return Case(Task(task.name, task.constraint, task.slot, shape, Request(fields)), pattern.entry, pattern.world)


@lru_cache
def _patterns(shape: Shape) -> tuple[Case, ...]:
    found: dict[tuple[str, str], Case] = {}
    for name in SCENARIOS:
        plan = compile_plan(load_scenario(name))
        for task in dict.fromkeys(plan.episodes):
            if task.shape is shape and task.slot is not None:
                for each in _along_rows(task, task.slot, plan.world):
                    found.setdefault((name, each.task.name), each)
    return tuple(found.values())


def _along_rows(task: Task, slot: Slot, world: World) -> Iterator[Case]:
    """Yield the task for every row of its table that breaks its policy and no other."""
    policy = next(each for each in world.policies if each.type == slot.family)
    field = getattr(policy, "key", None)
    if policy.table is None or field is None:
        return
    # A field that repeats a part of the key, as the second of a pair does, would contradict another key.
    tied = any(str(value) in slot.key for name, value in task.request.fields.items() if name != field)
    for key in [slot.key] if tied else world.tables[policy.table].rows:
        request = task.request.merged({field: key})
        each = Task(f"{slot.family} {key}", task.constraint, Slot(slot.family, key), task.shape, request)
        entry = entry_for(each, world)
        if entry is not None and len(world.violations(request.fields)) == 1 and world.respond(each.with_fix(entry)).ok:
            yield Case(each, entry, world)
