"""Fits: which count speaks of which parameter, what each estimate is, what is not identified, and the model files."""

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invsim.client.planners import ProbabilisticModel, RetryLaw, load_model, model_names
from invsim.client.planners.models import PUBLISHED, parse_model
from invsim.client.planners.posterior import BetaPosterior, RetryPosterior
from invsim.errors import InputError, UnknownNameError
from invsim.fit import Fit, Frames, cell_rows, combined, estimates, fit, parameter_rows, tally_from_counts, write_model
from invsim.fit.counts import is_counts
from invsim.fit.estimates import predictive
from invsim.fit.frames import EPISODES, TRIALS
from invsim.located import Source
from invsim.stats.clusters import cluster_robust_rate
from invsim.stats.design import design_effect, intra_cluster_correlation, unrepeated
from invsim.stats.intervals import jeffreys
from invsim.stats.pooling import mixture_quantile, pool
from invsim.traces.reader import Faults

PUBLISHED_COUNTS = Path(__file__).parents[1] / "data" / "published_counts.csv"
ADD, REWRITE = "add-a-field", "rewrite-a-value"
Row = dict[str, Any]


def trial(result: str, n: int = 1, **changes: Any) -> Row:
    base = {"model": "m", "task": "t", "constraint": "c", "shape": ADD, "kind": "first_attempt", "next_ok": None}
    return {**base, "attribution": "certain", "injected": "valid", "result": result, "n": n, **changes}


def episode(n: int = 1, **changes: Any) -> Row:
    base = {"model": "m", "task": "t", "constraint": "c", "shape": ADD, "injected": "nothing"}
    ends = {"first_occurrence": None, "first_ok": False, "retries": 1, "ended": "completed", "n": n}
    return {**base, **ends, **changes}


def tally(*trials: Row, episodes: tuple[Row, ...] = ()) -> Frames:
    return Frames(pl.DataFrame(list(trials), schema=TRIALS), pl.DataFrame(list(episodes), schema=EPISODES))


def of_episodes(*rows: Row, **options: Any) -> Fit:
    return fit(tally(episodes=rows), **options)


# Trials --------------------------------------------------------------------------------------------------------------


def test_a_cell_counts_what_was_applied_of_what_is_known() -> None:
    results = ("applied", "loose", "partial", "other", "identical", "switched", "gave_up", "refused", "censored")
    found = fit(tally(*(trial(result, 2) for result in results)))
    rate = found.rate("p_apply", "m", ADD)
    assert (rate.applied, rate.trials, rate.rate, rate.status) == (2, 16, 2 / 16, "ok")
    assert found.left_out == {"censored": 2}
    assert fit(tally(*(trial(result, 2) for result in results)), loose=True).rate("p_apply", "m", ADD).applied == 4


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"attribution": "unknown"}, "unknown attribution"),
        ({"attribution": None}, "unknown attribution"),
        ({"result": "censored"}, "censored"),
        ({"result": None}, "censored"),
        ({"shape": "text", "kind": "recovery"}, "text hint"),
        ({"shape": None}, "no shape"),
        ({"injected": "unknown"}, "unknown validity"),
        ({"injected": None}, "unknown validity"),
        ({"injected": "conflict"}, "in a conflict, told by the episode"),
    ],
)
def test_what_a_fit_leaves_out_is_counted_by_reason(changes: Row, reason: str) -> None:
    found = fit(tally(trial("applied"), {**trial("other", 3), **changes}))
    assert found.left_out == {reason: 3}
    assert found.rate("p_apply", "m", ADD).trials == 1


def test_kinds_of_trials_and_states_of_the_memory_block_are_kept_apart() -> None:
    found = fit(
        tally(
            trial("applied", 3), trial("other", 1),
            trial("applied", 5, kind="recovery", injected="nothing"), trial("other", 5, kind="recovery"),
            trial("applied", 2, injected="stale"), trial("other", 6, injected="stale"),
        )
    )  # fmt: skip
    rates = {each.parameter: (each.applied, each.trials) for each in found.rates if each.status == "ok"}
    assert rates == {"p_apply": (3, 4), "recovery": (5, 10), "p_stale": (2, 8)}
    assert [each.kind for each in found.cells] == ["first_attempt", "recovery"]


def test_every_model_stands_beside_every_shape_and_a_cell_without_data_says_so() -> None:
    found = fit(
        tally(trial("applied", model="a"), trial("other", model="b", shape=REWRITE), trial("other", model=None))
    )
    cells = {each.key: each.status for each in found.cells if each.parameter == "p_apply"}
    assert cells == {
        ("a", ADD): "ok", ("a", REWRITE): "no data", ("b", ADD): "no data", ("b", REWRITE): "ok",
        ("unknown", ADD): "ok", ("unknown", REWRITE): "no data",
    }  # fmt: skip
    assert found.rate("p_apply", "a", REWRITE).reason == "no valid fix was injected"
    with pytest.raises(UnknownNameError, match="rate of this fit"):
        found.rate("p_apply", "c", ADD)


@pytest.mark.parametrize("name", ["", " ", None])
def test_a_model_that_is_not_named_is_unknown(name: str | None) -> None:
    found = fit(tally(trial("applied", model=name), episodes=(episode(2, model=name),)))
    assert found.model_names == ("unknown",)


