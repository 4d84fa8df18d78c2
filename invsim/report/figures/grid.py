"""The figure of any run: each model's arms side by side, metric by metric."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from invsim.data.published import lookup
from invsim.report.figures.style import ARMS, page, shortened, styled
from invsim.report.tables import LABELS, RunLike
from invsim.stats.moments import Estimate
from invsim.stats.uncertainty import Uncertain

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def panels(results: Sequence[RunLike]) -> list[str]:
    """Return the metrics the figure shows: eligible first try, the windows after drift, and retries."""
    have = list(results[0].arms[0].metrics)
    start, end = have.index("compliance_given_valid") + 1, have.index("evictions")
    shown = [name for name in have[start:end] if name.endswith(("_post", "_scored"))]
    scored = any(arm.metrics["first_try_eligible"].value is not None for arm in results[0].arms)
    first = ["first_try_eligible"] if scored else []
    return [*first, *shown[:2], "retries"]


def _error(estimate: Estimate) -> float:
    """Return a standard error; of an estimated model that of the fit too."""
    fitted = estimate.fit_se if isinstance(estimate, Uncertain) else None
    return math.hypot(estimate.se or 0.0, fitted or 0.0)


@styled
def grid_figure(results: Sequence[RunLike], *, title: str) -> Figure:
    """Draw each model's arms side by side: simulated with two standard errors, published as a ring.

    Parameters
    ----------
    results : sequence of RunLike
        One per model; rows of the figure, top to bottom.
    """
    import matplotlib as mpl

    metrics = panels(results)
    arms = list(dict.fromkeys(arm.arm for result in results for arm in result.arms))
    look = dict(zip(arms, itertools.cycle(mpl.rcParams["axes.prop_cycle"]), strict=False))
    # Arms look as in every other figure; but no memory, pale as an area, would be lost as a point.
    look |= {
        arm: {"color": ARMS[arm].colour, "marker": ARMS[arm].marker} for arm in arms if arm in ARMS and arm != "A0"
    }
    figure = page(2.7 * len(metrics), 0.9 + 0.6 * len(results))
    axes = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    step = 0.8 / max(1, len(arms))
    for axis, metric in zip(axes, metrics, strict=True):
        for row, result in enumerate(results):
            for arm in result.arms:
                estimate = arm.metrics[metric]
                y = row - 0.4 + step * (arms.index(arm.arm) + 0.5)
                if estimate.value is not None:
                    axis.errorbar(
                        estimate.value, y, xerr=2 * _error(estimate), linestyle="", capsize=2,
                        label=arm.arm, **look[arm.arm],
                    )  # fmt: skip
                printed = lookup(result.scenario, result.model, arm.arm, metric) if result.as_published else None
                if printed is not None:
                    axis.plot(
                        printed.value, y, marker="o", markersize=8, markerfacecolor="none",
                        markeredgecolor="#555555", markeredgewidth=0.8, linestyle="", label="published",
                    )  # fmt: skip
        name = LABELS.get(metric, metric.replace("_", " "))
        unit = "per stream, ±2 standard errors" if metric == "retries" else "first-try rate, ±2 standard errors"
        axis.set_title(name if metric != "retries" else "retries")
        axis.set_xlabel(unit)
        axis.set_xlim(left=0 if metric == "retries" else -0.04, right=None if metric == "retries" else 1.04)
        axis.grid(axis="y", visible=False)
        for row in range(1, len(results)):
            axis.axhline(row - 0.5, color="#d9d9d9", linewidth=0.6)
    axes[0].set_yticks(range(len(results)), [shortened(result.model) for result in results])
    axes[0].set_ylim(len(results) - 0.5, -0.5)
    handles: dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    order = [label for label in [*arms, "published"] if label in handles]
    figure.legend([handles[label] for label in order], order, loc="outside lower center", ncols=len(order))
    figure.suptitle(title, x=0.01, ha="left")
    return figure
