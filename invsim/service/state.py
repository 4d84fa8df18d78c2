"""The service without its HTTP: one immutable state behind a reference, and the operations that replace it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import TypeVar

from invsim.world.domain import Domain
from invsim.world.rules import Rule
from invsim.world.server import ReloadReport, Report, RuleChange, World
from invsim.world.tables import Rows
from invsim.world.wire import Level

R = TypeVar("R", ReloadReport, RuleChange)


def _new_epoch() -> str:
    return secrets.token_hex(8)


@dataclass(frozen=True)
class State:
    """All that a response may tell, at one moment.

    Parameters
    ----------
    world : World
    reloads : mapping of table to ReloadReport
        The last reload of each table.
    rule_log : tuple of RuleChange
        Oldest first.
    epoch : str
        Names the time since the start, or since the last reset. Within an epoch no table's version comes back.
    number : int
        Changes since the epoch began.
    """

    world: World
    reloads: Mapping[str, ReloadReport] = field(default_factory=dict)
    rule_log: tuple[RuleChange, ...] = ()
    epoch: str = field(default_factory=_new_epoch)
    number: int = 0

    @property
    def name(self) -> str:
        """Tells this state from every other of any service: EPOCH/NUMBER."""
        return f"{self.epoch}/{self.number}"

    def after(self, world: World, report: Report) -> State:
        """Return the state that a change leads to."""
        if isinstance(report, ReloadReport):
            reloads = {**self.reloads, report.diff.table: report}
            return State(world, reloads, self.rule_log, self.epoch, self.number + 1)
        return State(world, self.reloads, (*self.rule_log, report), self.epoch, self.number + 1)

    def summary(self, domain: Domain) -> dict[str, object]:
        """Return what any client may know: never more of the versions than a response at this level carries."""
        world = self.world
        return {
            "domain": domain.name,
            "title": domain.title,
            "level": world.level.name,
            "state": self.name,
            **({"table_versions": dict(world.versions)} if world.level >= Level.L1 else {}),
            **({"rules_version": world.rules_version} if world.level >= Level.L6 else {}),
        }

    def everything(self, domain: Domain) -> dict[str, object]:
        """Return what an operator may know: the rows and the rules as well."""
        tables = {
            name: {"version": table.version, "rows": {key: dict(row) for key, row in table.rows.items()}}
            for name, table in self.world.tables.items()
        }
        rules = [rule.to_dict() for rule in self.world.rules]
        return {
            "domain": domain.name,
            "level": self.world.level.name,
            "state": self.name,
            "tables": tables,
            "rules": rules,
        }


class Service:
    """A domain being served.

    A reader takes ``state`` once and answers from it alone, without a lock: no answer can mix two versions. Writers go
    one at a time and replace the state whole.

    Parameters
    ----------
    domain : Domain
    level : Level
    """

    def __init__(self, domain: Domain, *, level: Level = Level.L6) -> None:
        self.domain = domain
        self.start = domain.world(level=level)
        self.state = State(self.start)
        self._writing = Lock()

    def reload_table(self, table: str, rows: Rows, version: str | None = None) -> ReloadReport:
        """Load new rows into a table; see ``World.reloaded``."""
        return self._enter(lambda world: world.reloaded(table, rows, version))

    def declare_rule(self, rule: Rule) -> RuleChange:
        """Add a rule; see ``World.declared``."""
        return self._enter(lambda world: world.declared(rule))

    def withdraw_rule(self, triple: tuple[str, str, str]) -> RuleChange:
        """Remove a rule; see ``World.withdrawn``."""
        return self._enter(lambda world: world.withdrawn(triple))

    def _enter(self, change: Callable[[World], tuple[World, R]]) -> R:
        with self._writing:
            world, report = change(self.state.world)
            self.state = self.state.after(world, report)
        return report

    def reset(self) -> State:
        """Go back to the world that the service started with, in a new epoch, and return that state."""
        with self._writing:
            self.state = state = State(self.start)
        return state
