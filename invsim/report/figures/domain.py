"""A domain drawn from its own objects: tables and their rows, rules as edges, policies, and one drift event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from invsim.report.figures.diagram import LINE, Arrow, Box, Diagram, Label, column, diagram_rows, draw, path, wrapped
from invsim.report.figures.style import PAGE, Row, styled
from invsim.world.domain import Domain
from invsim.world.policies import Lookup, Member, Policy
from invsim.world.rules import Graph, Rule, node_id, span
from invsim.world.server import ReloadReport
from invsim.world.tables import Table
from invsim.world.wire import Suggestion

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEFT, RIGHT = 1.95, PAGE - 0.05
ROW, HEAD = 0.135, 0.19
POLICIES = "policies, with the shape of their hints, ◂ the table a fix is read from, & what else they consult"
GAP, BAND = 0.16, 0.3
"""Heights and distances in inches: a row, a table's head, two tables in a column, two groups of tables."""


def depths(domain: Domain) -> dict[str, int]:
    """Return how many derivations lead to each table at the most; rules in a ring count once around."""
    found = {table.name: 0 for table in domain.tables}
    for _ in domain.tables:
        for rule in domain.rules:
            found[rule.to_table] = min(max(found[rule.to_table], found[rule.from_table] + 1), len(found) - 1)
    return found


def groups(domain: Domain) -> list[list[str]]:
    """Return the tables in groups that rules hold together, in the domain's order."""
    member = {table.name: table.name for table in domain.tables}
    for rule in domain.rules:
        kept, gone = member[rule.from_table], member[rule.to_table]
        member = {name: kept if group == gone else group for name, group in member.items()}
    found: dict[str, list[str]] = {}
    for table in domain.tables:
        found.setdefault(member[table.name], []).append(table.name)
    return list(found.values())


def _height(table: Table, rules: Sequence[Rule]) -> float:
    return HEAD + ROW * (len(table.rows) + sum(rule.from_table == table.name for rule in rules))


def _places(domain: Domain) -> tuple[dict[str, tuple[float, float, float]], float]:
    """Return where each table's upper left corner is, its width, and the height of it all; y grows downwards here."""
    depth, tables = depths(domain), {table.name: table for table in domain.tables}
    columns = max(depth.values()) + 1
    pitch = (RIGHT - LEFT + 0.4) / columns
    places: dict[str, tuple[float, float, float]] = {}
    top = 0.0
    for group in groups(domain):
        bottoms = dict.fromkeys(range(columns), top)
        for name in group:
            at = depth[name]
            places[name] = (LEFT + at * pitch, bottoms[at], pitch - 0.4)
            bottoms[at] += _height(tables[name], domain.rules) + GAP
        top = max(bottoms.values()) - GAP + BAND
    return places, top - BAND


def domain_diagram(domain: Domain, report: ReloadReport) -> Diagram:
    """Return the diagram of a domain, with what one reload changed and what lies downstream of it marked."""
    graph = span({table.name: table for table in domain.tables}, domain.rules)
    changed = {node_id(report.diff.table, key) for key in report.diff.keys}
    marks = dict.fromkeys(report.affected_downstream, "downstream") | dict.fromkeys(changed, "changed")
    places, tall = _places(domain)
    foot, strip = 0.12, 0.66
    base = foot + strip + 0.34
    height = base + max(tall, 2.75) + 0.22
    boxes = [each for table in domain.tables for each in _table(table, places[table.name], height - 0.22, marks)]
    edges = _edges(graph, {box.name: box for box in boxes}, marks)
    rules = [
        Label(
            places[name][0] + 0.05, height - 0.22 - places[name][1] - _height(table, domain.rules) + ROW * (at + 0.45),
            f"→ {rule.relation}", align="left", code=True,
        )
        for name, table in ((table.name, table) for table in domain.tables)
        for at, rule in enumerate(rule for rule in domain.rules if rule.from_table == name)
    ]  # fmt: skip
    model = _model(height - 0.22, base)
    policies = _policies(domain.policies, foot, strip)
    labels = (
        Label(0.05, height - 0.1, "the model", align="left", strong=True),
        Label(LEFT, height - 0.1, f"{domain.title}: rows as nodes (table:key), rules as edges", "left", strong=True),
        Label(0.05, foot + strip + 0.12, f"{domain.title}: {POLICIES}", "left", strong=True),
        Label(5.72, height - 0.1, "changed", align="left"),
        Label(6.4, height - 0.1, "downstream", align="left"),
        *rules,
    )  # fmt: skip
    keys = (
        Box("key of changed", 5.58, height - 0.145, 0.09, 0.09, kind="changed"),
        Box("key of downstream", 6.26, height - 0.145, 0.09, 0.09, kind="downstream"),
    )
    reached = len(report.affected_downstream)
    title = (
        f"{len(graph.nodes)} rows, {len(graph.edges)} derivations: a change of "
        f"{', '.join(report.diff.keys)} reaches {reached} row{'s' if reached != 1 else ''} downstream"
    )
    return Diagram(PAGE, height, title, (*boxes, *model, *policies, *keys), (*edges, *column(model)), labels)


