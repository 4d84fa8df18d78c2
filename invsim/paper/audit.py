"""The audit: every printed number worked out again, and a status given by what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from invsim.errors import InputError, UnknownNameError
from invsim.paper.claims import MEANINGS, STRENGTH, Claim, claims
from invsim.paper.context import Context
from invsim.stats.moments import UNDEFINED, Estimate


@dataclass(frozen=True)
class Found:
    """What a check found.

    Parameters
    ----------
    agrees : bool
    status : str
        What it is worth if it agrees, one of ``STRENGTH``.
    value : float, str or None
        What the run gives, in the unit of the print; exact where the exact engine gives it.
    simulated : Estimate
        The same from simulated streams.
    exact : float or None
    sd : float or None
        Standard deviation of a publication of that size; 0 where nothing is left to chance.
    z : float or None
        (printed - value) / sd.
    shown : str
        How it was worked out, where a number alone would not tell.
    fits_to : str
        What was fitted to the number, as ``data/evidence.csv`` has it, also where the fit leaves nothing to chance.
    """

    agrees: bool
    status: str
    value: float | str | None = None
    simulated: Estimate = UNDEFINED
    exact: float | None = None
    sd: float | None = None
    z: float | None = None
    shown: str = ""
    fits_to: str = ""


UNCHECKED = Found(True, "input")


@dataclass(frozen=True)
class Judgement:
    """A printed number, what its check found, and its status."""

    claim: Claim
    found: Found
    status: str

    @property
    def reason(self) -> str:
        """Why it cannot be worked out, or why its check disagrees; empty where there is nothing to explain."""
        if self.claim.reason or self.status != "input":
            return self.claim.reason
        return "follows from numbers that cannot be worked out themselves"

    @property
    def difference(self) -> float | None:
        """Printed less worked out, in the unit of the print."""
        if self.claim.unit == "text" or not isinstance(self.found.value, float | int):
            return None
        return self.claim.value - self.found.value


def judge(claim: Claim, found: Found) -> Judgement:
    """Give a status. It comes from the check alone; a reason in the data only says why a check may disagree."""
    if found.agrees:
        return Judgement(claim, found, found.status)
    return Judgement(claim, found, "contradicts" if claim.reason else "unexplained")


def weakest(statuses: Iterable[str]) -> str:
    """Return the status with the least evidence."""
    return max(statuses, key=STRENGTH.index)


class Audit:
    """All printed numbers against one computation; checks run when they are asked for, each once.

    Parameters
    ----------
    context : Context
    printed : sequence of Claim, optional
        Those of the paper by default.
    """

    def __init__(self, context: Context, printed: Sequence[Claim] | None = None) -> None:
        self.context = context
        self.claims = {claim.id: claim for claim in (claims() if printed is None else printed)}
        self._judged: dict[str, Judgement] = {}

    def __getitem__(self, name: str) -> Judgement:
        """Return the judgement of the number with that id."""
        if name not in self._judged:
            claim = self.claim(name)
            self._judged[name] = judge(claim, self._found(claim))
        return self._judged[name]

    def claim(self, name: str) -> Claim:
        """Return the number with that id."""
        if name not in self.claims:
            raise UnknownNameError("number", name, self.claims, where="audit.csv")
        return self.claims[name]

    def matching(self, patterns: str) -> list[Claim]:
        """Return the numbers whose ids match any of some patterns; each pattern must match one."""
        found: dict[str, Claim] = {}
        for pattern in patterns.split():
            mine = {name: claim for name, claim in self.claims.items() if fnmatchcase(name, pattern)}
            if not mine:
                raise InputError("names no number of the paper", where="audit.csv", value=pattern)
            found |= mine
        return list(found.values())

    def _found(self, claim: Claim) -> Found:
        from invsim.paper.checks import CHECKS

        if not claim.check:
            return UNCHECKED
        if claim.check not in CHECKS:
            raise UnknownNameError("check", claim.check, CHECKS, where=f"audit.csv, {claim.id}")
        return CHECKS[claim.check](self, claim)

    def judgements(self) -> list[Judgement]:
        """Return the judgement of every number."""
        return [self[name] for name in self.claims]

    def summary(self) -> dict[str, int]:
        """Return how many numbers there are, and how many of each status."""
        counts = Counter(each.status for each in self.judgements())
        return {"total": sum(counts.values()), **{status: counts[status] for status in MEANINGS}}
