"""The savings equation of each model and arm, from what memory could save to what it saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from invsim.report.figures.style import INK, PAGE, PUBLISHED, Look, Row, headline, page, styled
from invsim.stats.savings import TERMS, Saving, misleads

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOSSES = {
    "product": ("$S_{max}VC$, the product", Look("#0A3F73")),
    "unapplied": ("$S_{max}V(1-C)$, not applied", Look("#8DB7DC", hatch="////")),
    "invalid": ("$S_{max}(1-V)$, no valid fix", Look("#E3E3E3", hatch="....")),
}
"""How S_max divides: what the product keeps, and what is lost to compliance and to validity."""

CORRECTIONS = {
    "conflicts": ("fresh picked in a conflict", Look("#E69F00", hatch="")),
    "stale": ("stale fix applied", Look("#4A1500", hatch="xxxx")),
    "refusals": ("valid fix declined", Look("#C2477F", hatch="\\\\\\\\")),
    "recovery": ("recovery, fix injected", Look("#3F7FBF", hatch="----")),
    "uninjected": ("chance, no fix", Look("#F3E79B", hatch="oo")),
}
"""What the product leaves out, in the order it is added."""

SHOWN = 0.005
"""Retries below which a correction is not drawn."""


@dataclass(frozen=True)
class Decomposition:
    """The savings equation of one model and arm, and the published retries that memory saved (A0 less the arm)."""

    model: str
    arm: str
    saving: Saving
    published: float | None

    @property
    def parts(self) -> dict[str, float]:
        """S_max divided into what the product keeps and what it loses, in retries per stream."""
        top, kept = self.saving.s_max, self.saving.product
        valid = top * (self.saving.validity or 0.0)
        return {"product": kept, "unapplied": valid - kept, "invalid": top - valid}

    def row(self) -> Row:
        """Return the plotted values, in retries per stream but for the two rates."""
        saving = self.saving
        return {
            "model": self.model,
            "arm": self.arm,
            "s_max": saving.s_max,
            "validity": saving.validity,
            "compliance": saving.compliance,
            **self.parts,
            **saving.corrections,
            "realised": saving.realised,
            "published": self.published,
        }


def decomposition_rows(found: Sequence[Decomposition]) -> list[Row]:
    """Return the plotted values."""
    return [each.row() for each in found]


@styled
def decomposition_figure(found: Sequence[Decomposition]) -> Figure:
    """Draw a panel a model and a row an arm: S_max above, below it from the product to what is realised."""
    models = list(dict.fromkeys(each.model for each in found))
    columns = 4
    rows = -(-(len(models) + 1) // columns)
    figure = page(PAGE, 0.5 + 1.75 * rows)
    axes = figure.subplots(rows, columns, sharey=True, squeeze=False).ravel()
    for axis, model in zip(axes, models, strict=False):
        _panel(axis, [each for each in found if each.model == model])
        axis.set_title(model)
    for axis in axes[: len(models) : columns]:
        axis.set_ylabel("arm")
    for axis in axes[len(models) :]:
        axis.set_axis_off()
    _legend(axes[len(models)], found)
    wrong = sum(misleads(each.saving) for each in found)
    headline(
        figure,
        "Invalidation raises validity V; the model's compliance C decides how much of it is saved. The product alone "
        f"misleads in {wrong} of {len(found)} cells",
    )
    return figure


def _panel(axis: Axes, mine: Sequence[Decomposition]) -> None:
    for at, each in enumerate(mine):
        left = 0.0
        for name, width in each.parts.items():
            label, look = LOSSES[name]
            axis.barh(
                at - 0.12, width, height=0.42, left=left, color=look.colour, hatch=look.hatch, edgecolor="white",
                linewidth=0, label=label,
            )  # fmt: skip
            left += width
        _corrections(axis, each, at + 0.22)
        axis.plot([each.saving.realised] * 2, [at + 0.09, at + 0.35], color=INK, linewidth=1.6, marker="")
        if each.published is not None:
            axis.plot(
                each.published, at + 0.22, marker="D", markersize=3.8, markerfacecolor="white", markeredgecolor=INK,
                markeredgewidth=0.8, linestyle="", zorder=4,
            )  # fmt: skip
        axis.annotate(
            _rates(each.saving), (1.0, at - 0.12), xycoords=("axes fraction", "data"), ha="right", va="center",
            fontsize=5.8,
        )  # fmt: skip
    axis.axvline(0.0, color=INK, linewidth=0.6)
    axis.spines["left"].set_visible(False)
    axis.tick_params(axis="y", length=0)
    axis.set_yticks(range(len(mine)), [each.arm for each in mine])
    axis.set_ylim(len(mine) - 0.45, -0.5)
    most = max(each.saving.s_max for each in mine)
    axis.set_xlim(min(0.0, *(each.saving.realised for each in mine)) - 0.04 * most, 1.95 * most)
    axis.set_xlabel("retries saved per stream")
    axis.grid(axis="y", visible=False)


def _rates(saving: Saving) -> str:
    rates = {"V": saving.validity, "C": saving.compliance}
    return "  ".join(f"{name} {value:.2f}" for name, value in rates.items() if value is not None)


def _corrections(axis: Axes, each: Decomposition, at: float) -> None:
    """Step from the product to what is realised, one correction after the other."""
    level = each.saving.product
    for name in TERMS:
        value = each.saving.corrections[name]
        if abs(value) >= SHOWN:
            label, look = CORRECTIONS[name]
            axis.barh(
                at, value, height=0.16, left=level, color=look.colour, hatch=look.hatch, edgecolor="white", linewidth=0,
                label=label,
            )  # fmt: skip
        level += value


def _legend(axis: Axes, found: Sequence[Decomposition]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    used = {name for each in found for name, value in each.saving.corrections.items() if abs(value) >= SHOWN}
    patches = [
        Patch(facecolor=look.colour, hatch=look.hatch, edgecolor="white", linewidth=0, label=label)
        for label, look in (*LOSSES.values(), *(CORRECTIONS[name] for name in TERMS if name in used))
    ]
    realised = Line2D([], [], color=INK, marker="|", markersize=7, markeredgewidth=1.6, linestyle="", label="realised")
    printed = Line2D(
        [], [], marker="D", markersize=3.8, markerfacecolor="white", markeredgecolor=INK, markeredgewidth=0.8,
        linestyle="", label=PUBLISHED,
    )  # fmt: skip
    legend = axis.legend(
        handles=[*patches, realised, printed], loc="center left", bbox_to_anchor=(-0.12, 0.45), fontsize=6.2
    )
    for text in legend.get_texts():
        text.set_parse_math(True)
