"""Figures of fitted compliance: rates by shape and model, and whether the fit describes what was observed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from invsim.report.figures.style import FAINT, INK, headline, legend_below, page, shortened, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Cell: TypeAlias = Mapping[str, Any]
"""A cell as a row: model, shape, kind, status, trials, applied, alpha, beta, rate with lo and hi, pooled with pooled_lo
and pooled_hi, cluster_lo and cluster_hi, predicted_lo and predicted_hi; None for what is unknown."""

KINDS = {"first_attempt": "an injected fix", "recovery": "a hint after an error"}
POOLED = "#E69F00"


@styled
def forest_figure(cells: Sequence[Cell], *, title: str) -> Figure:
    """Draw compliance by shape and model: raw with Jeffreys' interval and, thin, that over tasks; pooled beside it.

    Parameters
    ----------
    cells : sequence of Cell
        One panel for each kind of trial that has data.
    title : str
    """
    kinds = [kind for kind in KINDS if any(cell["kind"] == kind and cell["trials"] for cell in cells)]
    labels = sorted({_label(cell) for cell in cells})  # by shape, so that models stand together
    figure = page(1.8 + 2.6 * max(1, len(kinds)), 1.0 + 0.24 * len(labels))
    axes = figure.subplots(1, max(1, len(kinds)), sharey=True, squeeze=False)[0]
    for axis, kind in zip(axes, kinds, strict=False):
        for cell in cells:
            if cell["kind"] == kind:
                _draw_cell(axis, cell, labels.index(_label(cell)))
        axis.set_title(f"applied {KINDS[kind]}")
        axis.set_xlabel("share of trials, 0 to 1")
        axis.set_xlim(-0.04, 1.04)
        axis.grid(axis="y", visible=False)
    if not kinds:
        axes[0].text(0.5, 0.5, "no trials", transform=axes[0].transAxes, ha="center", va="center", color=FAINT)
    axes[0].set_yticks(range(len(labels)), [shortened(label) for label in labels])
    axes[0].set_ylim(len(labels) - 0.5, -0.5)
    legend_below(figure, list(axes))
    headline(figure, title)
    return figure


def _label(cell: Cell) -> str:
    return ", ".join(str(cell[name]) for name in ("shape", "constraint", "arm", "model") if cell.get(name) is not None)


def _draw_cell(axis: Axes, cell: Cell, at: int) -> None:
    if cell["rate"] is None:
        axis.text(1.0, at - 0.2, cell["status"], ha="right", va="center", color=FAINT, fontsize="small")
    else:
        if cell["cluster_lo"] is not None:
            axis.hlines(
                at - 0.15, cell["cluster_lo"], cell["cluster_hi"], color=INK, linewidth=0.5, linestyle=":",
                label="over tasks",
            )  # fmt: skip
        reach = _reach(cell["rate"], cell["lo"], cell["hi"])
        axis.errorbar(
            cell["rate"], at - 0.15, xerr=reach, color=INK, marker="o", linestyle="", label="raw, Jeffreys"
        )  # fmt: skip
    if cell["pooled"] is not None:
        reach = _reach(cell["pooled"], cell["pooled_lo"], cell["pooled_hi"])
        axis.errorbar(
            cell["pooled"], at + 0.15, xerr=reach, color=POOLED, marker="s", linestyle="", label="pooled over models"
        )  # fmt: skip


def _reach(value: float, lo: float, hi: float) -> list[list[float]]:
    return [[max(value - lo, 0.0)], [max(hi - value, 0.0)]]


@styled
def predictive_figure(cells: Sequence[Cell], *, title: str) -> Figure:
    """Draw the share applied of each cell against what its posterior predicts for as many trials.

    A cell off its interval is one that the fit does not describe. The cell's own data are in its posterior, so this
    shows misfit and no skill at prediction.

    Parameters
    ----------
    cells : sequence of Cell
    title : str
    """
    import matplotlib as mpl

    figure = page(3.4, 3.7)
    axis = figure.subplots()
    axis.axline((0, 0), slope=1, color=FAINT, linewidth=0.8)
    names = list(dict.fromkeys(_series(cell) for cell in cells))
    looks = dict(zip(names, itertools.cycle(mpl.rcParams["axes.prop_cycle"]), strict=False))
    for cell in cells:
        if cell["predicted_lo"] is None:
            continue
        n, middle = cell["trials"], cell["alpha"] / (cell["alpha"] + cell["beta"])
        reach = _reach(middle, cell["predicted_lo"] / n, cell["predicted_hi"] / n)
        axis.errorbar(
            cell["applied"] / n, middle, yerr=reach, linestyle="", label=_series(cell), **looks[_series(cell)]
        )  # fmt: skip
    axis.set_xlabel("observed share applied")
    axis.set_ylabel("predicted share, with its interval")
    axis.set_xlim(-0.04, 1.04)
    axis.set_ylim(-0.04, 1.04)
    legend_below(figure, [axis], columns=2)
    headline(figure, title)
    return figure


def _series(cell: Cell) -> str:
    return str(cell["shape"] or cell["kind"])
