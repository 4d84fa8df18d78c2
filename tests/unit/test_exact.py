"""The exact engine against enumeration of every outcome through the event engine, and against known figures."""

import ast
import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from invsim.client.arms import Arm, arm_names, get_arm
from invsim.client.planners import (
    Action,
    Behaviour,
    ComplianceModel,
    Injected,
    ProbabilisticModel,
    RetryLaw,
    ScriptedModel,
    Situation,
    load_model,
)
from invsim.errors import UnknownNameError
from invsim.experiment import counts, layout, run, solve
from invsim.located import Source
from invsim.sim.engine import simulate_block
from invsim.sim.exact import Exact, distribution, supports
from invsim.sim.exact.chain import StateSpaceError
from invsim.sim.facts import Facts, NotTabularError, tabulate
from invsim.sim.plan import Plan, compile_plan
from invsim.sim.result import Block
from invsim.sim.scenario import load_scenario, parse_scenario
from invsim.stats.costs import TokenCosts
from invsim.stats.metrics import Counts, Summary
from invsim.world.wire import Level

COMPLIANT, STALE_FIRST = load_model("compliant"), load_model("compliant-stale")
NOISY = ProbabilisticModel(
    "noisy", Behaviour(0.8, 0.4, 0.7, 0.1, 0.3, RetryLaw.geometric(0.6), RetryLaw.geometric(0.5))
)
PMFS = ("first_try", "retries", "evictions", "restamped_entries", "eligible_first_try", "exhausted", "some")

TASKS = """
domain = "acme"
[tasks.G]
class = "governed"
family = "ADD_ACTIVE_PROMO_CODE"
key = "plan_partner_growth"
request = { plan = "plan_partner_growth", amount = 49.0 }
[tasks.k1]
class = "funding"
family = "USE_REQUIRED_FUNDING_TYPE"
key = "acme_pm_visa_debit"
request = { plan = "plan_standard", contract = "enterprise_annual", payment_method_token = "acme_pm_visa_debit" }
[tasks.k2]
class = "funding"
family = "USE_REQUIRED_FUNDING_TYPE"
key = "acme_pm_mastercard_debit"
request = { plan = "plan_standard", contract = "enterprise_annual", payment_method_token = "acme_pm_mastercard_debit" }
[tasks.C]
class = "control"
family = "USE_REQUIRED_PROMO_TYPE"
key = "plan_partner_growth"
request = { plan = "plan_partner_growth", promo_type = "fixed", amount = 20.0 }
[tasks.R]
class = "governed"
family = "USE_RECOGNISED_PROMO_CODE"
key = "plan_partner_growth"
request = { plan = "plan_partner_growth", promo_code = "EXPIRED" }
[tasks.N]
class = "none"
request = { plan = "plan_standard", amount = 10.0 }
[eligibility]
class = "governed"
skip_after_rotation = 0
[[windows]]
name = "some"
class = "funding"
first = 1
"""
TABLES = """
name = "tables"
stream = "G k1 G N k1 G N"
[[drift]]
after_episode = 1
edit = "active_csm_codes"
put = { plan_partner_growth = { code = "WINTERLAUNCH26" } }
[[drift]]
after_episode = 2
edit = "active_csm_codes"
put = { plan_partner_growth = { code = "SUMMERSALE25" } }
[[drift]]
after_episode = 4
republish = "recommended_credit_token"
[[drift]]
after_episode = 4
republish = "active_csm_codes"
[[drift]]
after_episode = 6
edit = "active_csm_codes"
put = { plan_partner_growth = { code = "WINTERLAUNCH26" } }
"""
# Two families share a key and, once a rule has gone, not a vector; a row is downstream of one that its vector lacks.
PROPAGATION = """
name = "propagation"
stream = "k1 R G k1 G R"
[[drift]]
after_episode = 0
edit = "funding_type_policy"
put = { enterprise_monthly = { funding = "debit" } }
[[drift]]
after_episode = 2
remove_rule = { from = "active_csm_codes", to = "promo_eligibility", relation = "requires_recognition" }
[[drift]]
after_episode = 2
edit = "funding_type_policy"
put = { enterprise_monthly = { funding = "credit" } }
[[drift]]
after_episode = 4
republish = "promo_eligibility"
[[drift]]
after_episode = 4
republish = "promo_eligibility"
"""
RULES = """
name = "rules"
stream = "k1 k2 G k1 k2 C"
[[drift]]
after_episode = 1
remove_rule = { from = "token_funding_map", to = "recommended_credit_token", relation = "replaced_by" }
[[drift]]
after_episode = 2
edit = "active_csm_codes"
put = { plan_partner_growth = { code = "WINTERLAUNCH26" } }
[[drift]]
after_episode = 3
declare_rule = { from = "recommended_credit_token", to = "active_csm_codes", relation = "settles_under" }
[[drift]]
after_episode = 4
republish = "active_csm_codes"
"""