def test_a_cell_of_which_all_is_left_out_is_unidentified_and_says_why() -> None:
    found = fit(tally(trial("censored", 2), trial("applied", 3, attribution="unknown"), trial("applied", model="b")))
    rate = found.rate("p_apply", "m", ADD)
    assert (rate.status, rate.rate, rate.interval) == ("unidentified", None, None)
    assert rate.reason == "left out: 2 censored, 3 unknown attribution"


def test_intervals_are_those_of_the_statistics() -> None:
    """The example of ten applied of twenty-one over six tasks."""
    clusters = [(4, 4), (4, 7), (0, 2), (2, 2), (0, 4), (0, 2)]
    rows = [
        trial(result, n, task=f"t{at}")
        for at, (x, m) in enumerate(clusters)
        for result, n in (("applied", x), ("other", m - x))
    ]
    rate = fit(tally(*rows)).rate("p_apply", "m", ADD)
    y, m = zip(*clusters, strict=True)
    assert (rate.applied, rate.trials, rate.clusters) == (10, 21, 6)
    assert rate.interval == jeffreys(10, 21).pair()
    assert rate.cluster_interval == cluster_robust_rate(y, m).pair()
    rho = intra_cluster_correlation(y, m, [0] * 6)
    assert rho is not None
    assert rho > 0.3
    assert rate.worth == pytest.approx(21 / design_effect(m, rho))
    assert rate.posterior == pytest.approx((10 * rate.worth / 21 + 0.5, 11 * rate.worth / 21 + 0.5))
    independent = fit(tally(*rows), cluster="none").rate("p_apply", "m", ADD)
    assert independent.posterior == (10.5, 11.5)


def test_clusters_are_unknown_where_a_task_is() -> None:
    rate = fit(tally(trial("applied", 3), trial("other", task=None))).rate("p_apply", "m", ADD)
    assert (rate.clusters, rate.cluster_interval, rate.worth) == (None, None, 4.0)
    alone = fit(tally(trial("applied", 3), trial("other"))).rate("p_apply", "m", ADD)
    assert (alone.clusters, alone.cluster_interval) == (1, (0.0, 1.0))


def test_arms_of_one_seed_may_repeat_trials_and_those_of_another_do_not() -> None:
    def of(seeds: tuple[str | None, str | None], **options: Any) -> Fit:
        runs = [{"arm": arm, "seed": seed} for arm, seed in zip(("A1", "A2D"), seeds, strict=True)]
        trials = [trial(result, n, **run) for run in runs for result, n in (("applied", 8), ("other", 2))]
        ends = tuple(episode(5, **run) for run in runs)
        return fit(tally(*trials, episodes=ends), **options)

    repeated, apart = of(("1", "1")), of(("1", "2"))
    rate = repeated.rate("p_apply", "m", ADD)
    assert (rate.applied, rate.trials, rate.worth, rate.posterior) == (16, 20, 10.0, (8.5, 2.5))
    assert rate.interval == pytest.approx(jeffreys(8, 10).pair())
    law = repeated.law("retry", "m", ADD)
    assert (law.counts, law.episodes, law.worth) == ((10, 0, 0, 0), 10, 5.0)
    assert (repeated.rate("p_unaided", "m", ADD).worth, repeated.arms, apart.arms) == (5.0, 2, 1)
    assert "worth 10.0 independent trials" in repeated.models()["m"]
    for other in (apart, of((None, None))):
        assert other.rate("p_apply", "m", ADD).posterior == (16.5, 4.5)
        assert other.law("retry", "m", ADD).worth == 10.0
    by_arm = of(("1", "1"), by=["model", "shape", "arm"])
    assert by_arm.rate("p_apply", "m", ADD, "A1").posterior == (8.5, 2.5)


def test_models_are_pooled_within_a_shape_and_only_there() -> None:
    counts = {("a", ADD): 9, ("b", ADD): 2, ("c", ADD): 10, ("a", REWRITE): 1, ("b", REWRITE): 3}
    rows = [
        trial(result, n, model=model, shape=shape, task=None)
        for (model, shape), x in counts.items()
        for result, n in (("applied", x), ("other", 10 - x))
    ]
    found = fit(tally(*rows))
    together = pool([9, 2, 10], [10, 10, 10])
    alpha, beta = together.matched()
    for at, model in enumerate("abc"):
        rate = found.rate("p_apply", model, ADD)
        assert rate.pooled == pytest.approx(float(together.mean[at]))
        assert rate.posterior == pytest.approx((float(alpha[at]), float(beta[at])))
    unseen, expected = found.rate("p_apply", "c", REWRITE), pool([1, 3, 0], [10, 10, 0])
    assert (unseen.status, unseen.trials) == ("no data", 0)
    assert unseen.pooled == pytest.approx(float(expected.mean[2]))
    apart = fit(tally(*rows), pool=False)
    assert all(each.pooled is None for each in apart.rates)
    assert apart.rate("p_apply", "a", ADD).posterior == (9.5, 1.5)
    assert apart.rate("p_apply", "c", REWRITE).posterior is None


# Episodes ------------------------------------------------------------------------------------------------------------


