"""Out of sample: what profiles fitted to part of the print predict of the rest.

Fitted to, per model: what is printed of A0 (no memory: first tries in the text, retries of Table 6, exhaustions), the
first-try integers of A1 and A2D (Tables 3, 4 and 7), and, for a model whose retries obey another law once a fix was
injected, the retries of A1. Predicted: every count of A2, A2DC and A2DG, the other retries and exhaustions of A1 and
A2D, evictions and restamps, the frequency and control streams, and the token savings, with token costs fitted to the
other six models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache

import numpy as np

from invsim.calibrate.estimate import fit, spread_over_classes
from invsim.calibrate.evidence import SHARED, Cell, Integer, cells, facts_of, integers
from invsim.calibrate.likelihood import expectation
from invsim.calibrate.maximum import Maximum
from invsim.calibrate.structure import Structure, structure
from invsim.calibrate.tokens import ARMS, TokenFit, fit_tokens, usage
from invsim.client.arms import get_arm
from invsim.client.planners.models import PUBLISHED
from invsim.data.published import published
from invsim.errors import UnknownNameError
from invsim.sim.exact import distribution

LEARNED = ("A1", "A2D")
"""Arms whose first tries are fitted."""

HELD_OUT = ("payments", "frequency-1", "frequency-2", "frequency-3", "control")
"""Streams with integers to predict; recipes has no arm beyond those fitted."""

RUNS = 3
"""Runs that a printed saving pools, in each arm."""

NUDGE = 1e-3
"""Share of a domain by which derivatives are taken."""


@dataclass(frozen=True)
class Prediction:
    """A printed figure beside what is predicted of it.

    Parameters
    ----------
    model, scenario, arm, metric : str
    unit : {"count", "saving"}
        Integers pooled over runs; savings as 0..1.
    printed, predicted : float
    of : int or None
        The most that a first-try count can be, or the number of runs.
    sampling, parameters : float
        Standard deviations: that of the publication's own runs, and what the fit leaves uncertain; for savings with
        the spread of the token model's residuals on the other models.
    """

    model: str
    scenario: str
    arm: str
    metric: str
    unit: str
    printed: float
    predicted: float
    of: int | None
    sampling: float
    parameters: float

    @property
    def error(self) -> float:
        """Predicted less printed: in points (hundredths) for first tries and savings, else per run."""
        off = self.predicted - self.printed
        if self.unit == "saving":
            return 100.0 * off
        return off / (self.of or 1) * (1.0 if self.metric in SHARED else 100.0)

    @property
    def sd(self) -> float:
        """Predictive standard deviation, in the units of ``printed``."""
        return math.hypot(self.sampling, self.parameters)

    @property
    def z(self) -> float | None:
        """Printed less predicted over the predictive standard deviation; None where that is 0 and they differ."""
        off = self.printed - self.predicted
        if self.sd > 1e-9:
            return off / self.sd
        return 0.0 if abs(off) < 1e-6 else None

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return {**asdict(self), "error": self.error, "sd": self.sd, "z": self.z}


@dataclass(frozen=True)
class Accuracy:
    """The errors of one metric: in points for first tries and savings, per run for other counts.

    ``varying`` figures have a predictive deviation above 0; ``impossible`` ones had none and came out otherwise.
    """

    metric: str
    figures: int
    varying: int
    rmse: float
    mean_absolute: float
    bias: float
    within_two: int
    largest_z: float
    impossible: int

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return asdict(self)


def training(model_name: str) -> list[Integer]:
    """Return the integers that a model is fitted to for validation."""
    two_laws = any(each.field == "retry_injected" for each in structure(model_name).free)
    return [
        each
        for each in integers(model_name, scenarios=("payments",))
        if each.arm == "A0"
        or (each.arm in LEARNED and each.metric not in SHARED)
        or (two_laws and (each.arm, each.metric) == ("A1", "retries"))
    ]


def validate(models: Collection[str] = PUBLISHED) -> tuple[Prediction, ...]:
    """Predict what was not fitted, for some of the published models.

    Raises
    ------
    UnknownNameError
    """
    for name in models:
        if name not in PUBLISHED:
            raise UnknownNameError("published model", name, PUBLISHED)
    found: list[Prediction] = []
    for name in models:
        shape, known = _stripped(structure(name)), training(name)
        fitted = fit(shape, known)
        found += _counts(shape, fitted, known)
        found += _savings(shape, fitted)
    return tuple(found)


def _stripped(shape: Structure) -> Structure:
    """Leave out parameters of classes that payments has not."""
    return replace(
        shape, parameters=tuple(each for each in shape.parameters if each.owner not in {"celiac", "incompat"})
    )


def _counts(shape: Structure, fitted: Maximum, known: Sequence[Integer]) -> Iterable[Prediction]:
    used = set(known)
    for cell in cells(integers(shape.model_name, scenarios=HELD_OUT)):
        for each in cell.integers:
            if each in used or each.metric == "none":
                continue
            mean, variance = expectation(cell, each.metric, spread_over_classes(shape, fitted.values))

            def at(values: Mapping[str, float], cell: Cell = cell, metric: str = each.metric) -> float:
                return expectation(cell, metric, spread_over_classes(shape, values))[0]

            yield Prediction(
                shape.model_name, each.scenario, each.arm, each.metric, "count", each.count, mean, each.of,
                math.sqrt(max(variance, 0.0)), _uncertainty(fitted, at),
            )  # fmt: skip


def _savings(shape: Structure, fitted: Maximum) -> Iterable[Prediction]:
    fit_of_others = _costs_without(shape.model_name)
    costs, spread = fit_of_others.costs(shape.model_name), fit_of_others.rmse / 100.0

    @cache
    def tokens(arm: str, key: tuple[tuple[str, float], ...]) -> float:
        return usage(shape.model(dict(key)), arm, attempts="expected").tokens(costs)

    for arm in ARMS:

        def at(values: Mapping[str, float], arm: str = arm) -> float:
            key = tuple(values.items())
            return 1.0 - tokens(arm, key) / tokens("A0", key)

        printed = published()["payments", shape.model_name, arm, "token_saving"].value
        yield Prediction(
            shape.model_name, "payments", arm, "token_saving", "saving", printed, at(fitted.values), None,
            _sampling_of_saving(shape, fitted, arm), math.hypot(_uncertainty(fitted, at), spread),
        )  # fmt: skip


@cache
def _costs_without(model_name: str) -> TokenFit:
    """Return the token costs that the other six models' savings give."""
    others = tuple(each for each in PUBLISHED if each != model_name)
    return next(each for each in fit_tokens(models=others) if each.name == "+ conflict")


