"""The token model, fitted to the savings of Table 6, and checked on Table 5.

Tokens = attempts + g * retries + m * entries injected + c * attempts with a conflict, in base costs of an attempt. A
saving is 1 - tokens / tokens at A0, so only ratios count. Attempts are the printed ones (or the profile's expectation);
entries and conflicts are not printed, and come exactly from the profile.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from invsim.calibrate.evidence import facts_of
from invsim.calibrate.structure import published_tokens
from invsim.client.arms import get_arm
from invsim.client.planners.models import PUBLISHED, load_model
from invsim.client.planners.probabilistic import ProbabilisticModel
from invsim.data.published import published
from invsim.errors import UnknownNameError
from invsim.sim.exact import distribution
from invsim.stats.costs import TokenCosts

Floats = npt.NDArray[np.float64]

NESTED = {"attempts": "", "+ retries": "g", "+ entries": "gm", "+ conflict": "gmc"}
"""The four token models, and the costs each estimates: g a retry, m an entry, c a conflict."""

ARMS = ("A1", "A2D")
"""Arms whose savings Table 6 prints."""

ATTEMPTS = ("published", "expected")
DETECTED_BY = ("claude-haiku-4-5", "claude-sonnet-4-6", "claude-sonnet-5")
"""Models that the rule stream was run with; there they always comply, so one profile stands for all."""


@dataclass(frozen=True)
class Usage:
    """What a stream does on average, by which tokens are reckoned."""

    episodes: int
    attempts: float
    entries: float
    conflicts: float

    def tokens(self, costs: TokenCosts) -> float:
        """Return tokens in base costs of an attempt."""
        weights = costs.weights(
            attempts="attempts", entries="entries", conflicts="conflicts", one="one", episodes=self.episodes
        )
        amounts = {"attempts": self.attempts, "entries": self.entries, "conflicts": self.conflicts, "one": 1.0}
        return sum(weight * amounts[name] for name, weight in weights.items())


@dataclass(frozen=True)
class TokenResidual:
    """One cell of Table 6: savings as 0..1."""

    model: str
    arm: str
    printed: float
    fitted: float

    @property
    def error(self) -> float:
        """Fitted less printed, in points (hundredths)."""
        return 100.0 * (self.fitted - self.printed)

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return {**asdict(self), "error": self.error}


@dataclass(frozen=True)
class TokenFit:
    """One token model.

    Parameters
    ----------
    name : str
    attempts : str
        "published" or "expected".
    per_retry, per_entry, conflict : float
        In base costs of an attempt.
    se : mapping of name to float
        Standard errors of those that were estimated, from the spread of the residuals.
    rmse, largest : float
        In points of saving.
    residuals : tuple of TokenResidual
    """

    name: str
    attempts: str
    per_retry: float
    per_entry: float
    conflict: float
    se: Mapping[str, float]
    rmse: float
    largest: float
    residuals: tuple[TokenResidual, ...]

    def costs(self, model_name: str) -> TokenCosts:
        """Return the costs of a model."""
        return _costs((self.per_retry, self.per_entry, self.conflict), model_name)

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return {**asdict(self), "residuals": [each.to_dict() for each in self.residuals]}


@dataclass(frozen=True)
class DetectionDelta:
    """One arm of Table 5: tokens against those of A2DC, as a share; the print is a range over three models."""

    arm: str
    fitted: float
    low: float
    high: float
    where: str

    @property
    def outside(self) -> float:
        """How far the figure lies outside the printed range, in points; 0 within it."""
        return 100.0 * (self.fitted - min(max(self.fitted, self.low), self.high))

    def to_dict(self) -> dict[str, object]:
        """Return plain data."""
        return {**asdict(self), "outside": self.outside}


def _costs(values: Sequence[float], model_name: str) -> TokenCosts:
    per_retry, per_entry, conflict = values
    has_conflict = model_name in published_tokens().conflict
    return TokenCosts(per_retry=per_retry, per_entry=per_entry, conflict=conflict if has_conflict else 0.0)


def usage(model: ProbabilisticModel, arm: str, *, scenario: str = "payments", attempts: str = "published") -> Usage:
    """Return what a profile's streams do on average under an arm.

    Parameters
    ----------
    attempts : {"published", "expected"}
        Whether attempts are those of Table 6 or the profile's own.
    """
    if attempts not in ATTEMPTS:
        raise UnknownNameError("source of attempts", attempts, ATTEMPTS)
    law = distribution(facts_of(scenario), arm=get_arm(arm), model=model)
    episodes, made = len(facts_of(scenario).plan.episodes), law.expected("attempts")
    if attempts == "published":
        printed = published()[scenario, model.name, arm, "retries"]
        made = episodes + (printed.count or 0) / (printed.of or 1)
    return Usage(episodes, made, law.expected("injected_entries"), law.expected("conflict_attempts"))


def fit_tokens(
    *,
    attempts: str = "published",
    models: Collection[str] = PUBLISHED,
    profiles: Mapping[str, ProbabilisticModel] | None = None,
) -> tuple[TokenFit, ...]:
    """Fit the four nested token models by least squares on the savings, and set the shipped costs beside them.

    Parameters
    ----------
    attempts : {"published", "expected"}
        See ``usage``.
    models : collection of str
        Models whose savings are used.
    profiles : mapping of name to ProbabilisticModel, optional
        In place of the shipped profiles.

    Returns
    -------
    tuple of TokenFit
        In the order of ``NESTED``, then "shipped".
    """
    used = {
        name: [usage((profiles or {}).get(name) or load_model(name), arm, attempts=attempts) for arm in ("A0", *ARMS)]
        for name in models
    }
    fits = [_fitted(name, free, used, attempts) for name, free in NESTED.items()]
    shipped = TokenCosts(conflict=max(load_model(name).conflict for name in published_tokens().conflict))
    values = (shipped.per_retry, shipped.per_entry, shipped.conflict)
    return (*fits, _reported("shipped", values, {}, used, attempts))


def _fitted(name: str, free: str, used: Mapping[str, Sequence[Usage]], attempts: str) -> TokenFit:
    from scipy.optimize import least_squares

    def values(x: Floats) -> tuple[float, ...]:
        return tuple(float(x[free.index(each)]) if each in free else 0.0 for each in "gmc")

    def errors(x: Floats) -> Floats:
        return np.array([each.error for each in _residuals(values(x), used)])

    if not free:
        return _reported(name, (0.0, 0.0, 0.0), {}, used, attempts)
    found = least_squares(errors, np.full(len(free), 0.01), x_scale=np.full(len(free), 0.1))
    spread = 2.0 * found.cost / max(len(found.fun) - len(free), 1)
    se = np.sqrt(spread * np.diag(np.linalg.pinv(found.jac.T @ found.jac)))
    names = {"g": "per_retry", "m": "per_entry", "c": "conflict"}
    errors_of = {names[each]: float(se[at]) for at, each in enumerate(free)}
    return _reported(name, values(found.x), errors_of, used, attempts)


def _reported(
    name: str, values: Sequence[float], se: Mapping[str, float], used: Mapping[str, Sequence[Usage]], attempts: str
) -> TokenFit:
    residuals = _residuals(values, used)
    errors = np.array([each.error for each in residuals])
    rmse, largest = float(np.sqrt(np.mean(errors**2))), float(np.abs(errors).max())
    per_retry, per_entry, conflict = values
    return TokenFit(name, attempts, per_retry, per_entry, conflict, se, rmse, largest, residuals)


def _residuals(values: Sequence[float], used: Mapping[str, Sequence[Usage]]) -> tuple[TokenResidual, ...]:
    found = []
    for model, (bare, *others) in used.items():
        costs = _costs(values, model)
        for arm, each in zip(ARMS, others, strict=True):
            printed = published()["payments", model, arm, "token_saving"].value
            found.append(TokenResidual(model, arm, printed, 1.0 - each.tokens(costs) / bare.tokens(costs)))
    return tuple(found)


def detection_deltas(costs: TokenCosts) -> tuple[DetectionDelta, ...]:
    """Return Table 5's token deltas under some costs: no figure of that table was used to fit them."""
    model = load_model(DETECTED_BY[0])
    lazy = usage(model, "A2DC", scenario="rules", attempts="expected").tokens(costs)
    return tuple(
        DetectionDelta(
            each.arm,
            usage(model, each.arm, scenario="rules", attempts="expected").tokens(costs) / lazy - 1.0,
            each.low,
            each.high,
            each.where,
        )
        for each in published_tokens().detection
    )