def test_first_tries_without_a_fix_and_in_a_conflict() -> None:
    found = of_episodes(
        episode(6, first_occurrence=True), episode(2, first_occurrence=True, first_ok=True, retries=0),
        episode(1, first_occurrence=False), episode(3, first_occurrence=False, first_ok=True, retries=0),
        episode(4, injected="conflict"), episode(1, injected="conflict", first_ok=True, retries=0),
    )  # fmt: skip
    rates = {each.parameter: (each.applied, each.trials) for each in found.rates if each.status == "ok"}
    assert rates == {
        "p_fresh": (1, 5), "p_unaided": (5, 12), "p_unaided_first": (2, 8), "p_unaided_repeat": (3, 4)
    }  # fmt: skip


def test_a_success_that_was_told_nothing_takes_the_shape_of_its_class_or_else_of_its_task() -> None:
    ok = {"first_ok": True, "retries": 0, "shape": None}
    by_class = of_episodes(episode(3), episode(2, task="other", **ok))
    by_task = of_episodes(episode(3, constraint=None), episode(2, constraint=None, **ok))
    for found in (by_class, by_task):
        rate = found.rate("p_unaided", "m", ADD)
        assert (rate.applied, rate.trials) == (2, 5)
        assert found.left_out == {}


def test_a_failure_that_was_told_a_text_counts_for_the_first_try_and_not_for_the_retries() -> None:
    found = of_episodes(
        episode(3), episode(4, shape="text", retries=2), episode(5, shape="text", constraint="d", task="u")
    )
    assert found.rate("p_unaided", "m", ADD).trials == 7
    assert found.law("retry", "m", ADD).counts == (3, 0, 0, 0)
    assert found.left_out == {"episode: text hint": 5, "retry law: text hint": 9}


def test_successes_that_could_be_of_any_shape_leave_the_unaided_rate_unidentified() -> None:
    rows = (episode(3, constraint=None), episode(2, constraint=None, task="u", shape=None, first_ok=True, retries=0))
    found = of_episodes(*rows)
    rate = found.rate("p_unaided", "m", ADD)
    assert (rate.status, rate.trials, rate.posterior) == ("unidentified", 0, None)
    assert rate.reason.startswith("2 first tries succeeded in tasks that were never told anything")
    assert found.left_out == {"episode: success of unknown shape": 2, "episode: beside successes of unknown shape": 3}
    whole = of_episodes(*rows, by=["model"]).rate("p_unaided", "m")
    assert (whole.applied, whole.trials) == (2, 5)


def test_a_class_that_never_meets_a_hint_has_no_shape_and_is_in_nobodys_way() -> None:
    found = of_episodes(episode(3), episode(9, constraint="free", shape=None, first_ok=True, retries=0))
    assert found.rate("p_unaided", "m", ADD).trials == 3
    assert found.left_out == {"episode: no shape": 9}


def test_a_stale_fix_is_told_by_a_trial_and_never_by_an_episode() -> None:
    rate = of_episodes(episode(5, injected="stale")).rate("p_stale", "m", ADD)
    assert (rate.status, rate.reason) == ("unidentified", "no stale fix was injected alone")


def test_a_retry_law_counts_failed_first_tries_by_the_retry_that_recovered() -> None:
    found = of_episodes(
        episode(31), episode(4, retries=2), episode(1, retries=4), episode(2, retries=4, ended="exhausted"),
        episode(1, retries=6), episode(1, retries=0, ended="gave_up"), episode(7, ended="censored"),
        episode(5, first_ok=True, retries=0), episode(3, retries=3, injected="valid"),
        episode(9, injected="unknown"),
    )  # fmt: skip
    law, injected = found.law("retry", "m", ADD), found.law("retry_injected", "m", ADD)
    assert (law.counts, law.exhausted, law.episodes) == ((31, 4, 0, 1), 4, 40)
    assert (injected.counts, injected.exhausted) == ((0, 0, 3, 0), 0)
    assert found.left_out == {
        "episode: unknown validity": 9, "retry law: censored": 7, "retry law: unknown validity": 9
    }  # fmt: skip


def test_a_censored_first_try_counts_where_a_retry_shows_that_it_failed() -> None:
    found = of_episodes(episode(2, ended="censored"), episode(3, ended="censored", retries=0))
    assert found.rate("p_unaided", "m", ADD).trials == 2
    assert found.left_out == {"episode: first try censored": 3, "retry law: censored": 5}
    law = found.law("retry", "m", ADD)
    assert (law.status, law.reason) == ("unidentified", "left out: 5 censored")


def test_an_episode_that_begins_late_says_nothing_of_first_tries_or_of_the_retries_after_them() -> None:
    found = of_episodes(episode(2), episode(3, first_ok=None), episode(4, first_ok=None, retries=0, shape=None))
    assert found.rate("p_unaided", "m", ADD).trials == 2
    assert found.law("retry", "m", ADD).episodes == 2
    assert found.left_out == {"episode: first try censored": 7}


COMMON = {
    "model": st.sampled_from([None, "m"]), "task": st.sampled_from([None, "t", "u", "v"]), "n": st.integers(0, 9),
    "constraint": st.sampled_from([None, None, "c"]), "arm": st.sampled_from([None, "A1", "A2D"]),
    "seed": st.sampled_from([None, "1", "2"]), "shape": st.sampled_from([None, ADD, REWRITE, "text"]),
    "injected": st.sampled_from(["nothing"] * 6 + ["valid", "conflict", "stale", "unknown"]),
}  # fmt: skip
A_TRIAL = st.fixed_dictionaries(
    {
        **COMMON, "kind": st.sampled_from(["recovery", "first_attempt"]), "next_ok": st.none(),
        "attribution": st.sampled_from(["certain", "unknown"]),
        "result": st.sampled_from(["applied", "loose", "other", "gave_up", "censored"]),
    }
)  # fmt: skip
AN_EPISODE = st.fixed_dictionaries(
    {
        **COMMON, "first_occurrence": st.sampled_from([None, True, False]), "first_ok": st.booleans(),
        "retries": st.integers(0, 6), "ended": st.sampled_from(["completed", "exhausted", "gave_up", "censored"]),
    }
)  # fmt: skip