def _table(table: Table, place: tuple[float, float, float], top: float, marks: Mapping[str, str]) -> list[Box]:
    x, down, width = place
    head = Box(table.name, x, top - down - HEAD, width, HEAD, "", (f"{table.name}  {table.version}",), "server")
    rows = [
        Box(name, x, top - down - HEAD - ROW * (at + 1), width, ROW, "", (key,), marks.get(name, "row"))
        for at, (key, name) in enumerate((key, node_id(table.name, key)) for key in table.rows)
    ]
    return [head, *rows]


def _edges(graph: Graph, boxes: Mapping[str, Box], marks: Mapping[str, str]) -> list[Arrow]:
    return [
        Arrow(
            start, end, path(boxes[start].right, boxes[end].left), relation, head=False,
            strong=start in marks and end in marks,
        )
        for start, end, relation in graph.edges
    ]  # fmt: skip


def _model(top: float, base: float) -> list[Box]:
    """Return the classes of the model as a column of boxes, each with what it holds and what it does to the next."""
    properties = [name for name, value in vars(Policy).items() if isinstance(value, property)]
    parts = (
        (ReloadReport, [each.name for each in fields(ReloadReport)], "drift: new rows, new version"),
        (Table, ["name", "rows", "version"], "keyed rows, versioned"),
        (Rule, [each.name for each in fields(Rule)][:3], "joins rows of two tables"),
        (Policy, [*properties, "check"], "consults tables by rules"),
        (Suggestion, [each.name for each in fields(Suggestion)], "sent when violated"),
    )
    lines = [(kind.__name__, (what, *wrapped(names, 32))) for kind, names, what in parts]
    room = top - base
    heights = [LINE * (len(text) + 1) + 0.1 for _, text in lines]
    gap = (room - sum(heights)) / (len(lines) - 1)
    boxes, y = [], top
    for (title, text), height in zip(lines, heights, strict=True):
        boxes.append(Box(title, 0.05, y - height, 1.6, height, title, text, "client"))
        y -= height + gap
    return boxes


def _policies(policies: Sequence[Policy], y: float, height: float) -> list[Box]:
    gap = 0.08
    width = (PAGE - 0.1 + gap) / len(policies) - gap
    return [
        Box(policy.type, 0.05 + at * (width + gap), y, width, height, "", (policy.type, *_consulted(policy)), "server")
        for at, policy in enumerate(policies)
    ]


def _consulted(policy: Policy) -> list[str]:
    lines = [str(policy.shape), f"◂ {policy.table}" if policy.table else "◂ the request (recompute)"]
    if isinstance(policy, Lookup):
        lines += [f"& {condition.table}" for condition in policy.when]
    if isinstance(policy, Member):
        lines.append(f"& {policy.registry}")
    return lines


@styled
def domain_figure(domain: Domain, report: ReloadReport) -> Figure:
    """Draw a domain and one reload of it."""
    return draw(domain_diagram(domain, report))


def domain_rows(domain: Domain, report: ReloadReport) -> list[Row]:
    """Return what the domain's diagram says."""
    return diagram_rows(domain_diagram(domain, report))
