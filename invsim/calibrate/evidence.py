"""The printed integers of a model, by the cell (scenario and arm) whose runs they were counted in."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from invsim.calibrate.structure import derived, totals
from invsim.data.published import published
from invsim.errors import InputError, UnknownNameError
from invsim.sim.facts import Facts, tabulate
from invsim.sim.plan import Plan, compile_plan
from invsim.sim.scenario import load_scenario

SCENARIOS = ("payments", "recipes")
"""What profiles are estimated on: streams that are printed class by class. The others stay for validation."""

SHARED = ("retries", "exhausted", "evictions", "restamped_entries")
"""Counts to which every class adds."""


@dataclass(frozen=True)
class Integer:
    """A count pooled over the runs of one cell.

    Parameters
    ----------
    scenario, arm, metric : str
    count : int
    of : int
        The most it can be for a first-try count; the number of runs for the others.
    runs : int
    where : str
        Table or section of the paper.
    """

    scenario: str
    arm: str
    metric: str
    count: int
    of: int
    runs: int
    where: str

    @property
    def label(self) -> str:
        """Short text, as in "payments A2 first_try_eligible 22/27"."""
        over = f"/{self.of}" if self.metric not in SHARED else ""
        return f"{self.scenario} {self.arm} {self.metric} {self.count}{over}"


@dataclass(frozen=True)
class Cell:
    """The runs of one scenario and arm, and what is printed of them."""

    scenario: str
    arm: str
    runs: int
    integers: tuple[Integer, ...]

    def count(self, metric: str) -> int | None:
        """Return the printed count, or None."""
        return next((each.count for each in self.integers if each.metric == metric), None)


@dataclass(frozen=True)
class Total:
    """A count of one class over several arms of the payments stream."""

    constraint: str
    metric: str
    count: int
    arms: tuple[str, ...]
    where: str


@cache
def facts_of(scenario: str) -> Facts:
    """Return a shipped scenario, tabulated."""
    return tabulate(compile_plan(load_scenario(scenario)))


def episodes_of(plan: Plan, metric: str) -> np.ndarray | None:
    """Return the episodes whose first tries a metric counts, as a mask; None for a count of another kind."""
    masks = {"first_try_eligible": plan.eligible} | {window.name: window.mask for window in plan.windows}
    masks |= {name: plan.class_index == at for at, name in enumerate(plan.classes)}
    return masks.get(metric)


def class_of(plan: Plan, metric: str) -> str | None:
    """Return the class whose first tries a metric counts; None for a count that classes share."""
    mask = episodes_of(plan, metric)
    return None if mask is None else plan.classes[int(plan.class_index[mask][0])]


def integers(model_name: str, *, scenarios: Iterable[str] = SCENARIOS) -> list[Integer]:
    """Return every integer of the model that is printed, or follows, on these scenarios."""
    found = []
    for (scenario, model, arm, metric), each in published().items():
        if model == model_name and scenario in set(scenarios) and each.count is not None and each.of:
            found.append(_integer(scenario, arm, metric, each.count, each.of, each.where))
    if "payments" in set(scenarios):
        found += [_integer("payments", *each) for each in derived(model_name)]
    return found


def _integer(scenario: str, arm: str, metric: str, count: int, of: int, where: str) -> Integer:
    mask = episodes_of(facts_of(scenario).plan, metric)
    runs = of if mask is None else of // int(mask.sum())
    return Integer(scenario, arm, metric, count, of, runs, where)


def cells(found: Iterable[Integer]) -> tuple[Cell, ...]:
    """Group integers by scenario and arm."""
    grouped: dict[tuple[str, str], list[Integer]] = {}
    for each in found:
        grouped.setdefault((each.scenario, each.arm), []).append(each)
    result = []
    for (scenario, arm), mine in grouped.items():
        runs = {each.runs for each in mine}
        if len(runs) > 1:
            raise InputError("integers of one cell count different numbers of runs", value=[e.label for e in mine])
        result.append(Cell(scenario, arm, runs.pop(), tuple(mine)))
    return tuple(result)


def chosen(found: Iterable[Integer], *, arms: Collection[str] | None, metrics: Collection[str] | None) -> list[Integer]:
    """Keep the integers of some arms and metrics.

    Raises
    ------
    UnknownNameError
        For an arm or a metric that nothing is printed of.
    """
    mine = list(found)
    for wanted, known, what in (
        (arms, {each.arm for each in mine}, "arm with printed integers"),
        (metrics, {each.metric for each in mine}, "metric with printed integers"),
    ):
        for name in wanted or ():
            if name not in known:
                raise UnknownNameError(what, name, sorted(known))
    return [e for e in mine if (arms is None or e.arm in arms) and (metrics is None or e.metric in metrics)]


def totals_of(model_name: str, present: Mapping[tuple[str, str], Cell]) -> list[Total]:
    """Return the totals over arms whose cells are all present with the count printed."""
    return [
        each
        for each in (Total(*row) for row in totals(model_name))
        if all(
            ("payments", arm) in present and present["payments", arm].count(each.metric) is not None
            for arm in each.arms
        )
    ]