@given(
    st.lists(A_TRIAL, max_size=12),
    st.lists(AN_EPISODE, max_size=12),
    st.sampled_from([["model"], ["model", "shape"], ["model", "constraint"], ["shape", "arm", "model"]]),
)
def test_what_is_found_is_used_or_left_out(trials: list[Row], episodes: list[Row], by: list[str]) -> None:
    """Of trials, of first tries that no trial of a fix tells of, and of failed first tries, each by itself."""
    try:
        found = fit(tally(*trials, episodes=tuple(episodes)), by=by)
    except InputError:
        return

    def left(start: str) -> int:
        return sum(n for reason, n in found.left_out.items() if reason.partition(": ")[0] == start)

    def used(*parameters: str) -> int:
        return sum(each.trials for each in found.rates if each.parameter in parameters)

    of_firsts, of_laws = left("episode"), left("retry law")
    of_trials = sum(found.left_out.values()) - of_firsts - of_laws
    firsts = [each for each in episodes if each["injected"] not in {"valid", "stale"}]
    assert used("p_apply", "recovery", "p_stale") + of_trials == sum(each["n"] for each in trials)
    assert used("p_unaided", "p_fresh") + of_firsts == sum(each["n"] for each in firsts)
    failed = sum(each["n"] for each in episodes if not each["first_ok"])
    assert sum(each.episodes for each in found.laws) + of_laws == failed
    assert all(0.0 <= each.worth <= each.trials * (1 + 1e-12) for each in found.rates)


# What is asked for ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": ["shape"]}, "goes by model, and by each column once"),
        ({"by": ["model", "model"]}, "each column once"),
        ({"by": ["model", "task"]}, "goes by any of model, shape, constraint, arm"),
        ({"cluster": "episode"}, "unknown cluster 'episode'"),
        ({"confidence": 1.0}, "confidence"),
    ],
)
def test_a_fit_refuses_what_it_cannot_do(options: Row, message: str) -> None:
    with pytest.raises((InputError, UnknownNameError), match=message):
        fit(tally(trial("applied")), **options)


def test_nothing_but_text_hints_leaves_nothing_to_fit() -> None:
    with pytest.raises(InputError, match="no trial to fit: all were left out: text hint 4"):
        fit(tally(trial("other", 4, shape="text", kind="recovery")))
    with pytest.raises(InputError, match=r"no trial to fit$"):
        fit(tally())


def test_tallies_add_up() -> None:
    parts = [tally(trial("applied", 2)), tally(trial("other", 3), episodes=(episode(2),))]
    rate = fit(combined(parts)).rate("p_apply", "m", ADD)
    assert (rate.applied, rate.trials) == (2, 5)


def test_rows_hold_every_figure_once_and_are_plain() -> None:
    found = fit(tally(trial("applied", 8), trial("other", 2), episodes=(episode(4),)))
    (apply, recovery) = cell_rows(found)
    names = ("model", "shape", "kind", "trials", "applied", "rate", "status")
    assert [apply[name] for name in names] == ["m", ADD, "first_attempt", 10, 8, 0.8, "ok"]
    assert (recovery["status"], recovery["rate"], recovery["lo"]) == ("no data", None, None)
    law = next(row for row in parameter_rows(found) if row["parameter"] == "retry")
    assert (law["counts"], law["exhausted"], law["status"]) == ([4, 0, 0, 0], 0, "ok")


# Statistics ----------------------------------------------------------------------------------------------------------


def test_correlation_of_trials_within_a_task() -> None:
    assert intra_cluster_correlation([4, 0, 4, 0], [4, 4, 4, 4], [0] * 4) == 1.0
    assert intra_cluster_correlation([2, 2, 2, 2], [4, 4, 4, 4], [0] * 4) == 0.0
    assert intra_cluster_correlation([3], [4], [0]) is None  # one cluster has no spread between clusters
    assert intra_cluster_correlation([1, 0], [1, 1], [0, 0]) is None  # no two trials share a cluster
    assert intra_cluster_correlation([4, 4], [4, 4], [0, 0]) is None  # nothing varies
    # Cells have rates of their own: what differs between them is no correlation.
    assert intra_cluster_correlation([4, 4, 0, 1], [4, 4, 4, 4], [0, 0, 1, 1]) < 0.2


@pytest.mark.parametrize("rho", [0.0, 0.1, 0.4])
def test_the_correlation_is_found_again(rho: float) -> None:
    rng = np.random.default_rng(7)
    cells = np.repeat(np.arange(40), 8)
    rates = rng.uniform(0.2, 0.9, 40)[cells]
    m = rng.integers(1, 9, len(cells))
    own = rng.beta(rates * (1 / rho - 1), (1 - rates) * (1 / rho - 1)) if rho else rates
    found = intra_cluster_correlation(rng.binomial(m, own), m, cells)
    assert found == pytest.approx(rho, abs=0.05)


