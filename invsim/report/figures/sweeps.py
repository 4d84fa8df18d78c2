"""The figure of any sweep: a metric along the parameter with most values, a panel for each point of the others."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
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

TITLE, LABEL = 26, 24
"""Characters of a line of a panel's title, and of a line beside its axis."""

LONGEST = 20
"""Characters of a name that is written out."""


def sweep_rows(rows: Sequence[Mapping[str, Any]], metric: str) -> list[Row]:
    """Return the plotted values: those of one metric, where it is defined."""
    return [dict(row) for row in rows if row["metric"] == metric and row["value"] is not None]


def check_panels(vary: Mapping[str, Sequence[Any]]) -> None:
    """Refuse what would be more panels than a page takes."""
    if (panels := len(_panels(vary))) > MOST:
        what = f"a figure takes {MOST} panels at most; vary fewer parameters, or give them fewer values"
        raise InputError(what, value=panels)


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
    check_panels(vary)
    shown = sweep_rows(rows, metric)
    if not shown:
        raise InputError("is defined in no cell, so there is nothing to draw", value=metric)
    looks = _looks(list(dict.fromkeys(str(row["arm"]) for row in shown)))
    along, panels = _along(vary), _panels(vary)
    across = _across(vary, len(panels))
    down = -(-len(panels) // across)
    figure = page(max(3.4, PAGE * across / ACROSS), 0.9 + 1.9 * down)
    axes = figure.subplots(down, across, sharex=True, sharey=True, squeeze=False).ravel()
    for axis, panel in zip(axes, panels, strict=False):
        mine = [row for row in shown if all(row[name] == value for name, value in panel.items())]
        _panel(axis, mine, along, list(vary.get(along, [""])), looks)
        if panel:
            text = ", ".join(f"{name} {_short(value)}" for name, value in panel.items())
            axis.set_title(textwrap.fill(text, TITLE, break_on_hyphens=False))
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    name = LABELS.get(metric, metric.replace("_", " "))
    for axis in axes[::across]:
        axis.set_ylabel(textwrap.fill(name, LABEL))
    for axis in axes[max(0, len(panels) - across) : len(panels)]:
        axis.set_xlabel(along)
        axis.tick_params(axis="x", labelbottom=True)
    headline(figure, f"{title}; 95% intervals")
    handles = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    fitting = figure.get_size_inches()[0] / (0.55 + 0.08 * max(map(len, looks)))
    figure.legend(
        [handles[arm] for arm in looks], list(looks), loc="outside lower left", ncols=max(1, int(fitting)),
        handlelength=2.0, columnspacing=1.4, handletextpad=0.5, borderaxespad=0.3,
    )  # fmt: skip
    return figure


def _along(vary: Mapping[str, Sequence[Any]]) -> str:
    if not vary:
        return ""
    return max(vary, key=lambda name: (_numeric(vary[name]), len(vary[name])))


def _numeric(values: Sequence[Any]) -> bool:
    """Whether values have distances: more than one, and numbers."""
    return len(values) > 1 and not isinstance(values[0], str)


def _panels(vary: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the points of what does not lie along the axis."""
    others = {name: values for name, values in vary.items() if name != _along(vary)}
    return [dict(zip(others, values, strict=True)) for values in itertools.product(*others.values())]


def _across(vary: Mapping[str, Sequence[Any]], panels: int) -> int:
    """Return the panels of a row: one for each value of the last parameter, if there are several parameters."""
    others = [values for name, values in vary.items() if name != _along(vary) and len(values) > 1]
    return len(others[-1]) if len(others) > 1 and len(others[-1]) <= ACROSS else min(ACROSS, panels)


def _looks(arms: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return how each arm is drawn, the same in every panel."""
    import matplotlib as mpl

    cycle = itertools.cycle(mpl.rcParams["axes.prop_cycle"])
    looks: dict[str, dict[str, Any]] = {}
    for arm, look in zip(arms, cycle, strict=False):
        known = arm in ARMS and arm != "A0"
        looks[arm] = {"color": ARMS[arm].colour, "marker": ARMS[arm].marker} if known else dict(look)
    return looks


def _short(value: object) -> str:
    """Return a value as text, of a file its name, and of a long name its ends."""
    text = Path(value).stem if isinstance(value, str) and value.endswith(".toml") else str(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2 - 1]}…{text[-LONGEST // 2 :]}"


def _panel(
    axis: Axes, rows: Sequence[Row], along: str, values: Sequence[Any], looks: Mapping[str, Mapping[str, Any]]
) -> None:
    from matplotlib.ticker import MaxNLocator

    numeric = _numeric(values)
    gap = min(b - a for a, b in itertools.pairwise(sorted(values))) if numeric else 1.0
    step = min(0.08 if numeric else 1.0, 0.5 / len(looks)) * gap  # arms side by side, or else one hides another
    for at, (arm, look) in enumerate(looks.items()):
        mine = [row for row in rows if row["arm"] == arm]
        shift = step * (at - (len(looks) - 1) / 2)
        places = [row[along] if along else "" for row in mine]
        xs = [shift + (float(place or 0.0) if numeric else values.index(place)) for place in places]
        ys = [float(row["value"] or 0.0) for row in mine]
        below = [y - float(y if row["lo"] is None else row["lo"]) for y, row in zip(ys, mine, strict=True)]
        above = [float(y if row["hi"] is None else row["hi"]) - y for y, row in zip(ys, mine, strict=True)]
        axis.errorbar(xs, ys, yerr=[below, above], linestyle="-" if numeric else "", capsize=2, label=arm, **look)
    if numeric and isinstance(values[0], int):
        axis.xaxis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10], integer=True))
    if not numeric:
        texts = [_short(value) for value in values]
        axis.set_xticks(range(len(values)), texts)
        if along and max(len(text) for text in texts) > 6:
            axis.tick_params(axis="x", rotation=30)
            for label in axis.get_xticklabels():
                label.set_horizontalalignment("right")
        axis.set_xlim(-0.5, len(values) - 0.5)
