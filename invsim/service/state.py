"""The service without its HTTP: one immutable state behind a reference, and the operations that replace it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from threading import Lock

from invsim.world.domain import Domain
from invsim.world.rules import Rule
from invsim.world.server import ReloadReport, RuleChange, World
from invsim.world.tables import Rows
from invsim.world.wire import Level


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
    """

    world: World
    reloads: Mapping[str, ReloadReport] = field(default_factory=dict)
    rule_log: tuple[RuleChange, ...] = ()
    epoch: str = field(default_factory=_new_epoch)

    def summary(self, domain: Domain) -> dict[str, object]:
        """Return what any client may know: never more of the versions than a response at this level carries."""
        world = self.world
        return {
            "domain": domain.name,
            "title": domain.title,
            "level": world.level.name,
            "epoch": self.epoch,
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
            "epoch": self.epoch,
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
        with self._writing:
            world, report = self.state.world.reloaded(table, rows, version)
            self.state = replace(self.state, world=world, reloads={**self.state.reloads, table: report})
        return report

    def declare_rule(self, rule: Rule) -> RuleChange:
        """Add a rule; see ``World.declared``."""
        with self._writing:
            return self._enter(*self.state.world.declared(rule))

    def withdraw_rule(self, triple: tuple[str, str, str]) -> RuleChange:
        """Remove a rule; see ``World.withdrawn``."""
        with self._writing:
            return self._enter(*self.state.world.withdrawn(triple))

    def _enter(self, world: World, change: RuleChange) -> RuleChange:
        self.state = replace(self.state, world=world, rule_log=(*self.state.rule_log, change))
        return change

    def reset(self) -> State:
        """Go back to the world that the service started with, in a new epoch, and return that state."""
        with self._writing:
            self.state = state = State(self.start)
        return state