def test_a_design_effect_counts_alike_trials_for_less() -> None:
    assert design_effect([1, 1, 1], 0.5) == 1.0
    assert design_effect([4, 4], 1.0) == 4.0
    assert design_effect([2, 6], 0.5) == 1 + (40 / 8 - 1) * 0.5


@pytest.mark.parametrize(
    ("trials", "worth"), [([7], 7), ([7, 0], 7), ([7, 7], 7), ([7, 7, 7], 7), ([2, 6], 64 / 12), ([0], 0), ([], 0)]
)
def test_trials_that_arms_may_repeat_are_worth_the_least_that_they_can_be(trials: list[int], worth: float) -> None:
    assert unrepeated(trials) == pytest.approx(worth)


def test_the_worth_of_repeated_trials_is_that_of_their_mean() -> None:
    """Of 10 trials the arms have the first 10, 6 and 1: the mean over all 17 is as sure as that of so many."""
    draws = np.random.default_rng(8).random((200_000, 10)) < 0.3
    seen = sum(draws[:, :n].sum(axis=1) for n in (10, 6, 1)) / 17
    assert 0.3 * 0.7 / seen.var() == pytest.approx(unrepeated([6, 1, 10]), rel=0.02)


@given(st.lists(st.integers(1, 40), min_size=2, max_size=8), st.data())
def test_the_matched_beta_has_the_moments_of_the_mixture(n: list[int], data: st.DataObject) -> None:
    x = [data.draw(st.integers(0, each)) for each in n]
    together = pool(x, n)
    alpha, beta = together.matched()
    assert alpha / (alpha + beta) == pytest.approx(together.mean)
    a = (together.mu * together.kappa)[:, None] + x
    total = together.kappa[:, None] + n
    second = together.weights @ (a * (a + 1) / (total * (total + 1)))
    size = alpha + beta
    assert alpha * (alpha + 1) / (size * (size + 1)) == pytest.approx(second)


def test_the_matched_beta_has_nearly_the_quantiles_of_the_mixture() -> None:
    """Seven models that are alike, and seven that are not, of 5, 30 and 300 trials."""
    from scipy.special import betaincinv

    for rates in ((0.1, 0.4, 0.7, 0.85, 0.9, 0.95, 1.0), (0.7, 0.75, 0.8, 0.8, 0.85, 0.85, 0.9)):
        for n, near in ((5, 0.02), (30, 0.012), (300, 0.0003)):
            x = np.round(n * np.array(rates))
            together = pool(x, np.full(7, n))
            alpha, beta = together.matched()
            a = (together.mu * together.kappa)[:, None] + x
            b = ((1 - together.mu) * together.kappa)[:, None] + n - x
            for probability in (0.025, 0.25, 0.5, 0.75, 0.975):
                off = betaincinv(alpha, beta, probability) - mixture_quantile(a, b, together.weights, probability)
                assert np.abs(off).max() < near


def test_the_predicted_number_applied_is_that_of_the_posterior() -> None:
    rate = fit(tally(trial("applied", 8), trial("other", 2))).rate("p_apply", "m", ADD)
    lo, hi = predictive(rate) or (0, 0)
    draws = np.random.default_rng(1).binomial(10, np.random.default_rng(2).beta(8.5, 2.5, 200_000))
    assert ((draws >= lo) & (draws <= hi)).mean() >= 0.95
    assert (draws > hi).mean() <= 0.025
    assert (draws < lo).mean() <= 0.025
    assert predictive(fit(tally(trial("applied", model="b"), trial("censored"))).rate("p_apply", "m", ADD)) is None


