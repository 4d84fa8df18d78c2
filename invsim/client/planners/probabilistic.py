"""The probabilistic model: rates per constraint class or hint shape."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from invsim.client.planners.base import Action, ComplianceModel, Injected, Situation
from invsim.errors import InputError
from invsim.world.wire import Request, Shape

if TYPE_CHECKING:
    from invsim.client.planners.posterior import Posterior

MAX_RETRIES = 4
"""An episode has at most five attempts in all."""

# Looked up once: a member of an enumeration costs as much as a decision.
IGNORE, APPLY, APPLY_STALE, SOLVE = Action
NOTHING, VALID, CONFLICT, STALE = Injected


def _probability(value: float, name: str, where: object = "") -> float:
    if not 0.0 <= value <= 1.0:
        raise InputError(f"{name} must be a probability from 0 to 1", where=where, value=value)
    return float(value)


@dataclass(frozen=True)
class RetryLaw:
    """How many further attempts a failed first try needs.

    Parameters
    ----------
    cumulative : tuple of float
        ``cumulative[k - 1]`` = P(recovered within k retries), k = 1..4, non-decreasing in [0, 1]. What is missing
        from 1 at the end is exhaustion.
    """

    cumulative: tuple[float, ...]

    def __post_init__(self) -> None:
        steps = (0.0, *self.cumulative, 1.0)
        rising = all(earlier <= later for earlier, later in itertools.pairwise(steps))
        if len(self.cumulative) != MAX_RETRIES or not rising:
            what = f"a retry law is {MAX_RETRIES} cumulative probabilities that do not fall"
            raise InputError(what, value=self.cumulative)

    @classmethod
    def geometric(cls, q: float, *, where: object = "") -> RetryLaw:
        """Each retry succeeds with probability q, independently: P(within k) = 1 - (1 - q)^k."""
        q = _probability(q, "q", where)
        return cls(tuple(1.0 - (1.0 - q) ** k for k in range(1, MAX_RETRIES + 1)))

    @classmethod
    def explicit(cls, pmf: tuple[float, ...], *, where: object = "") -> RetryLaw:
        """``pmf[k - 1]`` = P(exactly k retries); what is left of 1 is exhaustion."""
        if len(pmf) > MAX_RETRIES:
            raise InputError(f"pmf has at most {MAX_RETRIES} terms", where=where, value=list(pmf))
        total, sums = 0.0, []
        for k in range(MAX_RETRIES):
            total += _probability(pmf[k], "each term of pmf", where) if k < len(pmf) else 0.0
            sums.append(total)
        if total > 1.0 + 1e-9:
            raise InputError("the terms of pmf sum to more than 1", where=where, value=list(pmf))
        sums = [1.0 if each > 1.0 - 1e-9 else each for each in sums]  # rounding is no chance of exhaustion
        return cls(tuple(sums))

    @property
    def mean_retries(self) -> float:
        """Expected retries spent, those of exhausted episodes included: sum of P(not recovered within k), k = 0..3."""
        return 1.0 + sum(1.0 - each for each in self.cumulative[: MAX_RETRIES - 1])

    @property
    def exhaustion(self) -> float:
        """P(the episode ends without success)."""
        return 1.0 - self.cumulative[-1]


ONE_RETRY = RetryLaw((1.0, 1.0, 1.0, 1.0))


@dataclass(frozen=True)
class Behaviour:
    """The parameters of one constraint class. Each rate is a probability in [0, 1].

    Parameters
    ----------
    p_apply : float
        P(first try succeeds | only a valid fix injected).
    p_fresh : float
        P(first try succeeds | stale and fresh both injected).
    p_stale : float
        P(a stale fix injected alone is applied); it then fails.
    p_unaided_first, p_unaided_repeat : float
        P(solves without memory), on a key's first occurrence and after.
    retry, retry_injected : RetryLaw
        After a failed first try; the second where a fix was injected.
    """

    p_apply: float = 1.0
    p_fresh: float = 1.0
    p_stale: float = 1.0
    p_unaided_first: float = 0.0
    p_unaided_repeat: float = 0.0
    retry: RetryLaw = ONE_RETRY
    retry_injected: RetryLaw = ONE_RETRY

    def __post_init__(self) -> None:
        for name in ("p_apply", "p_fresh", "p_stale", "p_unaided_first", "p_unaided_repeat"):
            _probability(getattr(self, name), name)


@dataclass(frozen=True)
class ProbabilisticModel(ComplianceModel):
    """Rates per class, else per hint shape, else a default.

    Parameters
    ----------
    name : str
    default : Behaviour
    classes, shapes : mapping of name to Behaviour
        A class takes precedence over a shape.
    title, source : str
    published_arms : tuple of str
        Arms the paper prints for this model; empty for none.
    conflict : float
        See ``ComplianceModel.conflict_cost``.
    uncertainty : mapping of (section, name, field) to Posterior
        What was estimated, as in ("shape", "add-a-field", "p_apply") and ("default", "", "retry"); the field itself
        holds the posterior mean.
    """

    name: str
    default: Behaviour = Behaviour()
    classes: Mapping[str, Behaviour] = field(default_factory=dict)
    shapes: Mapping[str, Behaviour] = field(default_factory=dict)
    title: str = ""
    source: str = ""
    published_arms: tuple[str, ...] = ()
    conflict: float = 0.0
    uncertainty: Mapping[tuple[str, str, str], Posterior] = field(default_factory=dict)

    @property
    def conflict_cost(self) -> float:
        """See ``ComplianceModel.conflict_cost``."""
        return self.conflict

    def behaviour(self, constraint: str, shape: str | None = None) -> Behaviour:
        """Return the parameters that govern a class."""
        if constraint in self.classes:
            return self.classes[constraint]
        return self.shapes.get(str(shape), self.default) if shape is not None else self.default

    def drawn(self, seed: int, index: int) -> ProbabilisticModel:
        """Return the model with one draw of everything that was estimated, itself certain.

        Draws of different parameters are independent; parameters that one line of a file gives share theirs.

        Parameters
        ----------
        seed, index : int
            0 or more; the draw is a function of both, and of the model.
        """
        import numpy as np

        rng = np.random.default_rng((seed, index))
        posteriors = {each.key: each for each in self.uncertainty.values()}
        values = {key: posteriors[key].draw(rng) for key in sorted(posteriors)}
        drawn: dict[tuple[str, str], dict[str, float | RetryLaw]] = {}
        for (section, name, parameter), each in self.uncertainty.items():
            drawn.setdefault((section, name), {})[parameter] = values[each.key]

        def certain(section: str, name: str, rates: Behaviour) -> Behaviour:
            return replace(rates, **drawn.get((section, name), {}))  # type: ignore[arg-type]

        return replace(
            self,
            default=certain("default", "", self.default),
            classes={name: certain("class", name, each) for name, each in self.classes.items()},
            shapes={name: certain("shape", name, each) for name, each in self.shapes.items()},
            uncertainty={},
        )

    def decide(self, situation: Situation, u: float) -> Action | Request:
        """See ``ComplianceModel.decide``. A success is always ``u < p``, so arms with equal p agree draw by draw."""
        rates = self.behaviour(situation.constraint, situation.shape)
        if situation.attempt > 1:
            law = rates.retry_injected if situation.injected else rates.retry
            return APPLY if u < law.cumulative[situation.attempt - 2] else IGNORE
        injected = situation.injected
        if injected is NOTHING:
            return SOLVE if u < self._unaided(rates, situation) else IGNORE
        if injected is VALID:
            return APPLY if u < rates.p_apply else IGNORE
        if injected is CONFLICT:
            return APPLY if u < rates.p_fresh else APPLY_STALE
        if u < (1.0 - rates.p_stale) * self._unaided(rates, situation):
            return SOLVE
        return APPLY_STALE if u >= 1.0 - rates.p_stale else IGNORE

    @staticmethod
    def _unaided(rates: Behaviour, situation: Situation) -> float:
        return rates.p_unaided_first if situation.first_occurrence else rates.p_unaided_repeat

    def weight(self, constraint: str, shape: Shape | None) -> float:
        """Return w = (1 - p_unaided) * mu of the class, in retries per addressable episode."""
        rates = self.behaviour(constraint, shape)
        return (1.0 - rates.p_unaided_repeat) * rates.retry.mean_retries
