"""Every number that the paper prints, as data: where it stands, what it counts, and which check works it out.

Left out are numbers that name and do not measure: those of sections, tables, figures, equations, footnotes, levels,
models, citations, standards and years; codes and versions inside identifiers; numbers of a hypothetical example; and
small number words used as pronouns.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources

from invsim.errors import InputError

LIMIT = 3.0
"""Standard deviations of a publication that a number may be off and still be "within".

About a hundred numbers vary, half of them independently. If every profile is right, one passes this with probability
.0027, so about one audit in seven finds one that does; a limit at 5% over all hundred would be 3.5.
"""

SCALES = {"%": 100.0, "points": 100.0}
"""What a quantity of 0..1 is multiplied by to be in a unit; 1 for all others."""

MEANINGS = {
    "exact": "Nothing is left to chance, and it comes out equal; a profile may have a rate fitted at 0 or 1.",
    "within": f"Comes out within {LIMIT:g} standard deviations of a publication of its size; nothing was fitted to it.",
    "fitted": "The same, but a parameter was fitted to it, so agreement is no evidence; the residual is shown.",
    "structural": "A definition that code enforces, evaluated on the object that enforces it.",
    "input": "Cannot be worked out from what is published.",
    "contradicts": "The check disagrees, and the reason is known: mostly another number of the paper.",
    "unexplained": "The check disagrees, and nobody knows why.",
}
"""What a printed number may come to."""

STRENGTH = ("exact", "structural", "within", "fitted", "input")
"""Statuses from most to least evidence. A number derived from others has the least of theirs."""


@dataclass(frozen=True)
class Claim:
    """One printed number.

    Parameters
    ----------
    id : str
    where : str
        Places of the paper that print it with this meaning.
    what : str
    printed : str
        As it stands.
    unit : str
        "%", "points", "ratio", "count", "index", "bytes", "thousand" or "text".
    check, about : str
        Name of the check that works it out, and what that is told; both empty for an input.
    reason : str
        Why it cannot be worked out, or why the check is known to disagree.
    """

    id: str
    where: str
    what: str
    printed: str
    unit: str
    check: str
    about: str
    reason: str

    @property
    def value(self) -> float:
        """The number, in its unit."""
        return float(self.printed)

    @property
    def half(self) -> float:
        """Half a unit of the last digit printed: how far the number may be off by rounding."""
        return 0.5 * 10.0 ** -len(self.printed.partition(".")[2])

    @property
    def scale(self) -> float:
        """What a quantity of 0..1 is multiplied by."""
        return SCALES.get(self.unit, 1.0)


@cache
def claims() -> tuple[Claim, ...]:
    """Return every printed number, in the order of the tables and then of the text."""
    found = tuple(Claim(**row) for row in rows("audit.csv"))
    seen: set[str] = set()
    for claim in found:
        if claim.id in seen:
            raise InputError("two numbers have one id", where="audit.csv", value=claim.id)
        seen.add(claim.id)
        if not claim.check and not claim.reason:
            raise InputError("a number without a check needs a reason", where="audit.csv", value=claim.id)
    return found


def rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a shipped CSV file."""
    text = resources.files("invsim.data").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


@cache
def _evidence() -> dict[tuple[str, str, str], str]:
    return {(row["scenario"], row["model"], row["metric"]): row["fits"] for row in rows("evidence.csv")}


def fits(scenario: str, model: str, metric: str) -> str:
    """Return what was fitted to a printed number; empty where nothing was.

    A profile is fitted to all the integers of its model on the drifted stream and on recipes, whichever arm they
    belong to.
    """
    known = _evidence()
    return known.get((scenario, model, metric)) or known.get((scenario, "", metric), "")