# Drift before the first response, which no client can notice, and after it.
EARLY = """
name = "early"
stream = "k1 k1 G k1"
[[drift]]
at_tick = 0
remove_rule = { from = "token_funding_map", to = "recommended_credit_token", relation = "replaced_by" }
[[drift]]
at_tick = 0
republish = "recommended_credit_token"
[[drift]]
after_episode = 0
republish = "recommended_credit_token"
[[drift]]
after_episode = 1
declare_rule = { from = "token_funding_map", to = "recommended_credit_token", relation = "replaced_by" }
"""
# What mends one violation brings out another: suggestions of the second family come with the second failure only.
CHAINED_DOMAIN = """
name = "chained"
[tables.first.rows]
k = { x = "v3" }
[tables.second.rows]
v1 = { y = "w" }
v2 = { y = "w" }
[tables.third.rows]
[[rules]]
from = "third"
to = "second"
relation = "feeds"
[[policies]]
kind = "lookup"
type = "FIRST"
shape = "add-a-field"
table = "first"
key = "a"
column = "x"
field = "x"
message = "x is wrong"
[[policies]]
kind = "lookup"
type = "SECOND"
shape = "add-a-field"
table = "second"
key = "x"
column = "y"
field = "y"
message = "y is wrong"
"""
CHAINED = """
name = "chained"
domain = "chained.toml"
stream = "P Q P P P"
[tasks.P]
class = "p"
family = "FIRST"
key = "k"
request = { a = "k" }
[tasks.Q]
class = "q"
family = "SECOND"
key = "v1"
request = { x = "v1" }
[[drift]]
after_episode = 1
edit = "first"
put = { k = { x = "v1" } }
[[drift]]
after_episode = 1
remove_rule = { from = "third", to = "second", relation = "feeds" }
[[drift]]
after_episode = 2
edit = "first"
put = { k = { x = "v2" } }
[[windows]]
name = "some"
class = "p"
"""


@cache
def plan_of(name: str, level: Level | None = None) -> Plan:
    return compile_plan(load_scenario(name), level=level)


@cache
def facts_of(name: str, level: Level | None = None) -> Facts:
    return tabulate(plan_of(name, level))


def tiny(drift: str) -> Plan:
    name, stream, *events = drift.strip().split("\n")
    return compile_plan(parse_scenario(Source("tiny.toml", "\n".join([name, stream, TASKS, *events]))))


# Every outcome, through the event engine ------------------------------------------------------------------------


