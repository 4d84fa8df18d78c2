"""Arms side by side, model by model: the ladder on the class that drifts, the class that does not, and the saving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from invsim.report.figures.predictions import Prediction, gains, names, select, whiskers
from invsim.report.figures.style import (
    ARMS,
    INK,
    PAGE,
    PUBLISHED,
    SPREAD,
    folded,
    haloed,
    headline,
    legend_below,
    page,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARGIN = 0.1
"""A gain that counts as one, in titles: smaller ones are within a publication's luck."""


@dataclass(frozen=True)
class Panel:
    """One axis of a bar figure: a metric, its title, and its unit."""

    metric: str
    title: str
    unit: str = "first-try rate (%)"
    limits: tuple[float, float] = (0.0, 108.0)


ELIGIBLE = Panel(
    "first_try_eligible", "(a) compliance: nine eligible episodes a run (undefined at A0, which keeps nothing)"
)
TEN = Panel("governed_ten", "(b) the same nine and the first, cold one: ten episodes a run")
UNTOUCHED = Panel("funding_post", "")
SAVING = Panel("token_saving", "", "token saving (%)", (-4.0, 38.0))


@styled
def ladder_figure(predictions: Sequence[Prediction]) -> Figure:
    """Draw first try on the class that drifts, over the eligible episodes and over all that are scored."""
    rise = [each for each in gains(predictions, ELIGIBLE.metric, over="A1", arm="A2D").values() if each > MARGIN]
    total = len(names(predictions, "model"))
    least = f" by {100 * min(rise):.0f} points or more" if rise else ""
    title = (
        f"Evicting the changed row (A2D) lifts first try on the class that drifted{least} on {len(rise)} of {total} "
        "models"
    )
    return _bars(predictions, [ELIGIBLE, TEN], title)


@styled
def untouched_figure(predictions: Sequence[Prediction]) -> Figure:
    """Draw first try on the class that no event targets, after its table was republished unchanged."""
    by_table, by_row = (gains(predictions, UNTOUCHED.metric, over="A1", arm=arm) for arm in ("A2", "A2D"))
    fall = [model for model, gain in by_table.items() if gain < -MARGIN]
    kept = [model for model in fall if by_row[model] > -MARGIN]
    kept_on = "all" if kept == fall else str(len(kept))
    title = (
        f"Evicting the whole table (A2) is expected to cost a class that never drifted on {len(fall)} of "
        f"{len(names(predictions, 'model'))} models; evicting rows (A2D) keeps it on {kept_on} of those"
    )
    return _bars(predictions, [UNTOUCHED], title)


@styled
def saving_figure(predictions: Sequence[Prediction]) -> Figure:
    """Draw what each arm saves in tokens."""
    best = [_best(select(predictions, model=model)) for model in names(predictions, "model")]
    leader = max(sorted(set(best)), key=best.count)
    title = f"Expected saving against A0 is highest under {leader} on {best.count(leader)} of {len(best)} models"
    why = ": it keeps what still holds (unlike A2) and drops what does not (unlike A1)"
    return _bars(predictions, [SAVING], title + (why if leader == "A2D" else ""))


def _best(mine: Sequence[Prediction]) -> str:
    """Return the arm that saves most; of two that save alike, the simpler one."""
    return max(mine, key=lambda each: (round(each.mean or 0.0, 6), -names(mine, "arm").index(each.arm))).arm


def _bars(predictions: Sequence[Prediction], panels: Sequence[Panel], title: str) -> Figure:
    figure = page(PAGE, 1.1 + 1.45 * len(panels))
    axes = list(figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0])
    arms = [name for name in ARMS if name in names(predictions, "arm")]
    models = names(predictions, "model")
    for axis, panel in zip(axes, panels, strict=True):
        for at, arm in enumerate(arms):
            offset = (at - (len(arms) - 1) / 2) * 0.8 / len(arms)
            mine = [each for each in select(predictions, arm=arm, metric=panel.metric) if each.mean is not None]
            if mine:
                _arm(axis, mine, arm, models, offset, 0.8 / len(arms))
        axis.set_title(panel.title)
        axis.set_ylabel(panel.unit)
        axis.set_ylim(*panel.limits)
        axis.axhline(0.0, color=INK, linewidth=0.6)
        axis.set_xlim(-0.55, len(models) - 0.45)
        axis.grid(axis="x", visible=False)
        axis.tick_params(axis="x", length=0)
    axes[-1].set_xticks(range(len(models)), [folded(model) for model in models])
    headline(figure, title)
    legend_below(figure, axes)
    return figure


def _arm(axis: Axes, mine: Sequence[Prediction], arm: str, models: Sequence[str], offset: float, width: float) -> None:
    look = ARMS[arm]
    at = [models.index(each.model) + offset for each in mine]
    axis.bar(
        at, [100 * (each.mean or 0.0) for each in mine], width=0.92 * width, color=look.colour, hatch=look.hatch,
        edgecolor="white", linewidth=0, label=arm,
    )  # fmt: skip
    spread = axis.errorbar(
        at, [100 * (each.mean or 0.0) for each in mine], yerr=whiskers(mine, 100.0),
        linestyle="", marker="", color=INK, elinewidth=0.7, label=f"{SPREAD} of the mean of {mine[0].runs} runs",
    )  # fmt: skip
    for part, order in [*((cap, 2.2) for cap in spread.lines[1]), *((bar, 2.3) for bar in spread.lines[2])]:
        part.set(path_effects=haloed(), zorder=order)
    shown = [(x, 100 * each.printed) for x, each in zip(at, mine, strict=True) if each.printed is not None]
    if shown:  # a line of no points, unclipped, would stretch the axis's box to the corner of the page
        axis.plot(
            *zip(*shown, strict=True), linestyle="", marker="D", markersize=3.6, markerfacecolor="white",
            markeredgecolor=INK, markeredgewidth=0.8, label=PUBLISHED, clip_on=False, zorder=4,
        )  # fmt: skip
