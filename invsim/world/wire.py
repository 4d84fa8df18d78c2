"""What travels: requests, suggestions and responses, their levels, and the bytes each field costs."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TypeAlias

import msgspec

from invsim.errors import UnknownNameError

Value: TypeAlias = str | int | float | bool
Parameters: TypeAlias = Mapping[str, Value]


class Level(enum.IntEnum):
    """Wire levels: what the server attaches. L2 and L3 change how a client shows a fix, not a byte here."""

    L0 = 0
    L1 = 1
    L4 = 4
    L5 = 5
    L6 = 6

    @classmethod
    def parse(cls, name: str, *, where: object = "") -> Level:
        """Return the level of that name; an unknown one is an ``UnknownNameError``."""
        if name not in cls.__members__:
            raise UnknownNameError("wire level", name, cls.__members__, where=where)
        return cls[name]


class Shape(enum.StrEnum):
    """Hint shapes: what applying a suggestion does to the request."""

    ADD = "add-a-field"
    REWRITE = "rewrite-a-value"
    CONDITIONAL = "conditional-rewrite"


class CacheHint(enum.StrEnum):
    """Whether a suggestion may be kept: only those that come from a reference table."""

    CACHEABLE = "cacheable"
    RECOMPUTE = "recompute"


def canonical(value: object) -> str:
    """Return compact JSON with sorted keys: equal values have equal text."""
    return msgspec.json.encode(value, order="deterministic").decode()


class Request:
    """The fields of a call. Immutable; compared by identity, so that it can key a cache at no cost."""

    __slots__ = ("fields",)

    def __init__(self, fields: Parameters) -> None:
        self.fields: Parameters = MappingProxyType(dict(fields))

    def merged(self, parameters: Parameters) -> Request:
        """Return the request with a suggestion's parameters merged in verbatim."""
        return Request({**self.fields, **parameters})

    def __repr__(self) -> str:
        return f"Request({dict(self.fields)!r})"


@dataclass(frozen=True, eq=False)
class Suggestion:
    """A recovery suggestion.

    Parameters
    ----------
    type : str
        The family it belongs to.
    parameters : mapping
        Fields to merge into the request.
    cache_hint : CacheHint
        A "recompute" suggestion must not be stored.
    table : str or None
        The reference table the fix was read from; None for "recompute".
    tables : tuple of (table, version), or None
        Dependency vector, from L4 on; it takes precedence over ``table``.
    """

    type: str
    parameters: Parameters
    cache_hint: CacheHint
    table: str | None = None
    tables: tuple[tuple[str, str], ...] | None = None

    @cached_property
    def value(self) -> str:
        """Canonical text of the parameters: what tells two fixes of one key apart."""
        return canonical(dict(self.parameters))

    @property
    def cacheable(self) -> bool:
        """Whether a client may keep it."""
        return self.cache_hint is CacheHint.CACHEABLE

    def to_dict(self) -> dict[str, object]:
        """Return plain data as sent."""
        body: dict[str, object] = {
            "type": self.type,
            "parameters": dict(self.parameters),
            "cache_hint": str(self.cache_hint),
        }
        if self.table is not None:
            body["table"] = self.table
        if self.tables is not None:
            body["tables"] = [{"table": name, "version": version} for name, version in self.tables]
        return body


@dataclass(frozen=True, eq=False)
class Response:
    """A server's answer.

    Parameters
    ----------
    ok : bool
        Whether the request passed every policy.
    error : str
        Plain text of an error; empty on success.
    suggestions : tuple of Suggestion
        On errors from L1 on; a success carries none.
    table_versions : mapping or None
        Version of every table, on every response from L1 on. One object per server state, so that an unchanged
        world is recognised by identity.
    rules_version : str or None
        Fingerprint of the rules, on every response at L6.
    """

    ok: bool
    error: str = ""
    suggestions: tuple[Suggestion, ...] = ()
    table_versions: Mapping[str, str] | None = None
    rules_version: str | None = None

    def to_dict(self) -> dict[str, object]:
        """Return plain data as sent: absent fields are left out."""
        body: dict[str, object] = {"success": self.ok}
        if not self.ok:
            body["error"] = self.error
            if self.suggestions:
                body["recovery_feedback"] = {"suggestions": [each.to_dict() for each in self.suggestions]}
        if self.table_versions is not None:
            body["table_versions"] = dict(self.table_versions)
        if self.rules_version is not None:
            body["rules_version"] = self.rules_version
        return body

    def to_bytes(self) -> bytes:
        """Return compact JSON."""
        return msgspec.json.encode(self.to_dict())


@dataclass(frozen=True)
class ByteAccount:
    """Bytes of one response, in all and by contract field.

    A field's figure is its compact ``"name":value`` text, separators not counted. ``contract`` is what the response
    would lose if every contract field were dropped, separators included.
    """

    total: int
    contract: int
    fields: Mapping[str, int] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Contract bytes over all bytes, 0..1."""
        return self.contract / self.total


PER_SUGGESTION = ("cache_hint", "table", "tables")
PER_RESPONSE = ("table_versions", "rules_version")


def account(response: Response) -> ByteAccount:
    """Measure a response on its real bytes."""
    body = response.to_dict()
    total = len(response.to_bytes())
    fields: dict[str, int] = {}

    def strip(where: dict[str, object], names: tuple[str, ...]) -> None:
        for name in names:
            if name in where:
                pair = len(msgspec.json.encode({name: where.pop(name)})) - len("{}")
                fields[name] = fields.get(name, 0) + pair

    strip(body, PER_RESPONSE)
    plain = [each.to_dict() for each in response.suggestions]
    for suggestion in plain:
        strip(suggestion, PER_SUGGESTION)
    if plain:
        body["recovery_feedback"] = {"suggestions": plain}
    return ByteAccount(total, total - len(msgspec.json.encode(body)), fields)
