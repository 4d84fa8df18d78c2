"""One figure of one arm: what a model predicts for the mean of some runs, and what is printed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from invsim.data.published import Published
from invsim.report.figures.style import Row

CERTAIN = 1e-9
"""A standard deviation below this is none: the model leaves nothing to chance."""

COUNTS = ("retries", "exhausted", "evictions", "restamped_entries")
"""Metrics that are counts per stream; the others are rates, or the saving."""

BOUNDS = {**dict.fromkeys(COUNTS, (0.0, math.inf)), "token_saving": (-math.inf, 1.0)}
"""What a metric can be, where that is not 0 to 1."""


@dataclass(frozen=True)
class Prediction:
    """A metric of one model and arm.

    Parameters
    ----------
    scenario, model, arm, metric : str
    mean : float or None
        Expectation; None where the metric is undefined.
    sd : float or None
        Standard deviation of the mean of ``runs`` independent runs: how far a publication of that size may be off.
    runs : int
    published : Published or None
    """

    scenario: str
    model: str
    arm: str
    metric: str
    mean: float | None
    sd: float | None
    runs: int
    published: Published | None

    @property
    def printed(self) -> float | None:
        """The printed figure, as the ratio of its integers where it has any."""
        if self.published is None:
            return None
        if self.published.count is not None and self.published.of:
            return self.published.count / self.published.of
        return self.published.value

    @property
    def certain(self) -> bool:
        """Whether the model leaves nothing to chance."""
        return self.sd is not None and self.sd < CERTAIN

    @property
    def z(self) -> float | None:
        """How many standard deviations the print lies above the prediction; None where either is missing or certain."""
        if self.printed is None or self.mean is None or self.sd is None or self.certain:
            return None
        return (self.printed - self.mean) / self.sd

    def row(self) -> Row:
        """Return the plotted values."""
        return {
            "scenario": self.scenario,
            "model": self.model,
            "arm": self.arm,
            "metric": self.metric,
            "mean": self.mean,
            "sd": self.sd,
            "runs": self.runs,
            "published": self.printed,
        }


def prediction_rows(predictions: Iterable[Prediction]) -> list[Row]:
    """Return the plotted values of some predictions."""
    return [each.row() for each in predictions]


def select(
    predictions: Iterable[Prediction], *, scenario: str = "", model: str = "", arm: str = "", metric: str = ""
) -> list[Prediction]:
    """Return the predictions that answer to every name given."""
    return [
        each
        for each in predictions
        if (not scenario or each.scenario == scenario)
        and (not model or each.model == model)
        and (not arm or each.arm == arm)
        and (not metric or each.metric == metric)
    ]


def names(predictions: Sequence[Prediction], field: str) -> list[str]:
    """Return the models, arms, metrics or scenarios that occur, in order of appearance."""
    return list(dict.fromkeys(getattr(each, field) for each in predictions))


def gains(predictions: Sequence[Prediction], metric: str, *, over: str, arm: str) -> dict[str, float]:
    """Return, by model, how much higher a metric is in one arm than in another."""
    found = {}
    for model in names(predictions, "model"):
        means = {each.arm: each.mean for each in select(predictions, model=model, metric=metric)}
        before, after = means.get(over), means.get(arm)
        if before is not None and after is not None:
            found[model] = after - before
    return found


def whiskers(predictions: Sequence[Prediction], scale: float) -> list[list[float]]:
    """Return how far two standard deviations reach below and above, within what a rate or a count can be."""
    below, above = [], []
    for each in predictions:
        mean, reach = each.mean or 0.0, 2 * (each.sd or 0.0)
        bounds = BOUNDS.get(each.metric, (0.0, 1.0))
        below.append(scale * min(reach, max(mean - bounds[0], 0.0)))
        above.append(scale * min(reach, max(bounds[1] - mean, 0.0)))
    return [below, above]
