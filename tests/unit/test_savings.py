"""The savings equation: an identity, term by term, from exact laws and from simulated streams."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from invsim.client.arms import arm_names, get_arm
from invsim.client.planners import Behaviour, ProbabilisticModel, RetryLaw, load_model
from invsim.client.planners.models import PUBLISHED
from invsim.experiment import solve
from invsim.explain import add_block, episode_means, episode_sums
from invsim.sim.engine import simulate_block
from invsim.sim.exact import Exact, distribution
from invsim.sim.facts import Facts, tabulate
from invsim.sim.plan import Plan, compile_plan
from invsim.sim.scenario import load_scenario
from invsim.stats.costs import TokenCosts
from invsim.stats.episodes import EpisodeSums
from invsim.stats.savings import TOTAL, EpisodeMeans, Savings, misleads, priced, savings, verdict

NOISY = ProbabilisticModel(
    "noisy", Behaviour(0.8, 0.4, 0.7, 0.1, 0.3, RetryLaw.geometric(0.6), RetryLaw.geometric(0.5))
)


@cache
def plan_of(scenario: str) -> Plan:
    return compile_plan(load_scenario(scenario))


@cache
def facts_of(scenario: str) -> Facts:
    return tabulate(plan_of(scenario))


def law_of(model: ProbabilisticModel | str, arm: str, scenario: str = "payments") -> Exact:
    model = load_model(model) if isinstance(model, str) else model
    return distribution(facts_of(scenario), arm=get_arm(arm), model=model)


def exactly(model: ProbabilisticModel | str, arm: str, scenario: str = "payments") -> Savings:
    return savings(episode_means(plan_of(scenario), law_of(model, arm, scenario)))


@pytest.mark.parametrize("arm", arm_names()[:9])
@pytest.mark.parametrize("model", [*(load_model(name) for name in PUBLISHED), NOISY], ids=lambda model: model.name)
def test_identity(model: ProbabilisticModel, arm: str) -> None:
    for scenario in ("payments", "rules"):
        law = law_of(model, arm, scenario)
        found = savings(episode_means(plan_of(scenario), law))
        for saving in (*found.by_class.values(), found.total):
            assert abs(saving.residual) < 1e-9
            assert abs(saving.uninjected) < 1e-9
        assert abs(found.total.realised - law.expected({"baseline_attempts": 1, "attempts": -1})) < 1e-9
        assert abs(sum(saving.product for saving in found.by_class.values()) - found.total.product) < 1e-9


@pytest.mark.parametrize("model", PUBLISHED)
def test_validity_and_compliance_are_the_metrics(model: str) -> None:
    metrics = solve(plan_of("payments"), model=load_model(model), arms=[get_arm("A1")])["A1"].metrics
    total = exactly(model, "A1").total
    assert total.validity == pytest.approx(metrics["validity"].value, abs=1e-12)
    assert total.compliance == pytest.approx(metrics["compliance_given_valid"].value, abs=1e-12)


def test_the_governed_class_of_sonnet_5_by_hand() -> None:
    """The product promises a gain; that recovery takes longer once a fix was injected turns it into a loss."""
    governed = load_model("claude-sonnet-5").behaviour("governed")
    bare, injected, hit = governed.retry.mean_retries, governed.retry_injected.mean_retries, governed.p_apply
    found = exactly("claude-sonnet-5", "A2D")
    saving, law = found.by_class["governed"], law_of("claude-sonnet-5", "A2D")
    at = plan_of("payments").class_index == 0
    valid, stale = (float(law.by_episode(kind)[at].sum()) for kind in ("valid", "stale"))
    assert saving.product == pytest.approx(valid * hit * bare)
    assert saving.recovery == pytest.approx(-(valid * (1 - hit) + stale) * (injected - bare))
    assert (round(saving.product, 2), round(saving.realised, 2)) == (0.63, -4.01)
    assert misleads(saving)
    (line,) = [line for line in verdict(found) if line.startswith("governed")]
    assert line == (
        "governed: the product misleads: it says +0.63 retries a stream, but memory costs 4.01: "
        "recovery takes more retries where a fix was injected and the first try failed (-4.64)"
    )


def test_every_term_of_a_planner_made_of_rates() -> None:
    """p_stale, p_fresh, p_apply and the unaided rate each enter one term, in closed form."""
    rates = NOISY.default
    g, m, injected = rates.p_unaided_repeat, rates.retry.mean_retries, rates.retry_injected.mean_retries
    law = law_of(NOISY, "A1")
    valid, conflict, stale = (float(law.by_episode(kind).sum()) for kind in ("valid", "conflict", "stale"))
    w, total = (1 - g) * m, exactly(NOISY, "A1").total
    assert total.product == pytest.approx(w * valid * rates.p_apply)
    assert total.conflicts == pytest.approx(w * conflict * rates.p_fresh)
    assert total.stale == pytest.approx(-g * m * (stale * rates.p_stale + conflict * (1 - rates.p_fresh)))
    assert total.refusals == pytest.approx(-g * m * valid * (1 - rates.p_apply))
    failures = valid * (1 - rates.p_apply) + conflict * (1 - rates.p_fresh) + stale * (1 - (1 - rates.p_stale) * g)
    assert total.recovery == pytest.approx(-failures * (injected - m))
    assert min(valid, conflict, stale) > 0.5


def test_the_product_is_exact_when_nothing_corrects_it() -> None:
    total = exactly("claude-haiku-4-5", "A2D").total
    assert total.product == pytest.approx(total.realised) == pytest.approx(20.0)
    assert list(total.corrections.values()) == [0.0] * 5
    assert not misleads(total)


def test_the_names_of_what_the_product_misses() -> None:
    """Who picks the fresh fix gains by conflicts; who solves unaided loses by refusing valid fixes."""
    fresh = exactly("gpt-5.4-mini", "A1").by_class["governed"]
    assert (fresh.product, fresh.conflicts, fresh.realised) == pytest.approx((3.0, 7.0, 10.0))
    unaided = exactly("deepseek-v4-flash", "A2D").by_class["funding"]
    assert unaided.refusals < -0.3
    assert unaided.stale == unaided.conflicts == 0.0


def test_completion_that_is_uncertain() -> None:
    found = exactly("gemini-3.5-flash", "A2D")
    total = found.total
    assert total.completion == pytest.approx((total.scheduled - total.s_max) * total.validity * total.compliance)
    assert total.completion > 10
    assert "promise +20.06 more" in verdict(found)[-1]
    assert exactly("claude-haiku-4-5", "A2D").total.completion == 0.0


def test_marginal_compliance_is_off_by_a_covariance() -> None:
    found = exactly("claude-sonnet-5", "A1")
    classes = [each for each in found.by_class.values() if each.s_max > 0]
    weights = np.array([each.s_max for each in classes]) / found.total.s_max
    v, c = np.array([each.validity for each in classes]), np.array([each.compliance for each in classes])
    covariance = weights @ (v * c) - (weights @ v) * (weights @ c)
    assert found.marginal_compliance == pytest.approx(weights @ c)
    assert found.covariance == pytest.approx(found.total.s_max * covariance)
    assert found.marginal_product == pytest.approx(found.total.s_max * (weights @ v) * (weights @ c))
    assert any("averaged over classes" in line for line in verdict(found))


def random_means(seed: int) -> EpisodeMeans:
    """Any numbers that could be expectations, certain unaided successes and empty kinds among them."""
    random, episodes = np.random.default_rng(seed), 30
    kinds = random.dirichlet(np.ones(4), size=episodes).T[:3] * random.integers(0, 2, size=(3, episodes))
    hits = kinds * random.uniform(size=kinds.shape) * random.integers(0, 2, size=kinds.shape)
    g = np.where(random.uniform(size=episodes) < 0.2, 1.0, random.uniform(size=episodes))
    kind_retries = (kinds - hits) * random.uniform(1, 4, size=kinds.shape)
    return EpisodeMeans(
        classes=("x", "y"),
        class_index=random.integers(0, 2, size=episodes),
        repeated=random.uniform(size=episodes) < 0.8,
        baseline_retries=(1 - g) * random.uniform(1, 4, size=episodes),
        baseline_first_try=g,
        retries=kind_retries.sum(axis=0) + random.uniform(size=episodes),
        addressable=np.minimum(1.0, kinds.sum(axis=0) + random.uniform(0, 0.3, size=episodes)),
        entries=random.uniform(0, 10, size=episodes),
        conflict_attempts=random.uniform(size=episodes),
        probability=kinds,
        first_try=hits,
        kind_retries=kind_retries,
    )


@pytest.mark.parametrize("seed", range(20))
def test_identity_holds_whatever_the_numbers(seed: int) -> None:
    found = savings(random_means(seed))
    for saving in (*found.by_class.values(), found.total):
        assert abs(saving.residual) < 1e-9


def test_where_every_task_is_solved_unaided_the_loss_is_one_of_successes() -> None:
    means = random_means(3)
    nothing = replace(means, baseline_retries=0 * means.retries, baseline_first_try=1 + 0 * means.retries)
    total = savings(nothing).total
    assert total.product == total.s_max == 0.0
    assert total.validity is None
    assert total.compliance is None
    assert total.recovery == pytest.approx(0.0, abs=1e-12)
    assert total.stale + total.refusals == pytest.approx(-means.kind_retries.sum())


# In tokens and money ----------------------------------------------------------------------------------------------


def test_priced_savings_are_the_tokens_saved() -> None:
    model, plan = load_model("gpt-5.4-mini"), plan_of("payments")
    costs = TokenCosts(conflict=model.conflict_cost)
    law = law_of(model, "A1")
    weights = costs.weights(
        attempts="attempts", entries="injected_entries", conflicts="conflict_attempts", one="one", episodes=36
    )
    bare = {"baseline_attempts": weights["attempts"], "one": weights["one"]}
    found = priced(episode_means(plan, law), costs)
    assert found[TOTAL].net == pytest.approx(law.expected(bare) - law.expected(weights))
    assert found[TOTAL].net == pytest.approx(sum(found[name].net for name in plan.classes))
    assert found[TOTAL].carrying < 0
    assert found["governed"].conflict < 0 == found["control"].conflict
    money = priced(episode_means(plan, law), costs, price=0.002)
    assert money[TOTAL].net == pytest.approx(0.002 * found[TOTAL].net)
    assert money[TOTAL].saving.validity == found[TOTAL].saving.validity


# By Monte Carlo ---------------------------------------------------------------------------------------------------


def sampled(model: ProbabilisticModel, arm: str, *, streams: int, chunk: int) -> EpisodeSums:
    plan = plan_of("payments")
    sums = episode_sums(plan)
    for first in range(0, streams, chunk):
        count = min(chunk, streams - first)
        bare, block = (
            simulate_block(plan, arm=get_arm(name), model=model, seed=4, first=first, count=count)
            for name in ("A0", arm)
        )
        add_block(sums, block, bare)
    return sums


def test_monte_carlo_agrees_with_the_exact_terms() -> None:
    estimates, exact = sampled(NOISY, "A1", streams=400, chunk=400).estimates(), exactly(NOISY, "A1").figures()
    assert estimates.keys() == exact.keys()
    compared = 0
    for part, figures in exact.items():
        for name, value in figures.items():
            estimate = estimates[part][name]
            assert (value is None) == (estimate.value is None), (part, name)
            if value is not None:
                assert abs(estimate.value - value) <= 5 * estimate.se + 1e-9, (part, name)
                compared += estimate.se > 0
    assert compared > 30


def test_monte_carlo_identity_is_exact_in_every_sample() -> None:
    found = savings(sampled(NOISY, "A2", streams=30, chunk=30).means())
    assert abs(found.total.residual) < 1e-9
    assert found.total.uninjected != 0.0


def test_estimates_do_not_depend_on_the_blocks() -> None:
    whole, cut = (sampled(NOISY, "A2", streams=50, chunk=chunk).estimates() for chunk in (50, 7))
    assert whole == cut


def test_too_few_streams_give_no_error() -> None:
    assert episode_sums(plan_of("payments")).estimates() == {}
    (one,) = [sampled(NOISY, "A2", streams=1, chunk=1).estimates()[TOTAL]["realised"]]
    assert one.value is not None
    assert one.se is None
