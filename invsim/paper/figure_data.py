"""What the figures of the paper plot: exact laws of the published models, single streams and what-if grids."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from invsim.client.arms import A0, get_arm
from invsim.client.planners import load_model
from invsim.client.planners.models import PUBLISHED
from invsim.data.published import drifted_integers, lookup
from invsim.explain import episode_means
from invsim.report.figures import Drawn
from invsim.report.figures.lines import Rotations
from invsim.report.figures.predictions import Prediction, prediction_rows, select
from invsim.sim.compose import Setting
from invsim.sim.engine import rerun
from invsim.sim.exact import Exact, distribution
from invsim.sim.facts import Facts, tabulate
from invsim.sim.plan import Plan, Window, compile_plan
from invsim.sim.scenario import load_scenario
from invsim.stats.costs import TokenCosts
from invsim.stats.savings import savings
from invsim.whatif import outcome, planner
from invsim.world.server import ReloadReport
from invsim.world.wire import PER_SUGGESTION, Level, Response, account

if TYPE_CHECKING:
    from invsim.report.figures.wirecost import WireCost

RUNS = 3
"""Runs that a published cell pools."""

LADDER = ("A0", "A1", "A2", "A2D")
BOTH_DOMAINS = ("claude-haiku-4-5", "claude-sonnet-4-6", "claude-sonnet-5")
"""Models that the paper ran in both domains, and in the frequency study."""

REPEATS = "governed_repeats"
"""Window that this module adds to every stream with governed episodes: all of them but the first."""


@cache
def _facts(scenario: str) -> Facts:
    plan = compile_plan(load_scenario(scenario))
    if "governed" not in plan.classes:
        return tabulate(plan)
    governed = plan.class_index == plan.classes.index("governed")
    window = Window(REPEATS, governed & ~np.array(plan.first_occurrence))
    return tabulate(replace(plan, windows=(*plan.windows, window)))


@cache
def _law(scenario: str, model: str, arm: str) -> Exact:
    return distribution(_facts(scenario), arm=get_arm(arm), model=load_model(model))


def _counts(plan: Plan) -> dict[str, tuple[Mapping[str, float], float]]:
    """Return what each metric is made of: a combination of counts, and what it is divided by."""
    return {
        "first_try_eligible": ({"eligible_first_try": 1.0}, float(plan.eligible.sum())),
        **{each.name: ({f"window:{each.name}": 1.0}, float(each.mask.sum())) for each in plan.windows},
        **{
            name: ({f"first_try:{name}": 1.0}, float((plan.class_index == at).sum()))
            for at, name in enumerate(plan.classes)
        },
        "retries": ({"attempts": 1.0, "one": -float(len(plan.episodes))}, 1.0),
        "exhausted": ({"one": float(len(plan.episodes)), "completed": -1.0}, 1.0),
        "evictions": ({"evictions": 1.0}, 1.0),
        "restamped_entries": ({"restamped_entries": 1.0}, 1.0),
    }


def predict(scenario: str, model: str, arm: str, metric: str) -> Prediction:
    """Return a metric's expectation, and how far the mean of three runs may be off."""
    printed = lookup(scenario, model, arm, metric)
    if metric == "first_try_eligible" and not get_arm(arm).stores:
        return Prediction(scenario, model, arm, metric, None, None, RUNS, printed)
    law = _law(scenario, model, arm)
    weights, scale = _counts(_facts(scenario).plan)[metric]
    sd = math.sqrt(law.variance(weights) / RUNS) / scale
    return Prediction(scenario, model, arm, metric, law.expected(weights) / scale, sd, RUNS, printed)


def predict_saving(scenario: str, model: str, arm: str) -> Prediction:
    """Return the token saving against runs without memory; its error by the delta method, all runs independent."""
    plan, costs = _facts(scenario).plan, TokenCosts(conflict=load_model(model).conflict_cost)
    law, bare = _law(scenario, model, arm), _law(scenario, model, A0.name)
    tokens = _tokens(plan, costs)
    spent, base = law.expected(tokens), bare.expected(tokens)
    ratio = spent / base
    variance = 0.0 if arm == A0.name else (law.variance(tokens) + ratio**2 * bare.variance(tokens)) / RUNS / base**2
    printed = lookup(scenario, model, arm, "token_saving")
    return Prediction(scenario, model, arm, "token_saving", 1.0 - ratio, math.sqrt(variance), RUNS, printed)


