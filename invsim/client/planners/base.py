"""The interface of every compliance model."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

from invsim.client.memory import Entry
from invsim.world.wire import Request, Response, Shape


class Injected(enum.IntEnum):
    """What the memory block holds for an episode's key, judged by the server as it stands."""

    NOTHING = 0
    VALID = 1
    CONFLICT = 2
    """Stale and valid side by side: only an append-only store gets here."""
    STALE = 3


class Action(enum.IntEnum):
    """What a planner does with its next attempt."""

    IGNORE = 0
    """Send the task as it stands, without any fix."""
    APPLY = 1
    """First attempt: apply an injected fix that is right. Retry: apply what the server just suggested."""
    APPLY_STALE = 2
    """First attempt only: apply an injected fix that is no longer right."""
    SOLVE = 3
    """Work the right request out without memory."""


class NoCall(NamedTuple):
    """An answer that no request can be made of: a refusal, or text that does not parse.

    It spends an attempt, and the server never hears of it.
    """

    reason: str


@dataclass(slots=True)
class Situation:
    """What a planner has before it when it must act.

    Parameters
    ----------
    episode : int
        Index in the stream, from 0.
    constraint : str
        Constraint class of the task.
    shape : Shape or None
        Hint shape of the class; None for a task that meets no constraint.
    injected : Injected
    attempt : int
        1 for the first try.
    first_occurrence : bool
        Whether no earlier episode of the stream had this key.
    request : Request
        The task as it stands.
    entries : tuple of Entry
        The injected fixes, oldest first.
    response : Response or None
        What the server said to the attempt before; None on the first try.
    """

    episode: int
    constraint: str
    shape: Shape | None
    injected: Injected
    attempt: int
    first_occurrence: bool
    request: Request
    entries: tuple[Entry, ...]
    response: Response | None


class ComplianceModel(ABC):
    """A planner's behaviour. Implement ``decide``; the rest has defaults.

    Examples
    --------
    A planner that tries its memory every time and gives a retry a coin's chance:

    >>> class Keen(ComplianceModel):
    ...     name = "keen"
    ...
    ...     def decide(self, situation, u):
    ...         if situation.attempt == 1:
    ...             return Action.APPLY if situation.injected is Injected.VALID else Action.IGNORE
    ...         return Action.APPLY if u < 1 - 0.5 ** (situation.attempt - 1) else Action.IGNORE
    """

    name: str

    @abstractmethod
    def decide(self, situation: Situation, u: float) -> Action | Request | NoCall:
        """Return the next action, or the very request to send, or that there is none.

        Parameters
        ----------
        situation : Situation
        u : float
            The episode's uniform draw for this decision, in [0, 1): one for the first try, another for the retries.
            All retries of an episode share theirs, so compare it with the *cumulative* probability of having
            recovered by this attempt. Arms meet the same draws.
        """

    def weight(self, constraint: str, shape: Shape | None) -> float:
        """Return what a first-try hit saves in this class: w = (1 - p_unaided) * mu, in retries.

        It weights validity and compliance across classes (the savings equation); 1 where a model does not say.
        """
        return 1.0

    @property
    def conflict_cost(self) -> float:
        """Extra tokens of an attempt that carries a stale and a fresh entry, relative to an attempt's base cost."""
        return 0.0