class Branching(ComplianceModel):
    """Answers as another model does at draws that stand for all, and notes which choices it had."""

    name = "branching"

    def __init__(self, base: ProbabilisticModel, *, beside_none: bool) -> None:
        self.base, self.beside_none = base, beside_none
        self.known: dict[object, list[list[float]]] = {}

    def start(self, path: list[int]) -> None:
        self.path = path
        self.widths: list[int] = []
        self.probability = 1.0
        self.drawn: dict[tuple[int, bool], float] = {}

    def decide(self, situation: Situation, u: float) -> Action:
        retry = situation.attempt > 1
        if (situation.episode, retry) not in self.drawn:
            self.drawn[situation.episode, retry] = self.draw(situation, retry)
        answer = self.base.decide(situation, self.drawn[situation.episode, retry])
        assert isinstance(answer, Action)
        return answer

    def draw(self, situation: Situation, retry: bool) -> float:
        asked = situation.constraint, situation.injected, situation.first_occurrence, retry
        if asked not in self.known:
            self.known[asked] = self.kinds(situation, retry)
        kinds = self.known[asked]
        if len(self.widths) == len(self.path):
            self.path.append(0)
        u, probability = kinds[self.path[len(self.widths)]]
        self.widths.append(len(kinds))
        self.probability *= probability
        return u

    def kinds(self, situation: Situation, retry: bool) -> list[list[float]]:
        """(a draw, probability) of every kind of draw: those that lead to the same decisions."""
        rates = self.base.behaviour(situation.constraint, situation.shape)
        free, unaided = 1 - rates.p_stale, (rates.p_unaided_first, rates.p_unaided_repeat)
        marks = {rates.p_apply, rates.p_fresh, free, *unaided, *(free * each for each in unaided)}
        if retry:
            marks = {*rates.retry.cumulative, *rates.retry_injected.cumulative}
        seen = [situation]
        if self.beside_none:
            seen.append(dataclasses.replace(situation, injected=Injected.NOTHING))
        at = [dataclasses.replace(each, attempt=a) for each in seen for a in (range(2, 6) if retry else (1,))]
        kinds: dict[object, list[float]] = {}
        for low, high in pairwise(sorted({0.0, 1.0, *marks})):
            u = (low + high) / 2
            kinds.setdefault(tuple(self.base.decide(each, u) for each in at), [u, 0.0])[1] += high - low
        return list(kinds.values())


def outcomes(plan: Plan, arm: Arm, model: ProbabilisticModel, *, paired: bool) -> Iterator[tuple[float, Block, Block]]:
    """Yield (probability, stream of the arm, the same without memory) of every way a stream can go."""
    path: list[int] = []
    branching = Branching(model, beside_none=paired)
    while True:
        branching.start(path)
        block = simulate_block(plan, arm=arm, model=branching, seed=0, first=0, count=1)
        bare = simulate_block(plan, arm=get_arm("A0"), model=branching, seed=0, first=0, count=1) if paired else block
        yield branching.probability, block, bare
        while path and path[-1] == branching.widths[len(path) - 1] - 1:
            path.pop()
        if not path:
            return
        path[-1] += 1


class Recorder:
    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names

    def add_columns(self, columns: Mapping[str, np.ndarray | int], streams: int) -> None:
        self.rows = np.column_stack([np.broadcast_to(columns[name], streams) for name in self.names]).astype(int)


def stream_counts(plan: Plan, arm: Arm, paired: Counts) -> tuple[tuple[str, ...], np.ndarray]:
    """The counts of every stream, by the code that accumulates them."""
    summary = Summary(layout(plan, NOISY, arm, TokenCosts()))
    recorder = summary._moments = Recorder(summary._moments.names)
    summary.add(paired)
    return recorder.names, recorder.rows


def enumerated(plan: Plan, arm: Arm, model: ProbabilisticModel, *, paired: bool):
    found = list(outcomes(plan, arm, model, paired=paired))
    weights = np.array([probability for probability, _, _ in found])
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)

    def joined(blocks: list[Block]) -> Block:
        names = ("episodes", "streams", "alerts")
        return Block(0, *(np.concatenate([getattr(block, name) for block in blocks]) for name in names))

    names, rows = stream_counts(plan, arm, counts(joined([b for _, b, _ in found]), joined([b for _, _, b in found])))
    return names, weights, rows.astype(float)


