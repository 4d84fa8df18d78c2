"""What Wu and Canedo (2026) print, as data: looked up by scenario, model, arm and metric."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Published:
    """One printed figure.

    Parameters
    ----------
    value : float
        As printed; a percentage as 0..1.
    count, of : int or None
        The integer behind it, over the runs pooled, where the print determines it.
    where : str
        Table or section.
    """

    value: float
    count: int | None
    of: int | None
    where: str


RULE_STREAM_MODELS = ("claude-haiku-4-5", "claude-sonnet-4-6", "claude-sonnet-5", "compliant", "compliant-stale")
"""Models that the rule stream's counts stand beside: the three it was run with, and the two that always comply."""


@cache
def published() -> dict[tuple[str, str, str, str], Published]:
    """Return every printed figure by (scenario, model, arm, metric); model "" stands for those of the rule stream."""
    text = resources.files("invsim.data").joinpath("published.csv").read_text(encoding="utf-8")
    return {
        (row["scenario"], row["model"], row["arm"], row["metric"]): Published(
            float(row["value"]),
            int(row["count"]) if row["count"] else None,
            int(row["of"]) if row["of"] else None,
            row["where"],
        )
        for row in csv.DictReader(text.splitlines())
    }


def drifted_integers() -> list[tuple[str, str, str, str]]:
    """Return the keys of every integer printed for the drifted stream, each once.

    Left out are those that restate another (ten governed episodes where nine are printed), and the episodes that meet
    no constraint, which cannot fail.
    """
    found = []
    for (scenario, model, arm, metric), printed in published().items():
        restated = metric == "governed_ten" and lookup(scenario, model, arm, "first_try_eligible") is not None
        if scenario == "payments" and printed.count is not None and metric != "none" and not restated:
            found.append((scenario, model, arm, metric))
    return found


def lookup(scenario: str, model: str, arm: str, metric: str) -> Published | None:
    """Return the printed figure, or None where the paper prints none."""
    figures = published()
    found = figures.get((scenario, model, arm, metric))
    return found or (figures.get((scenario, "", arm, metric)) if model in RULE_STREAM_MODELS else None)