@pytest.mark.parametrize("applied", [0, 1, 40, 7_000, 19_990, 20_000])
def test_the_predicted_number_of_many_trials_is_as_if_it_were_summed(
    applied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = tally(trial("applied", applied), trial("other", 20_000 - applied))
    rate = fit(counts).rate("p_apply", "m", ADD)
    found = predictive(rate)
    monkeypatch.setattr(estimates, "SUMMED", 20_000)
    summed = predictive(rate)
    assert found is not None
    assert summed is not None
    assert all(abs(one - other) <= 1 for one, other in zip(found, summed, strict=True))


def test_more_trials_than_could_be_summed_are_predicted() -> None:
    """Term by term this would take terabytes."""
    rate = fit(tally(trial("applied", 3 * 10**14), trial("other", 10**14))).rate("p_apply", "m", ADD)
    lo, hi = predictive(rate) or (0, 0)
    assert lo < 3 * 10**14 < hi
    assert hi - lo == pytest.approx(2 * 1.96 * np.sqrt(2 * 0.75 * 0.25 * 4e14), rel=1e-3)


# Model files ---------------------------------------------------------------------------------------------------------


def read(found: Fit, model: str = "m") -> ProbabilisticModel:
    return parse_model(Source("fitted.toml", found.models()[model]))


FULL = tally(
    *(trial("applied", 8), trial("other", 2), trial("applied", 4, kind="recovery")),
    *(trial("applied", 3, injected="stale"), trial("other", 1, injected="stale")),
    episodes=(
        episode(6, first_occurrence=True, injected="nothing"),
        episode(2, first_occurrence=True, first_ok=True, retries=0),
        episode(4, first_occurrence=False, retries=2),
        episode(1, injected="conflict", retries=3),
    ),
)


def test_a_model_file_holds_the_posteriors_and_its_point_is_their_mean() -> None:
    model = read(fit(FULL, cluster="none"))
    rates = model.shapes[ADD]
    assert model.uncertainty["shape", ADD, "p_apply"] == BetaPosterior(8.5, 2.5)
    assert (rates.p_apply, rates.p_stale, rates.p_fresh) == (8.5 / 11, 3.5 / 5, 0.5 / 2)
    assert (rates.p_unaided_first, rates.p_unaided_repeat) == (2.5 / 9, 0.5 / 5)
    assert model.uncertainty["shape", ADD, "retry"] == RetryPosterior((6, 4, 0, 0), 0)
    assert model.uncertainty["shape", ADD, "retry_injected"] == RetryPosterior((0, 0, 1, 0), 0)
    assert rates.retry == RetryLaw.explicit((6.2 / 11, 4.2 / 11, 0.2 / 11, 0.2 / 11))


def test_each_line_of_a_model_file_carries_its_evidence() -> None:
    text = fit(FULL, cluster="none").models()["m"]
    assert "# 8 of 10 valid fixes applied, 95% {:.3f} to {:.3f}, 1 task".format(*jeffreys(8, 10).pair()) in text
    assert "# 10 failed first tries: 6, 4, 0, 0 recovered at retry 1, 2, 3, 4, 0 never" in text
    assert all("#" in line for line in text.splitlines() if line.startswith(("p_", "retry")))


def test_what_is_not_identified_takes_the_default_that_the_file_says() -> None:
    model = read(fit(tally(trial("applied", 4, kind="recovery"), trial("other", 1, kind="recovery"))))
    rates = model.shapes[ADD]
    assert rates.p_apply == rates.p_stale == 4.5 / 6  # the rate after an error
    assert (rates.p_fresh, rates.p_unaided_repeat, rates.retry) == (4.5 / 6 / 2, 0.0, RetryLaw.geometric(1.0))
    nothing = read(of_episodes(episode(2)))
    assert nothing.uncertainty["shape", ADD, "p_apply"] == BetaPosterior(0.5, 0.5)
    text = of_episodes(episode(2)).models()["m"]
    assert "p_stale = { alpha = 0.5, beta = 0.5 }    # not identified, no stale fix was injected alone" in text


def test_a_shape_that_was_not_seen_gets_what_the_others_let_expect() -> None:
    found = fit(
        tally(trial("applied", 9), trial("other"), trial("applied", 4, shape=REWRITE), trial("other", shape=REWRITE))
    )
    alpha, beta = pool([9, 4, 0], [10, 5, 0]).matched()
    assert read(found).default.p_apply == pytest.approx(alpha[2] / (alpha[2] + beta[2]), rel=1e-4)
    assert read(fit(FULL, pool=False)).default.p_apply == 0.5


def test_a_shape_that_was_not_seen_meets_a_conflict_as_its_compliance_says() -> None:
    """It would else take the valid fix for certain, which nothing has shown."""
    model = read(fit(tally(trial("applied", 3), trial("other", 7)), pool=False))
    assert model.default == model.behaviour("c", REWRITE)
    assert (model.default.p_apply, model.default.p_stale, model.default.p_fresh) == (0.5, 0.5, 0.25)
    assert {("default", "", name) for name in ("p_apply", "p_stale", "p_fresh")} <= model.uncertainty.keys()
    drawn = model.drawn(1, 0).default
    assert len({drawn.p_apply, drawn.p_stale, drawn.p_fresh}) == 3


def test_a_fit_by_class_writes_classes_and_one_by_model_alone_the_default() -> None:
    by_class = read(fit(FULL, by=["model", "constraint"], cluster="none"))
    assert by_class.classes["c"].p_apply == 8.5 / 11
    alone = read(fit(FULL, by=["model"], cluster="none"))
    assert (alone.default.p_apply, alone.classes, alone.shapes) == (8.5 / 11, {}, {})
    with pytest.raises(InputError, match="a section a shape or a class"):
        fit(FULL, by=["model", "shape", "constraint"]).models()


def test_a_shape_that_no_simulated_hint_has_is_named_and_left_out_of_the_file() -> None:
    found = fit(tally(trial("applied"), trial("applied", shape="remove-a-field")))
    assert list(read(found).shapes) == [ADD]
    assert "# No section can say how these shapes are met: remove-a-field." in found.models()["m"]


@pytest.mark.parametrize("name", ['a"b', "new\nline", "tab\t", "\x7f", "[x]", "ünï", "../up", "#"])
def test_a_model_of_any_name_is_written_and_read_again(name: str, tmp_path: Path) -> None:
    found = fit(tally(trial("applied", model=name)))
    write_model(found, name, tmp_path / "x.toml")
    assert load_model(str(tmp_path / "x.toml")).title.endswith("fitted to 1 trials")
    by_class = fit(tally(trial("applied", model="m", constraint=name)), by=["model", "constraint"])
    assert len(read(by_class).classes) == 1


def test_a_shipped_name_is_not_taken(tmp_path: Path) -> None:
    found = fit(tally(trial("applied", model="gpt-5-mini")))
    write_model(found, "gpt-5-mini", tmp_path / "x.toml")
    assert load_model(str(tmp_path / "x.toml")).name == "gpt-5-mini-fitted"
    with pytest.raises(UnknownNameError, match="fitted model"):
        write_model(found, "gpt-5", tmp_path / "y.toml")


# Posteriors in a model ------------------------------------------------------------------------------------------------

INHERITING = """
name = "own"
[default]
p_apply = { alpha = 8, beta = 2 }
retry = { counts = [31, 4, 1, 0], exhausted = 2 }
[class.a]
p_fresh = { alpha = 1, beta = 3 }
[class.b]
p_apply = 0.25
p_unaided = { first = { alpha = 1, beta = 1 }, repeat = 0.5 }
"""


def test_what_is_inherited_shares_its_draw_and_what_is_given_keeps_its_own() -> None:
    model = parse_model(Source("own.toml", INHERITING))
    drawn = model.drawn(3, 5)
    assert drawn.classes["a"].p_apply == drawn.default.p_apply != model.default.p_apply
    assert drawn.classes["a"].retry == drawn.classes["b"].retry == drawn.default.retry_injected
    assert (drawn.classes["b"].p_apply, drawn.classes["b"].p_unaided_repeat) == (0.25, 0.5)
    assert drawn.classes["a"].p_fresh != drawn.classes["b"].p_fresh == 1.0
    assert not drawn.uncertainty
    assert drawn.drawn(1, 1) == drawn


def test_a_draw_is_a_function_of_seed_and_index() -> None:
    model = parse_model(Source("own.toml", INHERITING))
    again = parse_model(Source("own.toml", INHERITING))
    assert model.drawn(3, 5) == again.drawn(3, 5)
    assert len({model.drawn(seed, at).default.p_apply for seed in (0, 1) for at in range(5)}) == 10


def test_a_draw_of_many_classes_takes_a_moment() -> None:
    """That it takes no time is part of the test: with as many steps as classes squared it would take minutes."""
    classes = "".join(f"[class.c{at}]\np_apply = {{ alpha = 1, beta = 1 }}\n" for at in range(20_000))
    model = parse_model(Source("own.toml", f'name = "own"\n{classes}'))
    drawn = model.drawn(1, 0).classes
    assert len({each.p_apply for each in drawn.values()}) > 19_000


def test_draws_have_the_moments_of_the_posterior() -> None:
    model = parse_model(Source("own.toml", INHERITING))
    draws = [model.drawn(1, at) for at in range(4000)]
    rates = np.array([each.default.p_apply for each in draws])
    assert rates.mean() == pytest.approx(0.8, abs=5 * 0.12 / math.sqrt(4000))
    assert rates.std() == pytest.approx(math.sqrt(0.16 / 11), rel=0.06)
    laws = np.array([each.default.retry.cumulative for each in draws])
    assert laws.mean(axis=0) == pytest.approx(np.cumsum([31.2, 4.2, 1.2, 0.2]) / 39, abs=0.006)


@pytest.mark.parametrize("name", model_names())
def test_shipped_models_are_certain(name: str) -> None:
    model = load_model(name)
    assert not model.uncertainty
    assert model.drawn(1, 0) == model


def test_counts_remain_a_point() -> None:
    model = parse_model(Source("own.toml", 'name = "own"\n[default]\np_apply = { applied = 92, of = 108 }'))
    assert (model.default.p_apply, model.uncertainty) == (92 / 108, {})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("p_apply = { alpha = 0, beta = 1 }", "default.p_apply: alpha and beta must be finite numbers above 0"),
        ("p_apply = { alpha = 1, beta = inf }", "default.p_apply: alpha and beta must be finite numbers above 0"),
        ("p_apply = { alpha = 1e308, beta = 1e308 }", "default.p_apply: alpha and beta must be finite numbers above 0"),
        ("p_apply = { alpha = 1 }", "default.p_apply: a rate is a number, {applied, of} or {alpha, beta}"),
        ("p_apply = { alpha = 1, of = 2 }", "default.p_apply: a rate is a number"),
        ("p_apply = { applied = 1, of = 2, alpha = 1, beta = 1 }", "default.p_apply: a rate is a number"),
        ("p_unaided = { alpha = 1, beta = 1, first = 0.5 }", "default.p_unaided: p_unaided is a rate"),
        ("retry = { counts = [1, 2, 3, 4, 5] }", "default.retry: counts has at most 4 terms, one a retry"),
        ("retry = { counts = [1, -2] }", "default.retry: counts of a retry law must be finite numbers, 0 or more"),
        ("retry = { counts = [1e308], exhausted = 1e308 }", "default.retry: counts of a retry law must be finite"),
        ("retry = { counts = [1], q = 0.5 }", "default.retry: a retry law is either"),
        ("retry = { exhausted = 3 }", "default.retry: a retry law is either"),
        ("retry = { pmf = [0.5], exhausted = 3 }", "default.retry: a retry law is either"),
    ],
)
def test_a_faulty_posterior_is_told_with_its_place(body: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_model(Source("own.toml", f'name = "own"\n[default]\n{body}'))
    assert str(caught.value).startswith("own.toml, line 3, ")
    assert message in str(caught.value)


# Typed counts --------------------------------------------------------------------------------------------------------


def counts_file(folder: Path, *lines: str, header: str = "model,shape,kind,applied,trials") -> Path:
    path = folder / "counts.csv"
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return path


def test_published_rates_are_fitted_as_they_are_printed() -> None:
    """Published: Tables 4 and 7, the integers behind the percentages."""
    found = fit(tally_from_counts(PUBLISHED_COUNTS), by=["model", "shape", "constraint", "arm"])
    lines = [line for line in PUBLISHED_COUNTS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    printed = list(csv.DictReader(lines))
    assert len(printed) == 7 * 6 + 3 * 3
    assert {row["model"] for row in printed} == set(PUBLISHED)
    for row in printed:
        rate = found.rate("p_apply", row["model"], row["shape"], row["constraint"], row["arm"])
        percent = float(row["source"].partition(": ")[2].rstrip("%"))
        assert rate.rate is not None
        assert abs(100 * rate.rate - percent) <= 0.05 + 1e-9, row
        assert rate.interval is not None
        assert rate.pooled_interval is not None
        assert rate.interval[0] <= rate.rate <= rate.interval[1]
        assert 0 <= rate.pooled_interval[0] < rate.pooled_interval[1] <= 1
        assert rate.clusters is None


def test_counts_of_each_state_of_the_memory_block(tmp_path: Path) -> None:
    path = counts_file(
        tmp_path,
        "m,add-a-field,first_attempt,8,10,", "m,add-a-field,first_attempt,3,4,stale",
        "m,add-a-field,first_attempt,1,5,conflict", "m,add-a-field,first_attempt,0,7,nothing",
        "m,add-a-field,recovery,6,6,",
        header="model,shape,kind,applied,trials,injected",
    )  # fmt: skip
    found = fit(tally_from_counts(path))
    rates = {each.parameter: (each.applied, each.trials) for each in found.rates if each.status == "ok"}
    assert rates == {"p_apply": (8, 10), "p_stale": (3, 4), "p_fresh": (1, 5), "p_unaided": (0, 7), "recovery": (6, 6)}
    assert found.left_out == {}


def test_tasks_of_a_file_of_counts_are_clusters(tmp_path: Path) -> None:
    rows = [f"m,add-a-field,first_attempt,{x},4,{task}" for x, task in ((4, "a"), (0, "b"), (3, "c"))]
    found = fit(tally_from_counts(counts_file(tmp_path, *rows, header="model,shape,kind,applied,trials,task")))
    rate = found.rate("p_apply", "m", ADD)
    assert (rate.clusters, rate.cluster_interval) == (3, cluster_robust_rate([4, 0, 3], [4, 4, 4]).pair())


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("m,add-a-field,first_attempt,5,4", r"line 2: applied must not exceed trials \(got '5 of 4'\)"),
        ("m,add-a-field,first_attempt,-1,4", r"line 2: applied must be a whole number, 0 or more \(got '-1'\)"),
        ("m,add-a-field,first_attempt,1.5,4", r"applied must be a whole number, 0 or more \(got '1.5'\)"),
        ("m,add-a-field,first_attempt,1,1_0", r"trials must be a whole number, 0 or more \(got '1_0'\)"),
        ("m,add-a-field,first_attempt,1,\u0663", r"trials must be a whole number, 0 or more \(got '\u0663'\)"),
        ("m,add-a-field,first_attempt,1,1000000001", r"trials must be a whole number, 0 or more and at most 1,000,0"),
        ("m,add-a-field,first_attempt,1,", r"trials must be a whole number, 0 or more \(got ''\)"),
        ("m,add-a-feild,first_attempt,1,4", "shape must be one of add-a-field"),
        ("m,add-a-field,first,1,4", "kind must be one of first_attempt, recovery"),
        (",add-a-field,recovery,1,4", "model must not be empty"),
        ("m,add-a-field,recovery,1,4,x", "has more fields than the header"),
    ],
)
def test_a_bad_line_is_told_with_its_place_or_left_out_and_counted(tmp_path: Path, line: str, message: str) -> None:
    path = counts_file(tmp_path, line, "m,add-a-field,recovery,1,4")
    with pytest.raises(InputError, match=message):
        tally_from_counts(path)
    faults = Faults(str(path))
    kept = fit(tally_from_counts(path, faults=faults))
    assert kept.rate("recovery", "m", ADD).trials == 4
    assert [(each.place, each.kind) for each in faults.found] == [("line 2", "bad-count")]


@pytest.mark.parametrize(
    "header",
    ["model,shape,kind,applied", "model,shape,kind,applied,trials,colour", "model,model,shape,kind,applied,trials"],
)
def test_a_header_is_told_what_it_must_be(tmp_path: Path, header: str) -> None:
    with pytest.raises(InputError, match=r"counts\.csv, line 1: .*columns"):
        tally_from_counts(counts_file(tmp_path, header=header))


def test_a_file_of_counts_is_known_by_its_header() -> None:
    assert is_counts(b"# typed\n\nmodel,shape, kind,applied,trials,task\nm,...")
    assert is_counts("\ufeffmodel,shape,kind,applied,trials\r\n".encode())
    assert not is_counts(b'{"episode_id": "model,shape,kind,applied,trials"}')
    assert is_counts(b"model,shape,trials,applied\n")
    assert is_counts(b"Model,Shape,Kind,Applied,Trials\n")
    assert is_counts(b'"model";"shape";"kind";"applied";"trials"\n')
    assert not is_counts(b"model,shape,colour\n")
    assert not is_counts(b"")
    assert not is_counts(b"\xff\xfe\x00")