def compare(plan: Plan, arm: Arm, model: ProbabilisticModel, *, paired: bool) -> int:
    names, weights, rows = enumerated(plan, arm, model, paired=paired)
    tokens = TokenCosts(conflict=0.156).weights(
        attempts="attempts", entries="injected_entries", conflicts="conflict_attempts", one="one",
        episodes=len(plan.episodes),
    )  # fmt: skip
    law = distribution(tabulate(plan), arm=arm, model=model, pmf=PMFS, combinations={"tokens": tokens})
    assert law.names == names
    kept = np.array([paired or name != "baseline_attempts" for name in names])
    mean = weights @ rows
    off = rows - mean
    np.testing.assert_allclose(law.mean[kept], mean[kept], rtol=1e-12, atol=1e-12)
    covariance = off.T @ (off * weights[:, None])
    np.testing.assert_allclose(law.covariance[np.ix_(kept, kept)], covariance[np.ix_(kept, kept)], atol=1e-12)
    at = {name: rows[:, number] for number, name in enumerate(names)}
    at |= {"retries": at["attempts"] - len(plan.episodes), "exhausted": len(plan.episodes) - at["completed"]}
    at |= {"some": at["window:some"], "tokens": sum(weight * at[name] for name, weight in tokens.items())}
    for name, pmf in law.pmfs.items():
        values, which = np.unique(np.round(at[name], 9), return_inverse=True)
        np.testing.assert_allclose(pmf.values, values, atol=1e-8)
        np.testing.assert_allclose(pmf.probabilities, np.bincount(which, weights), atol=1e-12)
    return len(weights)


SOME_NOISE = ProbabilisticModel(
    "some-noise",
    Behaviour(0.8, 0.4, 0.7, 0.1, 0.3, RetryLaw.explicit((0.7,)), RetryLaw.explicit((0.6,))),
    classes={"control": Behaviour(0.8, retry=RetryLaw.explicit((0.0, 0.5, 0.5)))},
)


@pytest.mark.parametrize("arm", arm_names())
@pytest.mark.parametrize("drift", [TABLES, RULES], ids=["tables", "rules"])
def test_enumeration_of_every_outcome(drift: str, arm: str) -> None:
    assert compare(tiny(drift), get_arm(arm), SOME_NOISE, paired=False) >= 200


@pytest.mark.parametrize("arm", ["A2D", "A2DC", "A2DG", "A2DRC"])
def test_enumeration_where_evictions_spread(arm: str) -> None:
    assert compare(tiny(PROPAGATION), get_arm(arm), SOME_NOISE, paired=False) >= 200


@pytest.mark.parametrize("arm", ["A2", "A2DC", "A2DR", "A2DO"])
def test_enumeration_with_drift_before_the_first_response(arm: str) -> None:
    plan = tiny(EARLY)
    compare(plan, get_arm(arm), SOME_NOISE, paired=False)
    law = distribution(tabulate(plan), arm=get_arm(arm), model=SOME_NOISE)
    assert [law.expected(f"noticed:{at}") for at in (0, 1)] == [0.0, 0.0]


@pytest.mark.parametrize("arm", ["A1", "A2DC", "A2DO"])
def test_enumeration_where_later_failures_tell_more(arm: str, tmp_path: Path) -> None:
    (tmp_path / "chained.toml").write_text(CHAINED_DOMAIN)
    plan = compile_plan(parse_scenario(Source("tiny.toml", CHAINED), beside=tmp_path))
    compare(plan, get_arm(arm), dataclasses.replace(SOME_NOISE, classes={}), paired=False)


@pytest.mark.parametrize("arm", ["A1", "A2DC"])
def test_enumeration_jointly_with_the_stream_without_memory(arm: str) -> None:
    drift = TABLES.replace("G k1 G N k1 G N", "G N G k1 N G N")
    compare(tiny(drift), get_arm(arm), dataclasses.replace(SOME_NOISE, classes={}), paired=True)


# Known figures --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arm", "model", "expected"),
    [("A0", COMPLIANT, 27), ("A1", STALE_FIRST, 14), ("A1", COMPLIANT, 7), ("A2", COMPLIANT, 9), ("A2D", COMPLIANT, 7)],
)
def test_retries_of_a_compliant_client_on_the_payments_stream(arm: str, model: ComplianceModel, expected: int) -> None:
    law = distribution(facts_of("payments"), arm=get_arm(arm), model=model, pmf=["retries"])
    assert law.pmfs["retries"].values.tolist() == [expected]
    assert law.pmfs["retries"].probabilities.tolist() == [1.0]
    assert not law.covariance.any()
    assert law.states == 1


