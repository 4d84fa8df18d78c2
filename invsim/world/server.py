"""The server: an immutable world that answers requests, and a holder that moves from one world to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from invsim.errors import InputError, UnknownNameError
from invsim.world.policies import Policy, Violation, require_columns
from invsim.world.rules import Graph, Rule, fingerprint, node_id, partners, span
from invsim.world.tables import Diff, Rows, Table
from invsim.world.wire import CacheHint, Level, Parameters, Request, Response, Suggestion

CACHE_LIMIT = 4096
"""Answers a world remembers; past that it starts afresh, so that odd traffic cannot fill memory."""


@dataclass(frozen=True)
class ReloadReport:
    """What a reload answers: old and new version, the diff, and the nodes downstream of the changed keys.

    ``affected_downstream`` is walked over the graph as it stood before the reload: the edges from the old data are
    the ones that the clients' entries were derived along, and the new data may no longer have them.
    """

    diff: Diff
    affected_downstream: tuple[str, ...]

    def to_dict(self) -> dict[str, object]:
        """Return plain data as sent."""
        diff = self.diff
        return {
            "table": diff.table,
            "old_version": diff.old_version,
            "new_version": diff.new_version,
            "diff": {"added": list(diff.added), "removed": list(diff.removed), "changed": list(diff.changed)},
            "affected_downstream": list(self.affected_downstream),
        }


@dataclass(frozen=True)
class RuleChange:
    """A rule declared (``added``) or withdrawn, and the fingerprint from then on."""

    rule: Rule
    added: bool
    rules_version: str

    def to_dict(self) -> dict[str, object]:
        """Return plain data as sent."""
        return {"rule": self.rule.to_dict(), "added": self.added, "rules_version": self.rules_version}


Report = ReloadReport | RuleChange


class World:
    """One state of the API: tables, rules, policies and the wire level. Every operation returns a new world.

    Because a world never changes, its answers can be remembered (``respond``) and a drift event that many streams
    replay is computed once (``after`` in ``invsim.world.drift``).

    Parameters
    ----------
    tables : mapping of name to Table
    rules : sequence of Rule
    policies : sequence of Policy
        Checked in order; every violated one contributes a suggestion.
    level : Level
    """

    def __init__(
        self,
        tables: Mapping[str, Table],
        rules: Sequence[Rule],
        policies: Sequence[Policy],
        *,
        level: Level = Level.L6,
    ) -> None:
        self.tables: Mapping[str, Table] = MappingProxyType(dict(tables))
        self.rules = tuple(rules)
        self.policies = tuple(policies)
        self.level = level
        self.versions: Mapping[str, str] = MappingProxyType(
            {name: table.version for name, table in self.tables.items()}
        )
        self.rules_version = fingerprint(self.rules)
        self._answers: dict[Request, Response] = {}
        self._heeded: dict[tuple[Request, str], bool] = {}
        self._vectors: dict[str, tuple[str, ...]] = {}
        self.successors: dict[object, tuple[World, Report]] = {}

    @cached_property
    def graph(self) -> Graph:
        """The derivation graph of this state."""
        return span(self.tables, self.rules)

    def vector(self, table: str) -> tuple[str, ...]:
        """Return the tables that a fix read from ``table`` depends on."""
        if table not in self._vectors:
            self._vectors[table] = partners(self.rules, table)
        return self._vectors[table]

    def violations(self, fields: Parameters) -> list[tuple[Policy, Violation]]:
        """Return every policy the fields break, in policy order."""
        found = [(policy, policy.check(fields, self.tables)) for policy in self.policies]
        return [(policy, violation) for policy, violation in found if violation is not None]

    def respond(self, request: Request) -> Response:
        """Answer a request, remembering the answer for this very request object."""
        answer = self._answers.get(request)
        if answer is None:
            if len(self._answers) >= CACHE_LIMIT:
                self._answers.clear()
            answer = self._answers[request] = self.evaluate(request)
        return answer

    def heeds(self, request: Request, family: str) -> bool:
        """Return whether a request satisfies the policy of one family, whatever else it breaks."""
        if self.respond(request).ok:
            return True
        asked = (request, family)
        if asked not in self._heeded:
            if len(self._heeded) >= CACHE_LIMIT:
                self._heeded.clear()
            self._heeded[asked] = all(policy.type != family for policy, _ in self.violations(request.fields))
        return self._heeded[asked]

    def evaluate(self, request: Request) -> Response:
        """Answer a request at this world's wire level."""
        broken = self.violations(request.fields)
        versions = self.versions if self.level >= Level.L1 else None
        rules_version = self.rules_version if self.level >= Level.L6 else None
        if not broken:
            return Response(ok=True, table_versions=versions, rules_version=rules_version)
        suggestions = [
            self._suggestion(policy, violation.parameters)
            for policy, violation in broken
            if violation.parameters is not None and self.level >= Level.L1
        ]
        return Response(
            ok=False,
            error="; ".join(violation.message for _, violation in broken),
            suggestions=tuple(suggestions),
            table_versions=versions,
            rules_version=rules_version,
        )

    def _suggestion(self, policy: Policy, parameters: Parameters) -> Suggestion:
        if policy.table is None:
            return Suggestion(policy.type, parameters, CacheHint.RECOMPUTE)
        vector = None
        if self.level >= Level.L4:
            vector = tuple((name, self.versions[name]) for name in self.vector(policy.table))
        return Suggestion(policy.type, parameters, CacheHint.CACHEABLE, policy.table, vector)

    def solution(self, request: Request) -> Request | None:
        """Return the request with every violation mended, or None when some policy knows no fix.

        What a planner arrives at when it works the answer out by itself; it does not depend on the wire level.
        """
        for _ in range(len(self.policies) + 1):
            broken = self.violations(request.fields)
            if not broken:
                return request
            if any(violation.parameters is None for _, violation in broken):
                return None
            for _, violation in broken:
                request = request.merged(violation.parameters or {})
        return None

    def reloaded(self, table: str, rows: Rows, version: str | None = None) -> tuple[World, ReloadReport]:
        """Load new rows into a table; the version is bumped even when they are the same (a benign republish)."""
        new, diff = self._table(table).reloaded(rows, version)
        require_columns(self.policies, new)
        before = self.graph
        affected = before.downstream(node_id(table, key) for key in diff.keys)
        world = World({**self.tables, table: new}, self.rules, self.policies, level=self.level)
        return world, ReloadReport(diff, affected)

    def declared(self, rule: Rule) -> tuple[World, RuleChange]:
        """Add a rule."""
        self._table(rule.from_table)
        self._table(rule.to_table)
        if any(rule.triple == each.triple for each in self.rules):
            raise InputError("rule is declared already", value=rule.triple)
        world = World(self.tables, (*self.rules, rule), self.policies, level=self.level)
        return world, RuleChange(rule, True, world.rules_version)

    def withdrawn(self, triple: tuple[str, str, str]) -> tuple[World, RuleChange]:
        """Remove the rule of that triple."""
        for rule in self.rules:
            if rule.triple == triple:
                rest = tuple(each for each in self.rules if each is not rule)
                world = World(self.tables, rest, self.policies, level=self.level)
                return world, RuleChange(rule, False, world.rules_version)
        known = (" -> ".join(each.edge) + f" ({each.relation})" for each in self.rules)
        raise UnknownNameError("rule", f"{triple[0]} -> {triple[1]} ({triple[2]})", known)

    def _table(self, name: str) -> Table:
        if name not in self.tables:
            raise UnknownNameError("table", name, self.tables)
        return self.tables[name]


