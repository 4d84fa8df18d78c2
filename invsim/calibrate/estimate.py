"""The estimator: a model's printed integers in, its profile with intervals and residuals out."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from invsim.calibrate.evidence import SCENARIOS, Cell, Integer, Total, cells, chosen, integers, totals_of
from invsim.calibrate.likelihood import Behaviours, expectation, log_likelihood
from invsim.calibrate.maximum import Bounds, Maximum, maximise
from invsim.calibrate.structure import Parameter, Structure, structure
from invsim.client.planners.probabilistic import Behaviour, ProbabilisticModel
from invsim.errors import InputError

PROBE = 0.05
"""Share of its domain by which a parameter is moved to see which integers depend on it."""


@dataclass(frozen=True)
class Estimated:
    """One parameter of a profile.

    Parameters
    ----------
    name : str
        Owner and field, as in "governed.p_apply".
    kind : str
        "rate", "geometric" (the q of a retry law) or "mean" (of a maximum-entropy law of 1 to 4 retries).
    value : float
    lo, hi : float or None
        Limits of its interval; one-sided where ``boundary``; None where it is fixed.
    free, identified, boundary : bool
        Whether it was estimated; whether the integers bound it on any side; whether the estimate is an end of its
        domain.
    why : str
    evidence : tuple of str
        The integers whose expectation depends on it.
    """

    name: str
    kind: str
    value: float
    lo: float | None
    hi: float | None
    free: bool
    identified: bool
    boundary: bool
    why: str
    evidence: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Residual:
    """A printed integer beside what the profile expects; ``z`` is None where it cannot happen under the profile."""

    scenario: str
    arm: str
    metric: str
    printed: int
    of: int
    expected: float
    sd: float
    z: float | None

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Calibration:
    """A profile estimated from printed integers.

    Parameters
    ----------
    model_name : str
    confidence : float
    log_likelihood : float
        Log probability of all integers together.
    parameters : tuple of Estimated
    residuals : tuple of Residual
    """

    model_name: str
    confidence: float
    log_likelihood: float
    parameters: tuple[Estimated, ...]
    residuals: tuple[Residual, ...]

    @property
    def values(self) -> dict[str, float]:
        """The free parameters."""
        return {each.name: each.value for each in self.parameters if each.free}

    def __getitem__(self, name: str) -> Estimated:
        return next(each for each in self.parameters if each.name == name)

    def model(self) -> ProbabilisticModel:
        """Return the profile as a model."""
        return structure(self.model_name).model(self.values)

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return {
            "model": self.model_name,
            "confidence": self.confidence,
            "log_likelihood": self.log_likelihood,
            "parameters": [each.to_dict() for each in self.parameters],
            "residuals": [each.to_dict() for each in self.residuals],
        }


def calibrate(
    model_name: str,
    *,
    arms: Collection[str] | None = None,
    metrics: Collection[str] | None = None,
    scenarios: Iterable[str] = SCENARIOS,
    confidence: float = 0.95,
) -> Calibration:
    """Estimate a published profile by maximum likelihood from the integers that the paper prints.

    The likelihood is exact and joint: see ``invsim.calibrate.likelihood``. Which parameters are free is data:
    ``invsim/data/calibration.toml``.

    Parameters
    ----------
    model_name : str
        One of the seven.
    arms, metrics : collection of str, optional
        Use only the integers of these.
    scenarios : iterable of str
        "payments", "recipes", "frequency-1" ... "control".
    confidence : float
        In (0, 1).

    Raises
    ------
    UnknownNameError
        For a model, an arm or a metric that nothing is printed of.
    InputError
        For a confidence outside (0, 1), or integers that no value of the parameters allows.
    """
    shape = structure(model_name)
    evidence = chosen(integers(model_name, scenarios=scenarios), arms=arms, metrics=metrics)
    return estimate(shape, evidence, confidence=confidence)


def estimate(
    shape: Structure, evidence: Sequence[Integer], *, confidence: float = 0.95, intervals: bool = True
) -> Calibration:
    """Estimate a profile from integers, printed or simulated: see ``calibrate``."""
    if not 0.0 < confidence < 1.0:
        raise InputError("confidence must be between 0 and 1", value=confidence)
    found = fit(shape, evidence)
    grouped, behaviours = cells(evidence), spread_over_classes(shape, found.values)
    parameters = [
        _estimated(shape, each, found, grouped, confidence if intervals else None) for each in shape.parameters
    ]
    return Calibration(
        shape.model_name,
        confidence,
        found.log_likelihood,
        (*parameters, *_probed(shape, found, grouped, _totals(shape, evidence))),
        tuple(residual(cell, each, behaviours) for cell in grouped for each in cell.integers),
    )


def fit(shape: Structure, evidence: Sequence[Integer], *, near: Mapping[str, float] | None = None) -> Maximum:
    """Return the maximum of the likelihood of some integers, searched from the structure's starts or ``near`` some."""
    grouped, sums = cells(evidence), _totals(shape, evidence)

    def objective(values: Mapping[str, float]) -> float:
        return log_likelihood(grouped, spread_over_classes(shape, values), sums)

    bounds = [Bounds(each.name, *each.domain) for each in shape.free]
    return maximise(objective, bounds, near or shape.starts(), near=near is not None)


