"""Policies: validations of a request against tables and rules, each able to say what would make it pass.

A policy is data where one of the three kinds below fits, and a small class where none does: anything with
``type``, ``shape``, ``table`` and ``check`` serves.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from invsim.errors import InputError
from invsim.world.tables import Row, Table
from invsim.world.wire import Parameters, Shape, Value


@dataclass(frozen=True)
class Violation:
    """A policy that a request breaks: the text of the error and, where there is one, the fix.

    ``parameters`` is None when the policy knows no fix: the server then sends an error without a suggestion.
    """

    message: str
    parameters: Parameters | None


class Policy(Protocol):
    """What the server asks of a policy."""

    @property
    def type(self) -> str:
        """Family of the suggestions it makes."""

    @property
    def shape(self) -> Shape:
        """What its fixes do to a request."""

    @property
    def table(self) -> str | None:
        """Table its fixes are read from; None when a fix is computed from the request itself ("recompute")."""

    def check(self, fields: Parameters, tables: Mapping[str, Table]) -> Violation | None:
        """Return the violation, or None when the request passes."""


def _row(table: Table, fields: Parameters, key: str) -> Row | None:
    """Return the row that a request's field names; None where it names none."""
    return table.rows.get(str(fields[key])) if key in fields else None


def require_columns(policies: Iterable[Policy], table: Table, *, where: object = "") -> None:
    """Check that every row of a table has the columns its policies read from it.

    Raises
    ------
    InputError
        Names the row, the table and the column.
    """
    for policy in policies:
        if isinstance(policy, Lookup | Member) and policy.table == table.name:
            for key, row in table.rows.items():
                if policy.column not in row:
                    what = f"row {key!r} of table {table.name!r} lacks the column {policy.column!r}"
                    raise InputError(f"{what}, which {policy.type} reads", where=where)


@dataclass(frozen=True)
class Condition:
    """Holds when ``tables[table].rows[request[key]][column] == equals``."""

    table: str
    key: str
    column: str
    equals: Value

    def holds(self, fields: Parameters, tables: Mapping[str, Table]) -> bool:
        """Evaluate the condition on a request."""
        row = _row(tables[self.table], fields, self.key)
        return row is not None and row.get(self.column) == self.equals


@dataclass(frozen=True)
class Lookup:
    """The request must carry, in ``field``, the value that a table's row holds.

    The row is the one that the request's ``key`` field names; without such a row, or when a condition in ``when``
    fails, the policy does not apply.
    """

    type: str
    shape: Shape
    table: str
    key: str
    column: str
    field: str
    message: str
    when: tuple[Condition, ...] = ()

    def check(self, fields: Parameters, tables: Mapping[str, Table]) -> Violation | None:
        """See ``Policy.check``."""
        row = _row(tables[self.table], fields, self.key)
        if row is None or not all(condition.holds(fields, tables) for condition in self.when):
            return None
        wanted = row[self.column]
        if isinstance(wanted, list | tuple) or fields.get(self.field) == wanted:
            return None
        return Violation(self.message, {self.field: wanted})


@dataclass(frozen=True)
class Member:
    """A value in ``field`` must be a key of ``registry``, or be replaced by what the ``table``'s row holds."""

    type: str
    shape: Shape
    table: str
    key: str
    column: str
    field: str
    registry: str
    message: str

    def check(self, fields: Parameters, tables: Mapping[str, Table]) -> Violation | None:
        """See ``Policy.check``."""
        given = fields.get(self.field)
        if given is None or str(given) in tables[self.registry].rows:
            return None
        row = _row(tables[self.table], fields, self.key)
        wanted = None if row is None else row[self.column]
        if wanted is None or isinstance(wanted, list | tuple) or str(wanted) not in tables[self.registry].rows:
            return Violation(self.message, None)
        return Violation(self.message, {self.field: wanted})


@dataclass(frozen=True)
class Multiple:
    """A number must be a multiple of ``unit``; the fix is computed from the request, so it is "recompute"."""

    type: str
    field: str
    unit: str
    message: str
    shape: Shape = Shape.REWRITE
    table: None = None

    def __post_init__(self) -> None:
        try:
            positive = Fraction(self.unit) > 0
        except (ValueError, ZeroDivisionError):
            positive = False
        if not positive:
            raise InputError('unit must be a positive number written as text, such as "0.01"', value=self.unit)

    def check(self, fields: Parameters, tables: Mapping[str, Table]) -> Violation | None:
        """See ``Policy.check``."""
        given = fields.get(self.field)
        if isinstance(given, bool) or not isinstance(given, int | float):
            return None
        if isinstance(given, float) and not math.isfinite(given):
            return Violation(self.message, None)
        unit, exact = Fraction(self.unit), Fraction(str(given))
        rounded = round(exact / unit) * unit
        if rounded == exact:
            return None
        try:
            return Violation(self.message, {self.field: float(rounded)})
        except OverflowError:  # the nearest multiple is no number that JSON could carry
            return Violation(self.message, None)
