"""What-if grids: what memory saves over drift and compliance, and where one arm overtakes another."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from invsim.errors import InputError
from invsim.report.figures.style import INK, PAGE, Row, headline, page, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class WhatIf:
    """One cell of a grid.

    Parameters
    ----------
    drift : float
        On the horizontal axis, such as drift events per episode.
    compliance : float
        On the vertical axis, 0..1.
    saving : mapping of arm to float
        Share of the tokens saved against A0; below 0 memory costs.
    """

    drift: float
    compliance: float
    saving: Mapping[str, float]


def break_even_rows(cells: Sequence[WhatIf]) -> list[Row]:
    """Return the plotted values, one row a cell and arm."""
    return [
        {"drift": each.drift, "compliance": each.compliance, "arm": arm, "saving": value}
        for each in cells
        for arm, value in each.saving.items()
    ]


@styled
def break_even_figure(
    cells: Sequence[WhatIf],
    *,
    arm: str = "A2D",
    over: str = "A1",
    title: str = "",
    drift: str = "drift events per episode",
    compliance: str = "valid fixes applied (%)",
) -> Figure:
    """Draw what two arms save, and how much more the one saves than the other, with the lines where each breaks even.

    Parameters
    ----------
    cells : sequence of WhatIf
        Every drift with every compliance, once.
    arm, over : str
        The arm in question, and the one it is held against.
    title : str, optional
        By default what the grid shows of the two.
    drift, compliance : str
        Labels of the axes.

    Raises
    ------
    InputError
        A grid with a hole, or with fewer than two values on an axis.
    """
    xs = sorted({each.drift for each in cells})
    ys = sorted({each.compliance for each in cells})
    known = {(each.drift, each.compliance): each.saving for each in cells}
    if len(known) != len(xs) * len(ys) or len(known) != len(cells) or min(len(xs), len(ys)) < 2:
        raise InputError(
            "a grid has every drift with every compliance, once, and two or more of each", value=len(cells)
        )
    grids = {name: [[100 * known[x, y][name] for x in xs] for y in ys] for name in (over, arm)}
    gap = [[a - b for a, b in zip(*each, strict=True)] for each in zip(grids[arm], grids[over], strict=True)]
    figure = page(PAGE, 2.75)
    axes = figure.subplots(1, 3, sharey=True)
    percent = [100 * y for y in ys]
    limit = max(abs(value) for grid in grids.values() for line in grid for value in line)
    for axis, name in zip(axes, (over, arm), strict=False):
        mesh = _heat(axis, xs, percent, grids[name], limit)
        axis.set_title(f"{name}: token saving against A0")
    figure.colorbar(mesh, ax=list(axes[:2]), pad=0.01, aspect=22).ax.set_title("%", loc="left")
    difference = _heat(axes[2], xs, percent, gap, max(abs(value) for line in gap for value in line))
    axes[2].set_title(f"{arm} less {over}")
    figure.colorbar(difference, ax=axes[2], pad=0.02, aspect=22).ax.set_title("points", loc="left")
    for axis in axes:
        axis.set_xlabel(drift)
    axes[0].set_ylabel(compliance)
    headline(figure, title or _finding(cells, arm, over, xs))
    return figure


def crossing(cells: Sequence[WhatIf], *, arm: str, drift: float) -> float | None:
    """Return the least compliance, 0..1, from which an arm saves at one drift; None where it never does.

    Interpolated linearly between cells.
    """
    column = sorted((each.compliance, each.saving[arm]) for each in cells if each.drift == drift)
    for (low, below), (high, above) in itertools.pairwise(column):
        if below < 0 <= above:
            return low + (high - low) * -below / (above - below)
    return column[0][0] if column[0][1] >= 0 else None


def _finding(cells: Sequence[WhatIf], arm: str, over: str, xs: Sequence[float]) -> str:
    def said(name: str, drift: float) -> str:
        level = crossing(cells, arm=name, drift=drift)
        return "never" if level is None else f"{level:.0%}"

    middle = xs[len(xs) // 2]
    return (
        f"Memory breaks even (thick line) at {said(arm, xs[0])} compliance at drift {xs[0]:g}; at drift {middle:g} it "
        f"takes {said(over, middle)} under {over}, {said(arm, middle)} under {arm}"
    )


def _heat(axis: Axes, xs: Sequence[float], ys: Sequence[float], grid: Sequence[Sequence[float]], most: float) -> Any:
    """Fill an axis from -most to most, with a thin line every other level and a thick one at 0."""
    step = max(1, math.ceil(most / 8))
    levels = [step * at for at in range(-8, 9)]
    mesh = axis.contourf(xs, ys, grid, levels=levels, cmap="PuOr_r")
    axis.contour(xs, ys, grid, levels=[level for level in levels[::2] if level], colors=INK, linewidths=0.4)
    flat = [value for line in grid for value in line]
    if min(flat) < 0 < max(flat):
        axis.contour(xs, ys, grid, levels=[0.0], colors=INK, linewidths=1.8)
    axis.grid(visible=False)
    return mesh
