"""Reference tables: named, keyed rows with a version that every content change bumps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

Scalar: TypeAlias = str | int | float | bool
Row: TypeAlias = Mapping[str, Scalar | list[Scalar]]
Rows: TypeAlias = Mapping[str, Row]


@dataclass(frozen=True)
class Diff:
    """What a reload changed in one table: keys added, removed and changed, and the two versions."""

    table: str
    old_version: str
    new_version: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """Every key whose row is not what it was; empty for a benign republish."""
        return self.added + self.removed + self.changed


@dataclass(frozen=True, eq=False)
class Table:
    """A versioned table. Immutable: a reload makes a new one.

    Parameters
    ----------
    name : str
    rows : mapping of key to row
    version : str
        Opaque to clients; compared for equality only.
    """

    name: str
    rows: Rows
    version: str = "1.0.0"

    def __post_init__(self) -> None:
        frozen = {key: MappingProxyType(dict(row)) for key, row in self.rows.items()}
        object.__setattr__(self, "rows", MappingProxyType(frozen))

    def reloaded(self, rows: Rows, version: str | None = None) -> tuple[Table, Diff]:
        """Return the table with new content and the diff to it; the version is bumped even if nothing changed."""
        new = Table(self.name, rows, version or next_version(self.version))
        before, after = self.rows, new.rows
        diff = Diff(
            table=self.name,
            old_version=self.version,
            new_version=new.version,
            added=tuple(key for key in after if key not in before),
            removed=tuple(key for key in before if key not in after),
            changed=tuple(key for key in after if key in before and after[key] != before[key]),
        )
        return new, diff


def next_version(version: str) -> str:
    """Return the version with its last number raised by one; "1.0.0" becomes "1.0.1"."""
    head, dot, last = version.rpartition(".")
    return f"{head}{dot}{int(last) + 1}" if last.isdecimal() else f"{version}.1"
