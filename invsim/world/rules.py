"""Derivation rules, their fingerprint, and the graph they span over the rows of the tables."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import msgspec

from invsim.world.tables import Table

FINGERPRINT_LENGTH = 12


@dataclass(frozen=True)
class Rule:
    """A declaration that a value of one table must correspond to a value of another.

    Parameters
    ----------
    from_table, to_table, relation : str
        The triple that identifies the rule and enters the fingerprint.
    from_column, to_column : str or None
        Which values correspond; None means the row's key. They shape the graph, not the fingerprint.
    """

    from_table: str
    to_table: str
    relation: str
    from_column: str | None = None
    to_column: str | None = None

    @property
    def triple(self) -> tuple[str, str, str]:
        """The identity of the rule."""
        return self.from_table, self.to_table, self.relation

    @property
    def edge(self) -> tuple[str, str]:
        """The two tables it joins, in its direction."""
        return self.from_table, self.to_table

    def to_dict(self) -> dict[str, str]:
        """Return plain data as sent: columns that are the row's key are left out."""
        columns = {"from_column": self.from_column, "to_column": self.to_column}
        named = {name: column for name, column in columns.items() if column is not None}
        return {"from": self.from_table, "to": self.to_table, "relation": self.relation, **named}


def fingerprint(rules: Iterable[Rule]) -> str:
    """Return ``rules_version``: 12 hex characters of SHA-256 over the canonical JSON of the sorted triples.

    It changes when a rule is added, removed or redeclared with another relation, never with table data.
    """
    canonical = msgspec.json.encode(sorted(rule.triple for rule in rules))
    return hashlib.sha256(canonical).hexdigest()[:FINGERPRINT_LENGTH]


def partners(rules: Iterable[Rule], table: str) -> tuple[str, ...]:
    """Return the tables a fix from ``table`` depends on: itself and those it shares a derivation with.

    Tables that derive it come first, then itself, then the tables it derives; each once.
    """
    rules = tuple(rules)
    upstream = [rule.from_table for rule in rules if rule.to_table == table]
    downstream = [rule.to_table for rule in rules if rule.from_table == table]
    return tuple(dict.fromkeys([*upstream, table, *downstream]))


@dataclass(frozen=True)
class Node:
    """One row as a vertex of the graph; its identity is "table:key", never a value."""

    table: str
    key: str
    version: str


@dataclass(frozen=True)
class Graph:
    """The derivation graph: rows as nodes, rule instances as edges (from, to, relation)."""

    nodes: Mapping[str, Node]
    edges: tuple[tuple[str, str, str], ...]

    @cached_property
    def _successors(self) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {}
        for start, end, _ in self.edges:
            found.setdefault(start, []).append(end)
        return {start: tuple(ends) for start, ends in found.items()}

    def downstream(self, starts: Iterable[str]) -> tuple[str, ...]:
        """Return the nodes reached forward from ``starts``, breadth first, without the starts themselves."""
        queue = deque(starts)
        seen = set(queue)
        reached: list[str] = []
        while queue:
            for node in self._successors.get(queue.popleft(), ()):
                if node not in seen:
                    seen.add(node)
                    reached.append(node)
                    queue.append(node)
        return tuple(reached)

    def to_dict(self) -> dict[str, object]:
        """Return plain data in the shape that the graph endpoint sends."""
        nodes = {
            name: {"table": node.table, "key": node.key, "version": node.version} for name, node in self.nodes.items()
        }
        edges = [{"from": start, "to": end, "relation": relation} for start, end, relation in self.edges]
        return {"nodes": nodes, "edges": edges}


def node_id(table: str, key: str) -> str:
    """Return the identity of a row in the graph."""
    return f"{table}:{key}"


def span(tables: Mapping[str, Table], rules: Iterable[Rule]) -> Graph:
    """Build the graph: every row is a node, and a rule joins each pair of rows whose values correspond."""
    nodes = {
        node_id(table.name, key): Node(table.name, key, table.version)
        for table in tables.values()
        for key in table.rows
    }
    edges = []
    for rule in rules:
        ends: dict[object, list[str]] = {}
        for key in tables[rule.to_table].rows:
            for value in _values(tables[rule.to_table], key, rule.to_column):
                ends.setdefault(value, []).append(node_id(rule.to_table, key))
        for key in tables[rule.from_table].rows:
            start = node_id(rule.from_table, key)
            for value in _values(tables[rule.from_table], key, rule.from_column):
                edges += [(start, end, rule.relation) for end in ends.get(value, ())]
    return Graph(nodes, tuple(edges))


def _values(table: Table, key: str, column: str | None) -> list[object]:
    if column is None:
        return [key]
    value = table.rows[key].get(column)
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
