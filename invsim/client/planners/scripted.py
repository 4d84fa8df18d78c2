"""The scripted model: the outcome of every episode is written down beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from invsim.client.planners.base import Action, ComplianceModel, Injected, Situation
from invsim.client.planners.probabilistic import MAX_RETRIES
from invsim.errors import PlannerError
from invsim.world.wire import Request


@dataclass(frozen=True)
class Outcome:
    """How one episode goes.

    Parameters
    ----------
    first_try : bool
    retries : int
        Further attempts until success, 1..4, when the first try fails; 0 for none because the first try succeeds.
    exhausted : bool
        All attempts fail.
    """

    first_try: bool
    retries: int = 0
    exhausted: bool = False

    def __post_init__(self) -> None:
        ends = [self.first_try, self.exhausted, self.retries != 0]
        if sum(ends) != 1 or not 0 <= self.retries <= MAX_RETRIES:
            raise PlannerError(
                f"an episode succeeds at once, or after 1 to {MAX_RETRIES} retries, or exhausts, not {self}"
            )


@dataclass(frozen=True)
class ScriptedModel(ComplianceModel):
    """Plays ``outcomes[episode]``; episodes that are not scripted succeed at once.

    A scripted success uses a valid injected fix where there is one, and else works the answer out unaided. A scripted
    failure applies the stale fix where one is injected alone or beside a fresh one.
    """

    name: str
    outcomes: Mapping[int, Outcome]

    def decide(self, situation: Situation, u: float) -> Action | Request:
        """See ``ComplianceModel.decide``."""
        outcome = self.outcomes.get(situation.episode)
        valid = situation.injected in {Injected.VALID, Injected.CONFLICT}
        if situation.attempt == 1:
            if outcome is None or outcome.first_try:
                return Action.APPLY if valid else Action.SOLVE
            stale = situation.injected in {Injected.STALE, Injected.CONFLICT}
            return Action.APPLY_STALE if stale else Action.IGNORE
        if outcome is None or outcome.exhausted:
            return Action.IGNORE
        return Action.APPLY if situation.attempt > outcome.retries else Action.IGNORE