def _tokens(plan: Plan, costs: TokenCosts) -> Mapping[str, float]:
    return costs.weights(
        attempts="attempts", entries="injected_entries", conflicts="conflict_attempts", one="one",
        episodes=len(plan.episodes),
    )  # fmt: skip


# The system -------------------------------------------------------------------------------------------------------


def overview() -> Drawn:
    """Draw client, server and what travels between them (Figure 1)."""
    from invsim.report.figures.overview import overview_figure, overview_rows, wire_fields

    plan = _facts("payments").plan
    data = wire_fields(plan.domain, [task.request for task in plan.episodes])
    return overview_figure(data), overview_rows(data)


def domain() -> Drawn:
    """Draw the domain model and the Acme instance, with the rotation of the drifted stream (Figure 2)."""
    from invsim.report.figures.domain import domain_figure, domain_rows

    plan = _facts("payments").plan
    rotation = next(each.report for each in plan.drift if isinstance(each.report, ReloadReport) and each.rotation)
    return domain_figure(plan.domain, rotation), domain_rows(plan.domain, rotation)


# The ladder -------------------------------------------------------------------------------------------------------


@cache
def _ladder(metric: str) -> tuple[Prediction, ...]:
    return tuple(predict("payments", model, arm, metric) for model in PUBLISHED for arm in LADDER)


def ladder() -> Drawn:
    """Draw the A-ladder on the drifted stream (Figure 3 of the paper)."""
    from invsim.report.figures.bars import ladder_figure

    data = _ladder("first_try_eligible") + _ladder("governed_ten")
    return ladder_figure(data), prediction_rows(data)


def untouched() -> Drawn:
    """Draw first try on the class that no event targets (Figure 4)."""
    from invsim.report.figures.bars import untouched_figure

    data = _ladder("funding_post")
    return untouched_figure(data), prediction_rows(data)


def saving() -> Drawn:
    """Draw what each arm saves."""
    from invsim.report.figures.bars import saving_figure

    data = tuple(predict_saving("payments", model, arm) for model in PUBLISHED for arm in LADDER[1:])
    return saving_figure(data), prediction_rows(data)


# Rotations, and both domains --------------------------------------------------------------------------------------


@cache
def _study() -> tuple[Rotations, ...]:
    found = []
    for count in (1, 2, 3):
        name = f"frequency-{count}"
        plan = _facts(name).plan
        repeats = next(each for each in plan.windows if each.name == REPEATS)
        predictions = tuple(
            predict(name, model, arm, metric)
            for metric in ("first_try_eligible", REPEATS, "retries")
            for model in BOTH_DOMAINS
            for arm in ("A1", "A2D")
        )
        found.append(Rotations(count, int(plan.eligible.sum()), int(repeats.mask.sum()), predictions))
    return tuple(found)


def rotations() -> Drawn:
    """Draw compliance against rotations (Figure 5)."""
    from invsim.report.figures.lines import rotation_figure, rotation_rows

    data = [
        replace(each, predictions=tuple(select(each.predictions, metric="first_try_eligible"))) for each in _study()
    ]
    return rotation_figure(data), rotation_rows(data)


def denominators() -> Drawn:
    """Draw why compliance does not fall with rotations."""
    from invsim.report.figures.lines import denominator_figure, rotation_rows

    models = BOTH_DOMAINS[:2]
    data = [
        replace(each, predictions=tuple(one for one in each.predictions if one.model in models)) for each in _study()
    ]
    return denominator_figure(data, models), rotation_rows(data)


def targeted() -> Drawn:
    """Draw first try on the class that drift targets, in both domains (Figure 6)."""
    from invsim.report.figures.lines import targeted_figure

    metrics = (("payments", "governed_ten", "payments"), ("recipes", "celiac_scored", "recipes"))
    data = tuple(
        predict(scenario, model, arm, metric)
        for scenario, metric, _ in metrics
        for model in BOTH_DOMAINS
        for arm in LADDER
    )
    return targeted_figure(data, metrics), prediction_rows(data)


# What memory saves, and why ---------------------------------------------------------------------------------------


def _retries_saved(model: str, arm: str) -> float | None:
    """Return the published retries that memory saved per stream; None where one of the two is not printed."""
    bare, kept = (lookup("payments", model, name, "retries") for name in (A0.name, arm))
    return None if bare is None or kept is None else bare.value - kept.value


def decomposition() -> Drawn:
    """Draw the savings equation of every model and arm."""
    from invsim.report.figures.decomposition import Decomposition, decomposition_figure, decomposition_rows

    plan = _facts("payments").plan
    data = [
        Decomposition(
            model, arm, savings(episode_means(plan, _law("payments", model, arm))).total, _retries_saved(model, arm)
        )
        for model in PUBLISHED
        for arm in LADDER[1:]
    ]
    return decomposition_figure(data), decomposition_rows(data)