class Server:
    """A running API: the current world, the last reload of each table, and the log of rule changes."""

    __slots__ = ("_reloads", "_rule_log", "world")

    def __init__(self, world: World) -> None:
        self.world = world
        self._reloads: dict[str, ReloadReport] = {}
        self._rule_log: list[RuleChange] = []

    @property
    def rule_log(self) -> Sequence[RuleChange]:
        """Rule changes so far, oldest first."""
        return self._rule_log

    def handle(self, request: Request) -> Response:
        """Answer a business request."""
        return self.world.respond(request)

    def last_reload(self, table: str) -> ReloadReport | None:
        """Return what the last reload of a table reported; None when it has not been reloaded."""
        return self._reloads.get(table)

    def reload_table(self, table: str, rows: Rows, version: str | None = None) -> ReloadReport:
        """Load new rows into a table (POST /admin/reload-table)."""
        world, report = self.world.reloaded(table, rows, version)
        self.move(world, report)
        return report

    def declare_rule(self, rule: Rule) -> RuleChange:
        """Declare a derivation rule."""
        world, change = self.world.declared(rule)
        self.move(world, change)
        return change

    def withdraw_rule(self, triple: tuple[str, str, str]) -> RuleChange:
        """Withdraw a derivation rule."""
        world, change = self.world.withdrawn(triple)
        self.move(world, change)
        return change

    def graph(self) -> Graph:
        """Return the derivation graph (GET /admin/graph)."""
        return self.world.graph

    def move(self, world: World, report: Report) -> None:
        """Enter a new world and record how it came about."""
        self.world = world
        if isinstance(report, ReloadReport):
            self._reloads[report.diff.table] = report
        else:
            self._rule_log.append(report)
