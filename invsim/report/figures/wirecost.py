"""What each wire level adds to a response, field by field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from invsim.report.figures.style import COLUMN, INK, Look, Row, headline, legend_below, page, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIELDS = {
    "body": Look("#EDEDED"),
    "suggestion": Look("#BDBDBD", hatch="...."),
    "cache_hint": Look("#E69F00", hatch="////"),
    "table": Look("#F7DC83", hatch="xxxx"),
    "tables": Look("#C2477F", hatch="\\\\\\\\"),
    "table_versions": Look("#0A3F73"),
    "rules_version": Look("#3E8FD0", hatch="----"),
}
"""Parts of a response: its body, the suggestion proper, and the contract's fields."""


@dataclass(frozen=True)
class WireCost:
    """Mean bytes per response at one level, by part; they sum to the response."""

    level: str
    responses: int
    parts: Mapping[str, float]

    @property
    def total(self) -> float:
        """Mean bytes of a response."""
        return sum(self.parts.values())

    @property
    def contract(self) -> float:
        """Mean bytes of the contract's fields."""
        return self.total - self.parts.get("body", 0.0) - self.parts.get("suggestion", 0.0)


def wire_rows(costs: Sequence[WireCost]) -> list[Row]:
    """Return the plotted values, one row a level and part."""
    return [
        {"level": each.level, "responses": each.responses, "part": name, "bytes": value}
        for each in costs
        for name, value in each.parts.items()
    ]


@styled
def wire_figure(costs: Sequence[WireCost]) -> Figure:
    """Draw a stacked bar a level, and above it what the contract adds."""
    figure = page(COLUMN, 2.9)
    axis = figure.subplots()
    floor = [0.0] * len(costs)
    for name, look in FIELDS.items():
        heights = [each.parts.get(name, 0.0) for each in costs]
        if any(heights):
            axis.bar(
                range(len(costs)), heights, bottom=floor, width=0.62, color=look.colour, hatch=look.hatch,
                edgecolor="white", linewidth=0, label=name,
            )  # fmt: skip
            floor = [low + high for low, high in zip(floor, heights, strict=True)]
    for at, each in enumerate(costs):
        if each.contract:
            axis.text(at, each.total + 6, f"+{each.contract:.0f} B", ha="center", va="bottom", fontsize=6.2, color=INK)
    axis.set_xticks(range(len(costs)), [each.level for each in costs])
    axis.set_xlabel("wire level")
    axis.set_ylabel("mean bytes per response")
    axis.set_ylim(0, 1.12 * max(each.total for each in costs))
    axis.grid(axis="x", visible=False)
    first, *finer = [each for each in costs if each.contract]
    share = first.parts.get("table_versions", 0.0) / first.contract
    steps = [
        f"{each.level} adds {each.contract - before.contract:.0f} B more"
        for before, each in pairwise([first, *finer])
        if each.contract > before.contract
    ]
    headline(
        figure,
        "; ".join([f"The version dictionary is {share:.0%} of what the contract adds at {first.level}", *steps]),
    )
    legend_below(figure, [axis], columns=3)
    return figure