@pytest.mark.parametrize(
    ("arm", "first_try", "retries", "evictions", "restamped", "alerts"),
    [
        ("A2D", 30, 6, 0, 0, None),
        ("A2DC", 28, 8, 2, 3, (13, 25)),
        ("A2DR", 22, 14, 9, 0, (12, 24)),
        ("A2DRC", 28, 8, 2, 3, (12, 24)),
        ("A2DO", 27, 9, 3, 3, (12, 24)),
    ],
)
def test_rule_stream(
    arm: str, first_try: int, retries: int, evictions: int, restamped: int, alerts: tuple[int, int] | None
) -> None:
    law = distribution(facts_of("rules"), arm=get_arm(arm), model=COMPLIANT)
    counted = [law.expected(name) for name in ("first_try", "evictions", "restamped_entries", "contract_failures")]
    assert counted == [first_try, evictions, restamped, 0]
    assert law.expected({"attempts": 1, "one": -36}) == retries
    assert not law.covariance.any()
    metrics = solve(plan_of("rules"), model=COMPLIANT, arms=[get_arm(arm)])[arm].metrics
    assert [metrics[f"alert_{at}"].value for at in (1, 2)] == (list(alerts) if alerts else [None, None])


@pytest.mark.parametrize("level", list(Level))
@pytest.mark.parametrize("arm", arm_names())
def test_a_deterministic_stream_at_every_level(level: Level, arm: str) -> None:
    """Certain outcomes leave nothing to chance, so one stream of the event engine says all."""
    for name in ("payments", "rules"):
        plan = plan_of(name, level)
        law = distribution(facts_of(name, level), arm=get_arm(arm), model=COMPLIANT)
        block = simulate_block(plan, arm=get_arm(arm), model=COMPLIANT, seed=0, first=0, count=1)
        bare = simulate_block(plan, arm=get_arm("A0"), model=COMPLIANT, seed=0, first=0, count=1)
        names, rows = stream_counts(plan, get_arm(arm), counts(block, bare))
        assert (law.names, law.mean.tolist()) == (names, rows[0].tolist())
        assert law.by_episode("attempts").tolist() == block.episode("attempts")[0].tolist()
        assert law.by_episode("injected_entries").tolist() == block.episode("injected_entries")[0].tolist()


def test_metrics_agree_with_the_event_engine_on_a_model_without_chance() -> None:
    plan = plan_of("rules")
    arms = [get_arm(name) for name in arm_names()]
    exact, sampled = solve(plan, model=COMPLIANT, arms=arms), run(plan, model=COMPLIANT, arms=arms, replications=2)
    for arm in arms:
        for name, estimate in sampled[arm.name].metrics.items():
            known = exact[arm.name].metrics[name]
            assert (known.value is None) == (estimate.value is None), name
            assert known.value is None or known.value == pytest.approx(estimate.value, abs=1e-12), name
            assert known.se in {0.0, None}
        for name, estimate in sampled[arm.name].first_try_by_class.items():
            assert exact[arm.name].first_try_by_class[name].value == pytest.approx(estimate.value)
    assert exact.to_dict()["engine"] == "exact"


@pytest.mark.parametrize("arm", arm_names())
def test_sampled_means_lie_around_the_exact_ones(arm: str) -> None:
    """Fixed seed; 40 counts at z <= 5."""
    plan, streams = plan_of("rules"), 80
    law = distribution(facts_of("rules"), arm=get_arm(arm), model=NOISY)
    block = simulate_block(plan, arm=get_arm(arm), model=NOISY, seed=11, first=0, count=streams)
    bare = simulate_block(plan, arm=get_arm("A0"), model=NOISY, seed=11, first=0, count=streams)
    _, rows = stream_counts(plan, get_arm(arm), counts(block, bare))
    se = np.sqrt(np.maximum(np.diag(law.covariance), 0) / streams)
    assert (np.abs(rows.mean(axis=0) - law.mean) <= 5 * se + 1e-9).all()


# The answer itself ----------------------------------------------------------------------------------------------


def noisy(pmf: tuple[str, ...] = (), arm: str = "A2") -> Exact:
    return distribution(facts_of("payments"), arm=get_arm(arm), model=NOISY, pmf=pmf)


