"""Figures of fitted compliance: rates by model and shape, and whether the fit predicts what was observed."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from invsim.report.figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
"""A cell: model, shape, kind, status, trials, applied, rate with lo and hi, pooled with pooled_lo and pooled_hi,
cluster_lo and cluster_hi, predicted_lo and predicted_hi; None for what is unknown."""

KINDS = {"first_attempt": "an injected fix", "recovery": "a hint after an error"}


def forest_figure(rows: Sequence[Row], *, title: str) -> Figure:
    """Draw compliance by shape and model: raw with Jeffreys' interval and, thin, that over tasks; pooled beside it.

    Parameters
    ----------
    rows : sequence of Row
        One panel for each kind of trial that has data.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(style()):
        kinds = [kind for kind in KINDS if any(row["kind"] == kind and row["trials"] for row in rows)]
        labels = sorted({_label(row) for row in rows})  # by shape, so that models stand together
        figure = Figure(figsize=(2.6 + 3.0 * max(1, len(kinds)), 1.2 + 0.34 * len(labels)), layout="constrained")
        axes = figure.subplots(1, max(1, len(kinds)), sharey=True, squeeze=False)[0]
        for axis, kind in zip(axes, kinds, strict=False):
            for row in rows:
                if row["kind"] == kind:
                    _draw_cell(axis, row, labels.index(_label(row)))
            axis.set_title(f"applied {KINDS[kind]}")
            axis.set_xlabel("share of trials, 0 to 1")
            axis.set_xlim(-0.04, 1.04)
            axis.grid(axis="y", visible=False)
        axes[0].set_yticks(range(len(labels)), labels)
        axes[0].set_ylim(len(labels) - 0.5, -0.5)
        handles = {
            label: handle
            for axis in axes
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
        }  # fmt: skip
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=max(1, len(handles)))
        figure.suptitle(title, x=0.01, ha="left")
    return figure


def _label(row: Row) -> str:
    return ", ".join(str(row[name]) for name in ("shape", "constraint", "arm", "model") if row.get(name) is not None)


def _draw_cell(axis: Any, row: Row, at: int) -> None:
    black, orange, _ = (f"C{number}" for number in range(3))
    if row["rate"] is not None:
        if row["cluster_lo"] is not None:
            axis.hlines(at - 0.15, row["cluster_lo"], row["cluster_hi"], color=black, linewidth=0.7, label="over tasks")
        axis.errorbar(
            row["rate"], at - 0.15, xerr=_reach(row["rate"], row["lo"], row["hi"]), color=black, marker="o",
            linewidth=1.6, linestyle="", label="raw, Jeffreys",
        )  # fmt: skip
    if row["pooled"] is not None:
        axis.errorbar(
            row["pooled"], at + 0.15, xerr=_reach(row["pooled"], row["pooled_lo"], row["pooled_hi"]), color=orange,
            marker="s", linewidth=1.6, linestyle="", label="pooled over models",
        )  # fmt: skip
    if row["rate"] is None:
        axis.text(1.0, at - 0.2, row["status"], ha="right", va="center", color="#555555", fontsize="small")


def _reach(value: float, lo: float, hi: float) -> list[list[float]]:
    return [[max(value - lo, 0.0)], [max(hi - value, 0.0)]]


def predictive_figure(rows: Sequence[Row], *, title: str) -> Figure:
    """Draw the share applied of each cell against what its posterior predicts for as many trials.

    A cell that lies off its interval is one that the fit does not describe. The cell's own data are in its posterior,
    so this shows misfit of the model and no skill at prediction.

    Parameters
    ----------
    rows : sequence of Row
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(style()):
        figure = Figure(figsize=(4.6, 4.8), layout="constrained")
        axis = figure.subplots()
        axis.axline((0, 0), slope=1, color="#999999", linewidth=0.8)
        shapes = list(dict.fromkeys(row["shape"] or row["kind"] for row in rows))
        looks = dict(zip(shapes, itertools.cycle(mpl.rcParams["axes.prop_cycle"]), strict=False))
        for row in rows:
            if row["predicted_lo"] is None:
                continue
            n = row["trials"]
            middle = row["alpha"] / (row["alpha"] + row["beta"])
            axis.errorbar(
                row["applied"] / n, middle, yerr=_reach(middle, row["predicted_lo"] / n, row["predicted_hi"] / n),
                linestyle="", linewidth=1.0, label=row["shape"] or row["kind"], **looks[row["shape"] or row["kind"]],
            )  # fmt: skip
        axis.set_xlabel("observed share applied")
        axis.set_ylabel("predicted share, with its interval")
        axis.set_xlim(-0.04, 1.04)
        axis.set_ylim(-0.04, 1.04)
        handles = dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2)
        figure.suptitle(title, x=0.01, ha="left")
    return figure
