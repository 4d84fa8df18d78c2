"""Published against predicted: every printed integer, with the spread that three runs leave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from invsim.report.figures.predictions import COUNTS, Prediction, whiskers
from invsim.report.figures.style import INK, PAGE, SERIES, Look, Row, headline, page, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FAMILIES: dict[str, Look] = {
    "first_try_eligible": SERIES[0],
    "governed_ten": SERIES[0],
    "funding_pre": SERIES[1],
    "funding_post": SERIES[1],
    "control": SERIES[2],
    "none": Look("#8A8A8A", "P"),
    "retries": SERIES[0],
    "exhausted": SERIES[1],
    "evictions": SERIES[2],
    "restamped_entries": Look("#8A8A8A", "P"),
}
LABELS = {
    "first_try_eligible": "governed",
    "governed_ten": "governed",
    "funding_pre": "funding",
    "funding_post": "funding",
    "none": "no constraint",
    "exhausted": "exhausted episodes",
    "restamped_entries": "restamped entries",
}
LIMIT = 2.0
TICKS = (0, 5, 25, 50, 100)


@dataclass(frozen=True)
class Agreement:
    """How many printed figures agree: certain and equal, within two deviations, beyond them, contradicted."""

    equal: int
    within: int
    beyond: int
    contradicted: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.equal + self.within + self.beyond + self.contradicted


def agreement(predictions: Sequence[Prediction]) -> Agreement:
    """Count how the prints stand to the predictions; a certain prediction is equal or contradicted."""
    certain = [each for each in predictions if each.certain and each.printed is not None]
    equal = sum(math.isclose(each.printed or 0.0, each.mean or 0.0, abs_tol=1e-9) for each in certain)
    z = [abs(each.z) for each in predictions if each.z is not None]
    within = sum(value <= LIMIT for value in z)
    return Agreement(equal, within, len(z) - within, len(certain) - equal)


def parity_rows(predictions: Sequence[Prediction]) -> list[Row]:
    """Return the plotted values, with the standardised difference."""
    return [{**each.row(), "z": each.z} for each in predictions]


@styled
def parity_figure(predictions: Sequence[Prediction]) -> Figure:
    """Draw predictions over prints, rates and counts apart, and the standardised differences as a histogram."""
    figure = page(PAGE, 2.75)
    rates, counts, scores = figure.subplots(1, 3)
    _parity(rates, [each for each in predictions if each.metric not in COUNTS], 100.0)
    _parity(counts, [each for each in predictions if each.metric in COUNTS], 1.0)
    rates.set_xlabel("published first-try rate (%)")
    rates.set_ylabel("expected rate ±2 sd of 3 runs (%)")
    rates.set_title("(a) first-try rates")
    counts.set_xlabel("published count per stream")
    counts.set_ylabel("expected count ±2 sd of 3 runs")
    counts.set_title("(b) counts, square-root axes")
    rates.set_xlim(-5, 105)
    rates.set_ylim(-5, 105)
    counts.set_xscale("function", functions=(_root, _square))
    counts.set_yscale("function", functions=(_root, _square))
    counts.set_xlim(0, 105)
    counts.set_ylim(0, 105)
    counts.set_xticks(TICKS, [str(each) for each in TICKS])
    counts.set_yticks(TICKS, [str(each) for each in TICKS])
    _histogram(scores, predictions)
    found = agreement(predictions)
    headline(
        figure,
        f"Of {found.total} published integers {found.equal} are certain and equal, {found.within} within two standard "
        f"deviations, {found.beyond} beyond, {found.contradicted} contradicted (the profiles were fitted to them)",
    )
    return figure


def _root(x: object) -> object:
    import numpy as np

    return np.sqrt(np.maximum(x, 0.0))  # type: ignore[call-overload]


def _square(x: object) -> object:
    import numpy as np

    return np.square(x)  # type: ignore[call-overload]


def _parity(axis: Axes, mine: Sequence[Prediction], scale: float) -> None:
    axis.plot([0, 105], [0, 105], color="#777777", linewidth=0.8, marker="", zorder=1)
    for metric in dict.fromkeys(each.metric for each in mine):
        look = FAMILIES[metric]
        some = [each for each in mine if each.metric == metric]
        axis.errorbar(
            [scale * (each.printed or 0.0) for each in some], [scale * (each.mean or 0.0) for each in some],
            yerr=whiskers(some, scale), linestyle="", marker=look.marker, markersize=3.4, color=look.colour,
            markerfacecolor=look.colour, markeredgecolor="white", markeredgewidth=0.3, elinewidth=0.6, capsize=0,
            label=LABELS.get(metric, metric), clip_on=False,
        )  # fmt: skip
    handles, labels = axis.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    axis.legend(unique.values(), unique.keys(), loc="upper left", fontsize=6.2, handletextpad=0.2, borderaxespad=0.1)


def _histogram(axis: Axes, predictions: Sequence[Prediction]) -> None:
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    z = [each.z for each in predictions if each.z is not None]
    edges = np.arange(-3.0, 3.01, 0.5)
    axis.hist(z, bins=edges.tolist(), color="#8DB7DC", edgecolor="white", linewidth=0.6, label="published integers")
    x = np.linspace(-3.0, 3.0, 121)
    normal = 0.5 * len(z) * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    axis.plot(x, normal, color=INK, linewidth=1.0, marker="", label="standard normal")
    for limit in (-LIMIT, LIMIT):
        axis.axvline(limit, color=INK, linewidth=0.7, linestyle=(0, (3, 2)), ymax=0.72)
    axis.set_ylim(0, 1.55 * max(float(normal.max()), float(np.histogram(z, edges)[0].max())))
    axis.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axis.set_xlabel("(published − expected) / sd")
    axis.set_ylabel("integers per bin of 0.5 sd")
    axis.set_title(f"(c) the {len(z)} that chance can move")
    axis.legend(loc="upper left", fontsize=6.2, borderaxespad=0.1)
