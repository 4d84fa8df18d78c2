"""Tables 1 and 2, which define: worked out from the objects that enforce them, beside what the paper ticks."""

from __future__ import annotations

from dataclasses import dataclass

from invsim.client.arms import Arm, get_arm, ignore
from invsim.paper.claims import rows
from invsim.paper.context import Context
from invsim.world.domain import load_domain
from invsim.world.wire import Level, Response

STACKS = {
    "direct": ("claude-haiku-4-5", "claude-sonnet-4-6", "claude-sonnet-5"),
    "gateway": ("gpt-5.4-mini", "deepseek-v4-flash"),
    "translation": ("gpt-5-mini", "gemini-3.5-flash"),
}
"""Serving paths (section 4), and the models on each: the row blocks of Tables 3, 4 and 6."""

TITLES = {
    "L0": "raw feedback",
    "L1": "structured suggestion",
    "L2": "patch protocol",
    "L3": "amended input",
    "L4": "dependency vectors",
    "L5": "subgraph propagation",
    "L6": "rules fingerprint",
}
CONSUMPTION = {
    "L2": "one sentence of the system prompt: merge the parameters as they are",
    "L3": "the memory block shows a fix as done already",
}
"""What the consumption levels change: nothing that a server sends."""

COLUMNS = ("L2", "L3", "L1", "L4", "L5", "L6", "Diff")
"""Columns of Table 2, in its order."""


@dataclass(frozen=True)
class LevelRow:
    """A level: where it acts, the fields it adds to a response, and how the paper has it."""

    level: str
    title: str
    where: str
    adds: tuple[str, ...]
    factor: str
    printed_where: str

    @property
    def agrees(self) -> bool:
        """Whether the channel is the printed one."""
        return self.where == self.printed_where


@dataclass(frozen=True)
class CoverageRow:
    """An arm: the columns it reads, the ones that the paper ticks, and how many it ticks."""

    arm: str
    title: str
    reads: tuple[str, ...]
    printed: tuple[str, ...]
    count: int

    @property
    def ambiguous(self) -> bool:
        """Whether the print leaves open which columns are ticked."""
        return "?" in self.printed

    @property
    def agrees(self) -> bool:
        """Whether the arm reads what is ticked; where that is open, as many columns as are ticked."""
        ticked = {tick.strip("()") for tick in self.printed}
        return len(self.reads) == self.count if self.ambiguous else set(self.reads) == ticked


def failed(context: Context, level: Level) -> Response:
    """Return the answer to a funding request that breaks its policy, at a wire level."""
    task = next(task for task in context.plan("payments").episodes if task.constraint == "funding")
    return load_domain("acme").world(level=level).respond(task.request)


def fields(response: Response) -> tuple[str, ...]:
    """Return the contract's fields of a response: those of its suggestions, then its own."""
    body = response.to_dict()
    inner = response.suggestions[0].to_dict() if response.suggestions else {}
    return (
        *(name for name in ("type", "cache_hint", "table", "tables") if name in inner),
        *(name for name in ("table_versions", "rules_version") if name in body),
    )


def levels(context: Context) -> list[LevelRow]:
    """Return Table 1. A level on the wire is one that ``Level`` has; what it adds, a response tells."""
    found: list[LevelRow] = []
    before: tuple[str, ...] = ()
    for row in rows("levels.csv"):
        name = row["level"]
        wire = name in Level.__members__
        now = fields(failed(context, Level[name])) if wire else before
        adds = tuple(each for each in now if each not in before)
        if name == "L0":
            adds = ("error",)
        elif name == "L5":
            adds = (*adds, "GET /admin/graph")
        elif not wire:
            adds = (CONSUMPTION[name],)
        where = "wire" if wire else "consumption"
        found.append(LevelRow(name, TITLES[name], where, adds, row["factor"], row["where"]))
        before = now
    return found


def reads(arm: Arm) -> tuple[str, ...]:
    """Return the columns of Table 2 that an arm uses; all of them are shown fixes as at level 3."""
    uses = {
        "L2": True,
        "L3": True,
        "L1": arm.on_tables is not ignore,
        "L4": arm.vectors,
        "L5": arm.level == Level.L5,
        "L6": arm.level >= Level.L6,
        "Diff": "reloads" in arm.wants,
    }
    return tuple(name for name in COLUMNS if uses[name])


def coverage() -> list[CoverageRow]:
    """Return Table 2."""
    found = []
    for row in rows("coverage.csv"):
        arm = get_arm(row["arm"])
        found.append(CoverageRow(arm.name, arm.title, reads(arm), tuple(row["ticks"].split()), int(row["count"])))
    return found
