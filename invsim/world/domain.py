"""Domains: tables, rules and policies as one TOML file, or as a ``Domain`` built and registered in Python."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TypeAlias

import msgspec

from invsim.errors import InputError, UnknownNameError
from invsim.located import Place, Source, decode
from invsim.world.policies import Condition, Lookup, Member, Multiple, Policy, require_columns
from invsim.world.rules import Rule
from invsim.world.server import World
from invsim.world.tables import Scalar, Table
from invsim.world.wire import Level, Shape, Value

SHIPPED = ("acme", "recipes")


@dataclass(frozen=True)
class Domain:
    """An API that can be simulated.

    Parameters
    ----------
    name, title : str
    tables : tuple of Table
        In the state the world starts in.
    rules : tuple of Rule
    policies : tuple of Policy
    source : Source, optional
        The file it came from, for error messages.
    """

    name: str
    title: str
    tables: tuple[Table, ...]
    rules: tuple[Rule, ...]
    policies: tuple[Policy, ...]
    source: Source = field(default=Source("domain", ""), compare=False, repr=False)

    def __post_init__(self) -> None:
        names = {table.name: table for table in self.tables}
        for at, rule in enumerate(self.rules):
            where = self.source.where("rules", at)
            for table, column in ((rule.from_table, rule.from_column), (rule.to_table, rule.to_column)):
                _known(table, names, where)
                _some_row_has(names[table], column, where)
            if any(rule.triple == earlier.triple for earlier in self.rules[:at]):
                raise InputError("a rule is declared once", where=where, value=rule.triple)
        for at, policy in enumerate(self.policies):
            where = self.source.where("policies", at)
            if any(policy.type == earlier.type for earlier in self.policies[:at]):
                raise InputError("a type of suggestion belongs to one policy", where=where, value=policy.type)
            if policy.table is not None:
                _known(policy.table, names, where)
            if isinstance(policy, Member):
                _known(policy.registry, names, where)
            if policy.table is not None:
                require_columns([policy], names[policy.table], where=where)
            for condition in policy.when if isinstance(policy, Lookup) else ():
                _known(condition.table, names, where)
                _some_row_has(names[condition.table], condition.column, where)

    def world(self, *, level: Level = Level.L6) -> World:
        """Return the domain's initial state, served at a wire level."""
        return World({table.name: table for table in self.tables}, self.rules, self.policies, level=level)

    def family(self, name: str, *, where: object = "") -> Policy:
        """Return the policy whose suggestions have type ``name``."""
        for policy in self.policies:
            if policy.type == name:
                return policy
        raise UnknownNameError("suggestion type", name, (policy.type for policy in self.policies), where=where)


def _known(table: str, tables: Iterable[str], where: object) -> None:
    if table not in tables:
        raise UnknownNameError("table", table, tables, where=where)


def _some_row_has(table: Table, column: str | None, where: object) -> None:
    """Refuse a column that no row of the table has: a rule or a condition on it would silently never hold."""
    columns = dict.fromkeys(name for row in table.rows.values() for name in row)
    if column is not None and table.rows and column not in columns:
        raise UnknownNameError(f"column of table {table.name}", column, columns, where=where)


# The file format -------------------------------------------------------------------------------------------------


class _TableFile(msgspec.Struct, forbid_unknown_fields=True):
    rows: dict[str, dict[str, Scalar | list[Scalar]]]
    version: str = "1.0.0"


class RuleFile(msgspec.Struct, forbid_unknown_fields=True, rename={"from_table": "from", "to_table": "to"}):
    """A rule as written in a TOML file."""

    from_table: str
    to_table: str
    relation: str
    from_column: str | None = None
    to_column: str | None = None

    def build(self) -> Rule:
        """Return the rule."""
        return Rule(self.from_table, self.to_table, self.relation, self.from_column, self.to_column)


class _ConditionFile(msgspec.Struct, forbid_unknown_fields=True):
    table: str
    key: str
    column: str
    equals: Value

    def build(self) -> Condition:
        return Condition(self.table, self.key, self.column, self.equals)


class _LookupFile(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="lookup"):
    type: str
    shape: Shape
    table: str
    key: str
    column: str
    field: str
    message: str
    when: list[_ConditionFile] = []

    def build(self) -> Policy:
        when = tuple(each.build() for each in self.when)
        return Lookup(self.type, self.shape, self.table, self.key, self.column, self.field, self.message, when)


class _MemberFile(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="member"):
    type: str
    shape: Shape
    table: str
    key: str
    column: str
    field: str
    registry: str
    message: str

    def build(self) -> Policy:
        return Member(**msgspec.structs.asdict(self))


class _MultipleFile(msgspec.Struct, forbid_unknown_fields=True, tag_field="kind", tag="multiple"):
    type: str
    field: str
    unit: str
    message: str

    def build(self) -> Policy:
        return Multiple(**msgspec.structs.asdict(self))


_PolicyFile: TypeAlias = _LookupFile | _MemberFile | _MultipleFile


class _DomainFile(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    tables: dict[str, _TableFile]
    policies: list[_PolicyFile]
    title: str = ""
    rules: list[RuleFile] = []


_registered: dict[str, Domain] = {}


def register_domain(domain: Domain) -> None:
    """Make a domain built in Python known under its name to ``load_domain`` and to manifests.

    A later one of the same name takes its place; the shipped names are not to be had.
    """
    if domain.name in SHIPPED:
        raise InputError("is the name of a shipped domain", value=domain.name)
    _registered[domain.name] = domain


def domain_names() -> tuple[str, ...]:
    """Return every name that ``load_domain`` takes."""
    return tuple(dict.fromkeys([*SHIPPED, *_registered]))


def load_domain(name: str, *, beside: Path | None = None, where: object = "") -> Domain:
    """Return a domain by name, or from a TOML file when the name ends in ".toml".

    Parameters
    ----------
    name : str
        A shipped or registered name, or the path of a file.
    beside : Path, optional
        Folder that a relative path starts from.

    Raises
    ------
    UnknownNameError, InputError
    """
    if name in _registered:
        return _registered[name]
    if (source := domain_source(name, beside=beside)) is not None:
        return parse_domain(source)
    raise UnknownNameError("domain", name, domain_names(), where=where)


def domain_source(name: str, *, beside: Path | None = None) -> Source | None:
    """Return the text behind a domain's name or path; None of one that is registered, or of no domain."""
    if name in _registered:
        return None
    if name in SHIPPED:
        text = resources.files("invsim.world.domains").joinpath(f"{name}.toml").read_text(encoding="utf-8")
        return Source(f"{name}.toml", text)
    return Source.read((beside or Path()) / name) if name.endswith(".toml") else None


def parse_domain(source: Source) -> Domain:
    """Build a domain from the text of its file."""
    file = decode(source, _DomainFile)
    tables: Mapping[str, _TableFile] = file.tables
    return Domain(
        name=file.name,
        title=file.title,
        tables=tuple(Table(name, table.rows, table.version) for name, table in tables.items()),
        rules=tuple(rule.build() for rule in file.rules),
        policies=tuple(_built(policy, source.where("policies", at)) for at, policy in enumerate(file.policies)),
        source=source,
    )


def _built(file: _PolicyFile, where: Place) -> Policy:
    try:
        return file.build()
    except InputError as error:
        raise InputError(error.what, where=where, value=error.value) from None
