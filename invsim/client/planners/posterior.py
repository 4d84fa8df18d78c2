"""Parameters that were estimated and are not known: a distribution in place of a number.

A model file may give a rate as ``{ alpha = 92.5, beta = 16.5 }`` and a retry law as ``{ counts = [31, 4, 1, 0],
exhausted = 2 }``. What plays a single model takes the mean; ``ProbabilisticModel.drawn`` takes a draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from invsim.client.planners.probabilistic import MAX_RETRIES, RetryLaw
from invsim.errors import InputError

if TYPE_CHECKING:
    import numpy as np

PRIOR_EPISODES = 1.0
"""Episodes that the prior of a retry law is worth, spread evenly over recovery at retry 1..4 and exhaustion."""

LARGEST = 1e15
"""Most that a count of a posterior can be: sums of them stay far from where numbers end."""


@dataclass(frozen=True)
class BetaPosterior:
    """A rate with the distribution Beta(alpha, beta), prior included.

    Parameters
    ----------
    alpha, beta : float
        Above 0, at most ``LARGEST``.
    key : str
        Where it was written. Parameters with one key are one quantity and share every draw.
    """

    alpha: float
    beta: float
    key: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if not all(0.0 < each <= LARGEST for each in (self.alpha, self.beta)):
            shown = {"alpha": self.alpha, "beta": self.beta}
            what = f"alpha and beta must be finite numbers above 0, at most {LARGEST:g}"
            raise InputError(what, where=self.key, value=shown)

    @property
    def mean(self) -> float:
        """The expectation."""
        return self.alpha / (self.alpha + self.beta)

    def draw(self, rng: np.random.Generator) -> float:
        """Return a rate."""
        return float(rng.beta(self.alpha, self.beta))


def unseen_conflict(alpha: float, beta: float) -> tuple[float, float]:
    """Return alpha and beta of p_fresh where nobody has seen the planner with a stale fix beside a valid one.

    A planner cannot tell the two apart, so it takes the valid one half of the times that it applies a fix at all: the
    mean is half that of p_apply, ``alpha / (alpha + beta) / 2``, and the distribution is worth one trial. For a planner
    that always applies that is Jeffreys' prior; one that never does is not expected to in a conflict.

    Parameters
    ----------
    alpha, beta : float
        Of p_apply.
    """
    half = alpha / (alpha + beta) / 2.0
    return half, 1.0 - half


@dataclass(frozen=True)
class RetryPosterior:
    """A retry law with a Dirichlet distribution over recovery at retry 1, 2, 3, 4 and exhaustion.

    Its parameters are the counts plus 1/5 each: a prior worth one episode (Perks 1947), under which the laws of models
    that nearly always recover at once are not dragged towards many retries.

    Parameters
    ----------
    counts : tuple of float
        Episodes that recovered at the k-th retry, k = 1..4; fractional where effective.
    exhausted : float
        Episodes that never recovered.
    key : str
        As in ``BetaPosterior``.
    """

    counts: tuple[float, ...]
    exhausted: float = 0.0
    key: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        if len(self.counts) > MAX_RETRIES:
            what = f"counts has at most {MAX_RETRIES} terms, one a retry"
            raise InputError(what, where=self.key, value=list(self.counts))
        for each in (*self.counts, self.exhausted):
            if not 0.0 <= each <= LARGEST:
                what = f"counts of a retry law must be finite numbers, 0 or more and at most {LARGEST:g}"
                raise InputError(what, where=self.key, value=each)

    @property
    def concentration(self) -> tuple[float, ...]:
        """Parameters of the Dirichlet distribution, exhaustion last."""
        padded = (*self.counts, *(0.0,) * (MAX_RETRIES - len(self.counts)), self.exhausted)
        return tuple(each + PRIOR_EPISODES / len(padded) for each in padded)

    @property
    def mean(self) -> RetryLaw:
        """The law of the expected probabilities."""
        total = math.fsum(self.concentration)
        return RetryLaw.explicit(tuple(each / total for each in self.concentration[:-1]))

    def draw(self, rng: np.random.Generator) -> RetryLaw:
        """Return a law."""
        return RetryLaw.explicit(tuple(rng.dirichlet(self.concentration)[:-1].tolist()))


Posterior: TypeAlias = BetaPosterior | RetryPosterior
