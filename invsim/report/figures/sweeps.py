"""The figure of any sweep: a metric along the parameter with most values, a panel for each point of the others."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from invsim.errors import InputError
from invsim.report.figures.style import ARMS, PAGE, Row, headline, page, styled
from invsim.report.tables import LABELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 12
"""Panels that still can be read."""

ACROSS = 4


def sweep_rows(rows: Sequence[Mapping[str, Any]], metric: str) -> list[Row]:
    """Return the plotted values: those of one metric, where it is defined."""
    return [dict(row) for row in rows if row["metric"] == metric and row["value"] is not None]


@styled
def sweep_figure(
    rows: Sequence[Mapping[str, Any]], *, vary: Mapping[str, Sequence[Any]], metric: str, title: str
) -> Figure:
    """Draw a metric of every arm, with its 95% interval.

    Parameters
    ----------
    rows : sequence of mapping
        With the parameters varied, and "arm", "metric", "value", "lo" and "hi".
    vary : mapping of str to sequence
        Values by parameter. The one with most numbers lies along the axis, or else the one with most names.
    metric, title : str

    Raises
    ------
    InputError
        For a metric that is defined nowhere, or more panels than a page takes.
    """
    shown = sweep_rows(rows, metric)
    if not shown:
        raise InputError("is defined in no cell", value=metric)
    along = _along(vary)
    others = {name: values for name, values in vary.items() if name != along}
    panels = [dict(zip(others, values, strict=True)) for values in itertools.product(*others.values())]
    if len(panels) > MOST:
        raise InputError(
            f"takes {MOST} panels at most; vary fewer parameters, or give them fewer values", value=len(panels)
        )
    across = min(ACROSS, len(panels))
    down = -(-len(panels) // across)
    figure = page(max(3.4, PAGE * across / ACROSS), 0.9 + 1.9 * down)
    axes = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
    for axis, panel in zip(axes, panels, strict=False):
        mine = [row for row in shown if all(row[name] == value for name, value in panel.items())]
        _panel(axis, mine, along, list(vary.get(along, [""])))
        if panel:
            axis.set_title(", ".join(f"{name} {value}" for name, value in panel.items()))
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    name = LABELS.get(metric, metric.replace("_", " "))
    for axis in axes[::across]:
        axis.set_ylabel(f"{name}, 95% interval")
    for axis in axes[max(0, len(panels) - across) : len(panels)]:
        axis.set_xlabel(along)
        axis.tick_params(axis="x", labelbottom=True)
    headline(figure, title)
    known = dict(zip(*reversed(axes[0].get_legend_handles_labels()), strict=True))
    figure.legend(
        list(known.values()), list(known), loc="outside lower left", ncols=min(len(known), 3 * across),
        handlelength=2.0, columnspacing=1.4, handletextpad=0.5, borderaxespad=0.3,
    )  # fmt: skip
    return figure


def _along(vary: Mapping[str, Sequence[Any]]) -> str:
    if not vary:
        return ""
    return max(vary, key=lambda name: (not isinstance(vary[name][0], str), len(vary[name])))


def _panel(axis: Axes, rows: Sequence[Row], along: str, values: Sequence[Any]) -> None:
    import matplotlib as mpl

    arms = list(dict.fromkeys(str(row["arm"]) for row in rows))
    numeric = bool(along) and not isinstance(values[0], str)
    cycle = itertools.cycle(mpl.rcParams["axes.prop_cycle"])
    gap = min((b - a for a, b in itertools.pairwise(sorted(values))), default=1.0) if numeric else 1.0
    step = (0.08 if numeric else 0.5 / len(arms)) * gap  # arms side by side, or else one hides another
    for at, (arm, style) in enumerate(zip(arms, cycle, strict=False)):
        look: dict[str, Any] = dict(style)
        if arm in ARMS and arm != "A0":
            look = {"color": ARMS[arm].colour, "marker": ARMS[arm].marker}
        mine = [row for row in rows if row["arm"] == arm]
        shift = step * (at - (len(arms) - 1) / 2)
        places = [row[along] if along else "" for row in mine]
        xs = [shift + (float(place or 0.0) if numeric else values.index(place)) for place in places]
        ys = [float(row["value"] or 0.0) for row in mine]
        below = [y - float(y if row["lo"] is None else row["lo"]) for y, row in zip(ys, mine, strict=True)]
        above = [float(y if row["hi"] is None else row["hi"]) - y for y, row in zip(ys, mine, strict=True)]
        axis.errorbar(xs, ys, yerr=[below, above], linestyle="-" if numeric else "", capsize=2, label=arm, **look)
    if not numeric:
        axis.set_xticks(range(len(values)), [str(value) for value in values])
        if along and max(len(str(value)) for value in values) > 6:
            axis.tick_params(axis="x", rotation=30)
        axis.set_xlim(-0.5, len(values) - 0.5)
