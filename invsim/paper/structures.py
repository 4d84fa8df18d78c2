"""Numbers that are definitions: each evaluated on the object that enforces it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from invsim.client.arms import ignore
from invsim.client.planners.models import PUBLISHED
from invsim.data.published import RULE_STREAM_MODELS, published
from invsim.errors import UnknownNameError
from invsim.paper.context import Context
from invsim.paper.definitions import STACKS, coverage, failed, fields, levels, reads
from invsim.sim.scenario import MAX_ATTEMPTS
from invsim.world.domain import SHIPPED, load_domain
from invsim.world.drift import Declare, Withdraw
from invsim.world.rules import FINGERPRINT_LENGTH, fingerprint
from invsim.world.server import ReloadReport
from invsim.world.wire import PER_RESPONSE, PER_SUGGESTION, CacheHint, Level, Shape, account

Structure: TypeAlias = "Callable[[Context, str], float | str]"

SHARED = ("payments", "rules")
"""The streams whose arms, taken together, are all that the paper names."""

EXAMPLES = ("active_csm_codes", "promo_eligibility", "token_funding_map", "recommended_credit_token")
"""Tables that section 3.1 introduces one by one."""


def structure(context: Context, name: str) -> float | str:
    """Return the number that a definition has in the code.

    Parameters
    ----------
    context : Context
    name : str
        A key of ``STRUCTURES``, with what it is asked about after it.
    """
    for known, evaluate in STRUCTURES.items():
        if name == known or name.startswith(f"{known} "):
            return evaluate(context, name[len(known) :].strip())
    raise UnknownNameError("definition", name, STRUCTURES)


def _seeds(context: Context, _: str) -> float:
    """Return the runs that a compliance pools: its denominator over the eligible episodes of one run."""
    eligible = int(context.plan("payments").eligible.sum())
    pooled = {
        each.of / eligible
        for (scenario, _, _, metric), each in published().items()
        if scenario == "payments" and metric == "first_try_eligible" and each.of
    }
    return pooled.pop() if len(pooled) == 1 else -1.0


def _window(context: Context, name: str) -> float:
    return next(int(each.mask.sum()) for each in context.plan("payments").windows if each.name == name)


def _class(context: Context, name: str) -> float:
    plan = context.plan("payments")
    return int((plan.class_index == plan.classes.index(name)).sum())


def _event(context: Context, about: str) -> float:
    number, _, scenario = about.partition(" of ")
    return context.plan(scenario).drift[int(number) - 1].after_episode


def _declarations(kind: type[Declare] | type[Withdraw]) -> Structure:
    return lambda context, _: sum(isinstance(event.operation, kind) for event in context.plan("rules").drift)


def _changed(context: Context, number: str) -> frozenset[str]:
    report = context.plan("payments").drift[int(number) - 1].report
    return frozenset(report.diff.keys) if isinstance(report, ReloadReport) else frozenset()


def _required(context: Context, number: str) -> float:
    """Return the entries a full store must lose at an event: one for each changed row that some task has a fix from."""
    keys = {task.slot.key for task in context.plan("payments").episodes if task.slot is not None}
    return len(keys & _changed(context, number))


def _added(level: Level, below: Level) -> Structure:
    return lambda context, _: len(set(fields(failed(context, level))) - set(fields(failed(context, below))))


def _consumed(context: Context, _: str) -> float:
    """Return the bytes that a response gains at levels 2 and 3, served at the highest wire level that they include."""
    served = [max(level for level in Level if level <= number) for number in (2, 3)]
    base = len(failed(context, Level.L1).to_bytes())
    return sum(len(failed(context, level).to_bytes()) - base for level in served)


def _per_suggestion(context: Context, level: Level) -> set[str]:
    return set(fields(failed(context, level))) & set(PER_SUGGESTION)


def _arms(context: Context) -> set[str]:
    return {arm.name for scenario in SHARED for arm in context.plan(scenario).arms}


def _varied(context: Context) -> set[str]:
    """Return the levels that some arm reads and some other arm with a memory does not."""
    read = [set(reads(arm)) - {"Diff"} for name in SHARED for arm in context.plan(name).arms if arm.stores]
    return {level for one in read for level in one if any(level not in other for other in read)}


def _version(_: Context, __: str) -> str:
    versions = {table.version for table in load_domain("acme").tables}
    return versions.pop() if len(versions) == 1 else "several"


def _both_domains(_: Context, __: str) -> float:
    return len({model for scenario, model, _, _ in published() if scenario == "recipes"})


def _drifted_runs(context: Context) -> int:
    return int(_seeds(context, "")) * sum(len(context.arms("payments", model)) for model in PUBLISHED)


def _families(context: Context, _: str) -> float:
    plan = context.plan("payments")
    pairs = {(task.constraint, task.slot.family) for task in plan.episodes if task.slot is not None}
    return max(sum(constraint == name for constraint, _ in pairs) for name in plan.classes)


STRUCTURES: dict[str, Structure] = {
    "ticks": lambda _, arm: next(len(row.reads) for row in coverage() if row.arm == arm),
    "seeds": _seeds,
    "window": _window,
    "class": _class,
    "classes": lambda context, _: len(context.plan("payments").classes),
    "cells of Table 4": lambda *_: len(PUBLISHED) * len(("A1", "A2D")),
    "episodes without a constraint": lambda context, _: _drifted_runs(context) * _class(context, "none"),
    "episodes skipped after a rotation": lambda context, _: _skipped(context),
    "episodes": lambda context, scenario: len(context.plan(scenario).episodes),
    "rules withdrawn": _declarations(Withdraw),
    "rules declared": _declarations(Declare),
    "events of": lambda context, scenario: len(context.plan(scenario).drift),
    "event": _event,
    "models of the rule stream": lambda *_: len(set(RULE_STREAM_MODELS) & set(PUBLISHED)),
    "models of both domains": _both_domains,
    "models behind the translation layer": lambda *_: len(STACKS["translation"]),
    "models served directly": lambda *_: len(STACKS["direct"]),
    "models": lambda *_: len(PUBLISHED),
    "serving paths": lambda *_: len(STACKS),
    "domains": lambda *_: len(SHIPPED),
    "shapes": lambda *_: len(Shape),
    "factors": lambda context, _: len({row.factor for row in levels(context)} - {"both"}),
    "channels": lambda context, _: len({row.where for row in levels(context)}),
    "levels that arms differ in": lambda context, _: len(_varied(context)),
    "levels above 0": lambda context, _: len(levels(context)) - 1,
    "levels": lambda context, _: len(levels(context)),
    "highest level": lambda *_: max(Level),
    "wire levels": lambda *_: len(Level),
    "consumption levels": lambda context, _: sum(row.where == "consumption" for row in levels(context)),
    "bytes of consumption levels": _consumed,
    "bytes of cache_hint": lambda context, _: account(failed(context, Level.L1)).fields["cache_hint"],
    "fields per suggestion at L1": lambda context, _: len(_per_suggestion(context, Level.L1)),
    "fields per suggestion": lambda *_: len(PER_SUGGESTION),
    "fields per response": lambda *_: len(PER_RESPONSE),
    "fields that L4 adds": _added(Level.L4, Level.L1),
    "fields that L6 adds": _added(Level.L6, Level.L5),
    "tables named at L1": lambda context, _: sum(
        name == "table" for name in failed(context, Level.L1).suggestions[0].to_dict()
    ),
    "tables of the examples": lambda *_: len({table.name for table in load_domain("acme").tables} & set(EXAMPLES)),
    "tables": lambda *_: len(load_domain("acme").tables),
    "policies": lambda *_: len(load_domain("acme").policies),
    "dependencies of a funding fix": lambda context, _: len(failed(context, Level.L4).suggestions[0].tables or ()),
    "fingerprint length": lambda *_: float(len(fingerprint(load_domain("acme").rules)) if FINGERPRINT_LENGTH else 0),
    "table version": _version,
    "nodes": lambda *_: len(load_domain("acme").world().graph.nodes),
    "edges": lambda *_: len(load_domain("acme").world().graph.edges),
    "arms of payments": lambda context, _: len(context.plan("payments").arms),
    "arms of every model": lambda context, _: len(
        set.intersection(*({arm.name for arm in context.arms("payments", model)} for model in PUBLISHED))
    ),
    "arms": lambda context, _: len(_arms(context)),
    "detection policies": lambda context, _: sum(arm.on_rules is not ignore for arm in context.plan("rules").arms),
    "artifacts of three arms": lambda *_: 3 * len(set(RULE_STREAM_MODELS) & set(PUBLISHED)),
    "cache hints": lambda *_: len(CacheHint),
    "evictions required at event": _required,
    "rows changed at event": lambda context, number: len(_changed(context, number)),
    "rungs": lambda context, _: len({task.request.fields["diet"] for task in context.plan("recipes").episodes}),
    "eligible": lambda context, scenario: int(context.plan(scenario).eligible.sum()),
    "points of an episode": lambda context, _: 100.0 / int(context.plan("payments").eligible.sum()),
    "drifted runs": lambda context, _: _drifted_runs(context),
    "rotations of": lambda context, scenario: sum(event.rotation for event in context.plan(scenario).drift),
    "attempts at most": lambda *_: MAX_ATTEMPTS,
    "families per class": _families,
}
"""Definitions by name. A name that begins with another stands before it."""


def _skipped(context: Context) -> float:
    """Count the governed episodes after the rotation that are not eligible."""
    plan = context.plan("payments")
    governed = plan.class_index == plan.classes.index("governed")
    rotation = next(event.after_episode for event in plan.drift if event.rotation)
    return int((governed & ~plan.eligible)[rotation + 1 :].sum())
