"""Scenarios from a handful of numbers, for what-if studies: how often data drifts, and how much shares a table.

The shipped scenarios are streams that somebody wrote down. Here a stream is composed: keys spread over reference
tables, tasks that meet them in random order, and drift at a rate. The same setting and seed give the same plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from invsim.client.arms import arm_names
from invsim.errors import InputError
from invsim.located import Source
from invsim.sim.plan import Plan, compile_plan
from invsim.sim.scenario import DriftFile, Manifest, RowFile, Scenario, TaskFile
from invsim.world.domain import Domain
from invsim.world.policies import Lookup
from invsim.world.tables import Table
from invsim.world.wire import Level, Shape

CONSTRAINT = "constrained"
"""The class of every task that meets a constraint."""

LONGEST = 10_000
"""Most episodes of a composed stream."""


@dataclass(frozen=True)
class Setting:
    """What a what-if study varies.

    Parameters
    ----------
    episodes : int
        Length of the stream, 1 to 10,000.
    keys : int
        Different tasks that meet a constraint, each about a row of its own.
    tables : int
        Reference tables the keys are dealt over, 1..keys. With ``tables == keys`` no two fixes share a table; with 1
        all do, and what evicts a table evicts everything.
    drift : float
        Chance that a drift event follows an episode, 0..1.
    rows : int
        Rows that an event changes in its table, as far as the table has them: co-drift.
    benign : float
        Share of the events that republish a table without changing a row, 0..1.
    constrained : float
        Chance that an episode meets a constraint, 0..1.
    shape : Shape
        Of every hint.
    """

    episodes: int = 60
    keys: int = 6
    tables: int = 2
    drift: float = 0.05
    rows: int = 1
    benign: float = 0.0
    constrained: float = 0.75
    shape: Shape = Shape.ADD

    def __post_init__(self) -> None:
        for name, low, high in (
            ("episodes", 1, LONGEST), ("keys", 1, LONGEST), ("tables", 1, self.keys), ("rows", 1, LONGEST),
            ("drift", 0, 1), ("benign", 0, 1), ("constrained", 0, 1),
        ):  # fmt: skip
            value = getattr(self, name)
            if not low <= value <= high:
                raise InputError(f"{name} must be from {low} to {high}", value=value)


def compose(setting: Setting, *, seed: int, level: Level = Level.L6, arms: Sequence[str] | None = None) -> Plan:
    """Draw a plan of a setting.

    Parameters
    ----------
    setting : Setting
    seed : int
        Of the order of the tasks, and of what drifts when. The order of the tasks is the same whatever drifts, so
        that two settings which differ in drift alone differ in nothing else.
    level : Level
        What the server attaches.
    arms : sequence of str, optional
        All by default.
    """
    tables = [_Drifting(at, [f"row_{key}" for key in range(at, setting.keys, setting.tables)]) for at in
              range(setting.tables)]  # fmt: skip
    tasks = {key: table.task(key) for table in tables for key in table.keys}
    tasks["plain"] = TaskFile(constraint="none", request={"amount": 1})
    order = Random(f"order-{seed}")
    named = [f"row_{key}" for key in range(setting.keys)]
    stream = [order.choice(named) if order.random() < setting.constrained else "plain" for _ in range(setting.episodes)]
    manifest = Manifest(
        name="composed",
        title=f"{setting.keys} keys in {setting.tables} tables, drift {setting.drift:g} an episode",
        domain="composed",
        stream=" ".join(stream),
        tasks=tasks,
        wire=level.name,
        arms=list(arm_names() if arms is None else arms),
        drift=_drift(setting, tables, Random(f"drift-{seed}")),
    )
    domain = Domain(
        name="composed",
        title="Reference tables with rows that drift",
        tables=tuple(table.start for table in tables),
        rules=(),
        policies=tuple(table.policy(setting.shape) for table in tables),
    )
    return compile_plan(Scenario(manifest, Source(manifest.name, "")), domain=domain)


def _drift(setting: Setting, tables: Sequence[_Drifting], random: Random) -> list[DriftFile]:
    events = []
    for episode in range(setting.episodes - 1):
        # Every number is drawn for every episode, so that the events of a lower rate are among those of a higher one.
        happens, quiet, table = random.random(), random.random(), random.choice(tables)
        order = random.sample(table.keys, k=len(table.keys))
        if happens < setting.drift:
            events.append(
                DriftFile(after_episode=episode, republish=table.name)
                if quiet < setting.benign
                else DriftFile(after_episode=episode, edit=table.name, put=table.changed(order[: setting.rows]))
            )
    return events


class _Drifting:
    """A table whose rows hold a number that goes up whenever the row changes."""

    def __init__(self, at: int, keys: list[str]) -> None:
        self.name, self.field, self.keys = f"reference_{at}", f"value_{at}", keys
        self.values = dict.fromkeys(keys, 0)
        self.start = Table(self.name, {key: {"value": 0} for key in keys}, "1.0.0")
        self.key = f"item_{at}"

    def policy(self, shape: Shape) -> Lookup:
        return Lookup(
            type=f"USE_{self.name.upper()}",
            shape=shape,
            table=self.name,
            key=self.key,
            column="value",
            field=self.field,
            message=f"{self.field} is not what {self.name} holds for the item",
        )

    def task(self, key: str) -> TaskFile:
        return TaskFile(CONSTRAINT, {self.key: key}, f"USE_{self.name.upper()}", key)

    def changed(self, keys: Sequence[str]) -> dict[str, RowFile]:
        for key in keys:
            self.values[key] += 1
        return {key: {"value": self.values[key]} for key in keys}
