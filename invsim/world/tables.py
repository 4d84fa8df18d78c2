"""Reference tables: named, keyed rows with a version that every content change bumps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from invsim.errors import InputError

Scalar: TypeAlias = str | int | float | bool
Row: TypeAlias = Mapping[str, Scalar | list[Scalar] | tuple[Scalar, ...]]
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
    past : frozenset of str
        Versions it had before. None of them comes back: a client could not tell what it holds from what is new.
    """

    name: str
    rows: Rows
    version: str = "1.0.0"
    past: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        frozen = {
            key: MappingProxyType({name: tuple(v) if isinstance(v, list) else v for name, v in row.items()})
            for key, row in self.rows.items()
        }
        object.__setattr__(self, "rows", MappingProxyType(frozen))

    def reloaded(self, rows: Rows, version: str | None = None) -> tuple[Table, Diff]:
        """Return the table with new content and the diff to it; the version is bumped even if nothing changed.

        Raises
        ------
        InputError
            When ``version`` is one that the table has or has had.
        """
        past = self.past | {self.version}
        if version is None:
            version = next_version(self.version)
            while version in past:
                version = next_version(version)
        elif version in past:
            what = f"table {self.name!r} has or has had that version; a reload needs a new one"
            raise InputError(what, value=version)
        new = Table(self.name, rows, version, past)
        before, after = self.rows, new.rows
        diff = Diff(
            table=self.name,
            old_version=self.version,
            new_version=new.version,
            added=tuple(key for key in after if key not in before),
            removed=tuple(key for key in before if key not in after),
            changed=tuple(key for key in after if key in before and _text(after[key]) != _text(before[key])),
        )
        return new, diff


def _text(row: Row) -> str:
    """Return a row as text: unlike in Python, 1 and true are two values."""
    return repr(sorted(row.items()))


def next_version(version: str) -> str:
    """Return the version with its last number raised by one; "1.0.0" becomes "1.0.1"."""
    head, dot, last = version.rpartition(".")
    return f"{head}{dot}{int(last) + 1}" if last.isdecimal() else f"{version}.1"
