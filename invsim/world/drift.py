"""Drift operations as data, and the driver that plays them on a server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from invsim.errors import UnknownNameError
from invsim.world.rules import Rule
from invsim.world.server import Report, Server, World
from invsim.world.tables import Row, Rows


class Operation(Protocol):
    """Something that turns one world into the next. Implementations compare by identity, or are hashable."""

    def apply(self, world: World) -> tuple[World, Report]:
        """Return the next world and what the server reports about the change."""


@dataclass(frozen=True, eq=False)
class Reload:
    """A table takes the rows of a snapshot."""

    table: str
    rows: Rows
    version: str | None = None

    def apply(self, world: World) -> tuple[World, Report]:
        """See ``Operation.apply``."""
        return world.reloaded(self.table, self.rows, self.version)


@dataclass(frozen=True, eq=False)
class Edit:
    """Rows of a table are replaced, added or removed; with neither it is a benign republish."""

    table: str
    put: Mapping[str, Row] = field(default_factory=dict)
    remove: tuple[str, ...] = ()

    def apply(self, world: World) -> tuple[World, Report]:
        """See ``Operation.apply``."""
        if self.table not in world.tables:
            raise UnknownNameError("table", self.table, world.tables)
        rows = dict(world.tables[self.table].rows)
        for key in self.remove:
            if key not in rows:
                raise UnknownNameError(f"row of table {self.table}", key, rows)
            del rows[key]
        return world.reloaded(self.table, {**rows, **self.put})


@dataclass(frozen=True, eq=False)
class Declare:
    """A rule is declared."""

    rule: Rule

    def apply(self, world: World) -> tuple[World, Report]:
        """See ``Operation.apply``."""
        return world.declared(self.rule)


@dataclass(frozen=True, eq=False)
class Withdraw:
    """A rule is withdrawn."""

    triple: tuple[str, str, str]

    def apply(self, world: World) -> tuple[World, Report]:
        """See ``Operation.apply``."""
        return world.withdrawn(self.triple)


def after(world: World, operation: Operation) -> tuple[World, Report]:
    """Apply an operation to a world; the same operation on the same world is computed once."""
    known = world.successors.get(operation)
    if known is None:
        known = world.successors[operation] = operation.apply(world)
    return known


def play(server: Server, operation: Operation) -> Report:
    """Apply an operation to a running server."""
    world, report = after(server.world, operation)
    server.move(world, report)
    return report