def _sampling_of_saving(shape: Structure, fitted: Maximum, arm: str) -> float:
    """Return the standard deviation of a saving of three runs an arm, from that of their attempts."""
    costs, model = _costs_without(shape.model_name).costs(shape.model_name), shape.model(fitted.values)
    weights = costs.weights(
        attempts="attempts",
        entries="injected_entries",
        conflicts="conflict_attempts",
        one="one",
        episodes=len(facts_of("payments").plan.episodes),
    )
    laws = [distribution(facts_of("payments"), arm=get_arm(name), model=model) for name in ("A0", arm)]
    bare, mine = (law.expected(weights) for law in laws)
    relative = [law.variance(weights) / RUNS / law.expected(weights) ** 2 for law in laws]
    return mine / bare * math.sqrt(sum(relative))


def _uncertainty(fitted: Maximum, at: Callable[[Mapping[str, float]], float]) -> float:
    """Return the standard deviation that the parameters' own uncertainty gives a figure, by the delta method.

    A parameter at an end of its domain has a likelihood that falls off like an exponential, whose standard deviation
    is its 95% limit over log 20.
    """
    middle = at(fitted.values)
    slopes, variance = [], 0.0
    for each in fitted.interior:
        value = fitted.values[each.name]
        step = NUDGE * (each.high - each.low)
        up, down = min(value + step, each.high), max(value - step, each.low)
        slope = (at({**fitted.values, each.name: up}) - at({**fitted.values, each.name: down})) / (up - down)
        slopes.append(slope * fitted.slope(each.name))
    if slopes:
        gradient = np.array(slopes)
        variance += float(gradient @ fitted.covariance @ gradient)
    for each in fitted.parameters:
        value = fitted.values[each.name]
        if each.at_end(value):
            inside = value + (NUDGE if value == each.low else -NUDGE) * (each.high - each.low)
            slope = (at({**fitted.values, each.name: inside}) - middle) / (inside - value)
            if abs(slope) > 1e-9:
                lo, hi = fitted.interval(each.name, confidence=0.95)
                variance += (slope * (hi - lo) / math.log(20.0)) ** 2
    return math.sqrt(max(variance, 0.0))


def accuracy(predictions: Iterable[Prediction]) -> tuple[Accuracy, ...]:
    """Return the errors by metric, those of other streams than payments apart."""
    grouped: dict[str, list[Prediction]] = {}
    for each in predictions:
        stream = "" if each.scenario == "payments" else ", other streams"
        grouped.setdefault(f"{each.metric}{stream}", []).append(each)
    return tuple(_accuracy(metric, mine) for metric, mine in grouped.items())


def _accuracy(metric: str, mine: Sequence[Prediction]) -> Accuracy:
    errors = np.array([each.error for each in mine])
    scores = [each.z for each in mine]
    bounded = [abs(score) for score in scores if score is not None]
    return Accuracy(
        metric,
        len(mine),
        sum(each.sd > 1e-9 for each in mine),
        float(np.sqrt(np.mean(errors**2))),
        float(np.abs(errors).mean()),
        float(errors.mean()),
        sum(score <= 2.0 for score in bounded),
        max(bounded, default=0.0),
        len(scores) - len(bounded),
    )