def test_probability_functions_agree_with_the_moments() -> None:
    names = ("first_try", "retries", "evictions", "exhausted", "governed_ten", "injected_entries")
    law = noisy(names)
    weights = {"retries": {"attempts": 1, "one": -36}, "exhausted": {"one": 36, "completed": -1}}
    weights["governed_ten"] = {"window:governed_ten": 1}
    for name in names:
        pmf, combination = law.pmfs[name], weights.get(name, {name: 1})
        assert pmf.probabilities.sum() == pytest.approx(1.0, abs=1e-12)
        assert (np.diff(pmf.values) > 0).all()
        assert pmf.mean == pytest.approx(law.expected(combination), rel=1e-12)
        assert (pmf.values - pmf.mean) ** 2 @ pmf.probabilities == pytest.approx(law.variance(combination), rel=1e-9)


def test_the_mean_reciprocal_is_over_the_streams_that_have_any() -> None:
    pmf = noisy(("evictions",)).pmfs["evictions"]
    above = pmf.values > 0
    expected = (pmf.probabilities[above] / pmf.values[above]).sum() / pmf.probabilities[above].sum()
    assert pmf.mean_reciprocal == pytest.approx(expected)
    assert noisy(("evictions",), "A1").pmfs["evictions"].mean_reciprocal is None


def test_paired_streams_vary_less_than_their_parts() -> None:
    law = noisy()
    saved = law.variance({"baseline_attempts": 1, "attempts": -1})
    assert 0 < saved < law.variance("baseline_attempts") + law.variance("attempts")


def test_covariance_is_symmetric_and_positive() -> None:
    law = noisy()
    np.testing.assert_allclose(law.covariance, law.covariance.T, atol=1e-9)
    assert np.linalg.eigvalsh(law.covariance).min() > -1e-9


def test_expectations_by_episode_sum_to_the_counts() -> None:
    law = noisy()
    for quantity, name in (("attempts", "attempts"), ("evicted", "evictions"), ("first_try", "first_try")):
        assert law.by_episode(quantity).sum() == pytest.approx(law.expected(name), rel=1e-12)


def test_too_many_states_are_refused_with_the_way_out() -> None:
    with pytest.raises(
        StateSpaceError, match=r"^\d+ states .* in episode \d+, .* max_states = 50; use --engine vector"
    ):
        distribution(facts_of("payments"), arm=get_arm("A2D"), model=NOISY, max_states=50)


def test_what_is_supported() -> None:
    class Odd(ProbabilisticModel):
        def decide(self, situation: Situation, u: float) -> Action:
            return Action.IGNORE

    careless = dataclasses.replace(get_arm("A2D"), name="careless")
    disguised = dataclasses.replace(get_arm("A2D"), append=True)
    scripted = ScriptedModel("script", {})
    assert all(supports(get_arm(name), NOISY) for name in arm_names()[:9])
    for arm, model in ((careless, NOISY), (disguised, NOISY), (get_arm("A2"), scripted), (get_arm("A2"), Odd("odd"))):
        assert not supports(arm, model)
        with pytest.raises(NotTabularError, match=r"^the exact engine [^\n]* use --engine simpy$"):
            distribution(facts_of("payments"), arm=arm, model=model)


def test_an_unknown_count_is_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'evictions'"):
        noisy(("eviction",))
    with pytest.raises(UnknownNameError, match="unknown count"):
        noisy().expected({"nothing": 1})


def test_the_exact_engine_is_an_independent_route() -> None:
    for part in ("law", "chain", "arms", "cells", "kernel"):
        module = import_module(f"invsim.sim.exact.{part}")
        for node in ast.walk(ast.parse(inspect.getsource(module))):
            if isinstance(node, ast.ImportFrom):
                assert not node.module.startswith(("invsim.sim.engine", "invsim.sim.vector", "invsim.client.memory"))
                if node.module == "invsim.client.arms":
                    assert {each.name for each in node.names} <= {"Arm", "get_arm"}
            if isinstance(node, ast.Attribute):
                assert node.attr not in {"on_tables", "on_rules", "observe", "decide"} or part == "law"
