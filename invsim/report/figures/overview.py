"""The system at a glance: a client, a server, and what travels between them, named as the code names them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from invsim.client.agent import Agent
from invsim.client.arms import Arm, arm_names
from invsim.client.memory import Entry, Memory
from invsim.client.planners.base import ComplianceModel
from invsim.report.figures.diagram import Arrow, Box, Diagram, Label, diagram_rows, draw, path, wrapped
from invsim.report.figures.style import PAGE, Row, styled
from invsim.world.domain import Domain
from invsim.world.policies import Policy, Violation
from invsim.world.rules import Graph, Rule
from invsim.world.server import ReloadReport, Server, World
from invsim.world.tables import Diff, Table
from invsim.world.wire import Level, Request, Response, account

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def wire_fields(domain: Domain, requests: Sequence[Request]) -> dict[str, tuple[str, ...]]:
    """Return, by level, the contract's fields that its responses carry and no lower level's do."""
    seen: set[str] = set()
    found: dict[str, tuple[str, ...]] = {}
    for level in Level:
        world = domain.world(level=level)
        carried = dict.fromkeys(name for each in requests for name in account(world.respond(each)).fields)
        found[level.name] = tuple(name for name in carried if name not in seen)
        seen |= set(carried)
    return found


def _name(*parts: Any) -> str:
    return ".".join(part if isinstance(part, str) else part.__name__ for part in parts)


def _fields(kind: type, *names: str) -> str:
    """Return some fields of a class as text; one that it has not is an error of ours, caught at once."""
    known = [each.name for each in fields(kind)]
    missing = [name for name in names if name not in known]
    if missing:
        raise AttributeError(f"{kind.__name__} has no {missing}")
    return ", ".join(names)


def overview(wire: dict[str, tuple[str, ...]]) -> Diagram:
    """Return the diagram of client and server; ``wire`` is what ``wire_fields`` returns."""
    arms = arm_names()
    client = (
        Box("planner", 0.17, 2.43, 2.5, 0.42, "planner", (_name(ComplianceModel, ComplianceModel.decide),)),
        Box(
            "memory", 0.17, 0.3, 0.98, 1.68, "memory store",
            (_name(Memory), "", _name(Entry) + ":", *_fields(Entry, "slot", "value", "table", "stamps").split(", ")),
        ),
        Box("extraction", 1.6, 1.46, 1.07, 0.52, "fix extraction", (_name(Agent, Agent.commit),)),
        Box(
            "eviction", 1.6, 0.3, 1.07, 0.86, "eviction policy",
            (_name(Arm, Arm.observe), " ".join(arms[:4]), " ".join(arms[4:7]), " ".join(arms[7:])),
        ),
    )  # fmt: skip
    server = (
        Box("policies", 4.33, 2.43, 2.5, 0.42, "business policies", (_name(Policy, Policy.check),)),
        Box("feedback", 4.33, 1.46, 1.07, 0.52, "feedback generator", (_name(World, World.respond),)),
        Box(
            "registry", 5.76, 1.46, 1.07, 0.52, "versioned registry",
            (f"{_name(Rule)}, {_name(Graph)}", "rules_version"),
        ),
        Box("reload", 4.33, 0.3, 1.07, 0.52, "reload endpoint", (_name(Server.reload_table), "diff, then walk")),
        Box(
            "tables", 5.76, 0.3, 1.07, 0.52, "reference tables",
            (f"{_name(Table)}:", _fields(Table, "rows", "version")),
        ),
    )  # fmt: skip
    arrows = (
        Arrow("planner", "policies", path((2.67, 2.64), (4.33, 2.64)), _name(Request)),
        Arrow("feedback", "extraction", path((4.33, 1.72), (2.67, 1.72)), _name(Response)),
        Arrow("feedback", "eviction", path((2.88, 1.72), (2.88, 0.95), (2.67, 0.95)), "stamps"),
        Arrow("reload", "eviction", path((4.33, 0.5), (2.67, 0.5)), _name(ReloadReport), dashed=True),
        Arrow("extraction", "memory", path((1.6, 1.72), (1.15, 1.72)), "store"),
        Arrow("eviction", "memory", path((1.6, 0.73), (1.15, 0.73)), "evict, restamp"),
        Arrow("memory", "planner", path((0.66, 1.98), (0.66, 2.43)), "cached fixes"),
        Arrow("policies", "feedback", path((4.86, 2.43), (4.86, 1.98)), _name(Violation)),
        Arrow("registry", "policies", path((6.3, 1.98), (6.3, 2.43)), "derivations"),
        Arrow("tables", "registry", path((6.3, 0.82), (6.3, 1.46)), "rows, versions"),
        Arrow("reload", "tables", path((5.4, 0.56), (5.76, 0.56)), "new rows"),
        Arrow("drift", "reload", path((4.86, 1.22), (4.86, 0.82)), "data drift"),
    )
    added = [
        f"{level if first else '  '}  {text}"
        for level, names in wire.items()
        for first, text in zip((True, *[False] * len(names)), wrapped(names, 20) if names else (), strict=False)
    ]
    labels = (
        Label(3.5, 2.74, _name(Request)),
        Label(3.5, 1.82, _name(Response)),
        *(Label(2.97, 1.58 - 0.13 * at, text, align="left", code=True) for at, text in enumerate(added)),
        Label(3.5, 0.61, _name(ReloadReport)),
        Label(3.5, 0.4, _fields(Diff, "added", "removed", "changed"), code=True),
        Label(3.5, 0.28, _fields(ReloadReport, "affected_downstream"), code=True),
        Label(0.74, 2.21, "cached fixes", align="left"),
        Label(1.375, 1.83, "store"),
        Label(1.375, 0.91, "evict,\nrestamp"),
        Label(4.78, 2.21, _name(Violation), align="right"),
        Label(6.22, 2.21, "derivations", align="right"),
        Label(6.22, 1.14, "rows, versions", align="right"),
        Label(4.94, 1.14, "data drift", align="left", strong=True),
    )  # fmt: skip
    frames = (
        Box("client", 0.05, 0.12, 2.74, 2.98, "client", kind="client"),
        Box("server", 4.21, 0.12, 2.74, 2.98, "server", kind="server"),
    )
    title = "The contract rides on every response; what a client makes of it is the arm's choice"
    return Diagram(PAGE, 3.15, title, (*client, *server), arrows, labels, frames)


@styled
def overview_figure(wire: dict[str, tuple[str, ...]]) -> Figure:
    """Draw the system; ``wire`` is what ``wire_fields`` returns."""
    return draw(overview(wire))


def overview_rows(wire: dict[str, tuple[str, ...]]) -> list[Row]:
    """Return what the overview says."""
    return diagram_rows(overview(wire))