def _totals(shape: Structure, evidence: Sequence[Integer]) -> list[Total]:
    return totals_of(shape.model_name, {(each.scenario, each.arm): each for each in cells(evidence)})


def spread_over_classes(shape: Structure, values: Mapping[str, float]) -> Behaviours:
    """Return the behaviour of each class under some values, each worked out once."""
    known: dict[str, Behaviour] = {}

    def behaviour(constraint: str) -> Behaviour:
        if constraint not in known:
            known[constraint] = shape.behaviour(constraint, values)
        return known[constraint]

    return behaviour


def residual(cell: Cell, each: Integer, behaviours: Callable[[str], Behaviour]) -> Residual:
    """Return an integer beside its expectation and standard deviation."""
    mean, variance = expectation(cell, each.metric, behaviours)
    sd = math.sqrt(max(variance, 0.0))
    off = each.count - mean
    z = off / sd if sd > 1e-9 else 0.0 if abs(off) < 1e-6 else None
    return Residual(each.scenario, each.arm, each.metric, each.count, each.of, mean, sd, z)


def _estimated(
    shape: Structure, each: Parameter, found: Maximum, grouped: Sequence[Cell], confidence: float | None
) -> Estimated:
    if not each.free:
        return Estimated(each.name, each.kind, each.value, None, None, False, False, False, each.why)
    value = found.values[each.name]
    evidence = _dependent(shape, each, found.values, grouped)
    low, high = each.domain
    lo, hi = (None, None) if confidence is None else found.interval(each.name, confidence=confidence)
    identified = bool(evidence) and (confidence is None or (lo, hi) != (low, high))
    boundary = value in {low, high}
    return Estimated(each.name, each.kind, value, lo, hi, True, identified, boundary, each.why, evidence)


def _dependent(
    shape: Structure, each: Parameter, values: Mapping[str, float], grouped: Sequence[Cell]
) -> tuple[str, ...]:
    """Return the integers whose expectation moves with a parameter."""
    low, high = each.domain
    value = values[each.name]
    aside = value + PROBE * (high - low) if value + PROBE * (high - low) <= high else value - PROBE * (high - low)
    before, after = spread_over_classes(shape, values), spread_over_classes(shape, {**values, each.name: aside})
    return tuple(
        integer.label
        for cell in grouped
        for integer in cell.integers
        if abs(expectation(cell, integer.metric, before)[0] - expectation(cell, integer.metric, after)[0]) > 1e-9
    )


def _probed(shape: Structure, found: Maximum, grouped: Sequence[Cell], sums: Sequence[Total]) -> list[Estimated]:
    """Return p_stale of every class that has rates of its own: whether the likelihood moves with it at all."""
    rows = []
    for owner in dict.fromkeys(each.owner for each in shape.parameters):
        behaviour = shape.behaviour(owner, found.values)

        def at(p_stale: float, owner: str = owner) -> float:
            def probe(constraint: str) -> Behaviour:
                own = shape.behaviour(constraint, found.values)
                return replace(own, p_stale=p_stale) if constraint == owner else own

            return log_likelihood(grouped, probe, sums)

        moves = abs(at(0.0) - at(1.0)) > 1e-6
        why = "follows p_apply: a client cannot tell a stale fix from a valid one"
        rows.append(Estimated(f"{owner}.p_stale", "rate", behaviour.p_stale, None, None, False, moves, False, why))
    return rows