MAPPED, STREAM, SEED = "claude-sonnet-4-6", 0, 1
"""Model, stream and seed of the episode map."""


def episodes() -> Drawn:
    """Draw the drifted stream episode by episode: exact probabilities, and one stream's event log."""
    from invsim.report.figures.episodes import EpisodeMap, Timeline, episode_figure, episode_rows, read_states

    plan, model = _facts("payments").plan, load_model(MAPPED)
    maps = [
        EpisodeMap(
            arm,
            tuple(_law("payments", MAPPED, arm).by_episode("first_try").tolist()),
            read_states(rerun(plan, arm=get_arm(arm), model=model, seed=SEED, stream=STREAM)),
        )
        for arm in LADDER
    ]
    labels = {True: "a row rotates", False: "a table is republished"}
    drift = tuple((each.after_episode, labels[each.rotation]) for each in plan.drift)
    timeline = Timeline(MAPPED, tuple(task.constraint for task in plan.episodes), drift, STREAM)
    return episode_figure(maps, timeline), episode_rows(maps, timeline)


# Against the print ------------------------------------------------------------------------------------------------


def parity() -> Drawn:
    """Draw published against expected."""
    from invsim.report.figures.parity import parity_figure, parity_rows

    data = [predict(*each) for each in drifted_integers()]
    return parity_figure(data), parity_rows(data)


# On the wire ------------------------------------------------------------------------------------------------------


def wire() -> Drawn:
    """Draw the bytes of each level's fields, over the responses of a stream without memory, one retry a failure."""
    from invsim.report.figures.wirecost import wire_figure, wire_rows

    data = [wire_cost(level) for level in Level]
    return wire_figure(data), wire_rows(data)


def wire_cost(level: Level) -> WireCost:
    """Return the mean bytes per response and part at one level, over the drifted stream's requests as they stand."""
    from invsim.report.figures.wirecost import WireCost

    plan = _facts("payments").plan
    worlds = [plan.domain.world(level=each) for each in (level, Level.L0)]
    totals: Counter[str] = Counter()
    responses = 0
    for task in plan.episodes:
        for request in dict.fromkeys((task.request, task.solved(worlds[0]))):
            if request is not None:
                response, bare = (world.respond(request) for world in worlds)
                totals.update(_parts(response, len(bare.to_bytes())))
                responses += 1
    return WireCost(level.name, responses, {name: total / responses for name, total in totals.items()})


def _parts(response: Response, body: int) -> dict[str, int]:
    """Divide a response's bytes; a field's comma goes with it."""
    found = account(response)
    commas = Counter(name for each in response.suggestions for name in each.to_dict() if name in PER_SUGGESTION)
    commas.update(name for name in found.fields if name not in PER_SUGGESTION)
    fields = {name: size + commas[name] for name, size in found.fields.items()}
    return {"body": body, "suggestion": found.total - found.contract - body, **fields}


# What if ----------------------------------------------------------------------------------------------------------

DRIFTS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)
COMPLIANCES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
UNAIDED = 0.3
"""How often the what-if planner solves a task unaided; for one that never does, memory hardly ever costs."""

GRID_STREAMS = 100
"""Streams per drift schedule and cell."""


def what_if() -> Drawn:
    """Draw where memory pays, and where row eviction pays more than none, in composed settings."""
    from invsim.report.figures.breakeven import WhatIf, break_even_figure, break_even_rows

    data = []
    for drift in DRIFTS:
        setting = Setting(drift=drift)
        for compliance in COMPLIANCES:
            found = outcome(
                setting,
                model=planner(compliance, p_unaided=UNAIDED),
                arms=("A1", "A2D"),
                streams=GRID_STREAMS,
                seed=SEED,
            )
            saved = {arm: each.value for arm, each in found.items() if each.value is not None}
            data.append(WhatIf(drift, compliance, saved))
    return break_even_figure(data), break_even_rows(data)


FIGURES: Mapping[str, Callable[[], Drawn]] = {
    "overview": overview,
    "domain": domain,
    "ladder": ladder,
    "untouched": untouched,
    "rotations": rotations,
    "targeted": targeted,
    "saving": saving,
    "decomposition": decomposition,
    "denominators": denominators,
    "episodes": episodes,
    "parity": parity,
    "wire": wire,
    "what-if": what_if,
}
"""Every figure of the paper by name, in order."""
