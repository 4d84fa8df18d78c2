"""Models as TOML texts: rates, counts and retry laws, what inherits from what, and what a faulty file says."""

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from invsim.client.planners import Behaviour, ProbabilisticModel, RetryLaw, load_model
from invsim.client.planners.models import parse_model
from invsim.errors import InputError, InvsimError, UnknownNameError
from invsim.located import Source

probabilities = st.floats(0.0, 1.0)


# The retry law ------------------------------------------------------------------------------------------------------


@given(probabilities)
def test_a_geometric_law_recovers_within_k_retries_unless_all_k_fail(q: float) -> None:
    assert RetryLaw.geometric(q).cumulative == pytest.approx([1 - (1 - q) ** k for k in (1, 2, 3, 4)])


def test_certain_and_hopeless_retries() -> None:
    assert RetryLaw.geometric(1.0).cumulative == (1.0, 1.0, 1.0, 1.0)
    assert RetryLaw.geometric(0.0).exhaustion == 1.0
    assert RetryLaw.geometric(0.0).mean_retries == 4.0
    assert RetryLaw.geometric(0.5).cumulative == (0.5, 0.75, 0.875, 0.9375)


def test_an_explicit_law_gives_the_chance_of_each_count_and_leaves_the_rest_to_exhaustion() -> None:
    law = RetryLaw.explicit((0.5, 0.25))
    assert law.cumulative == (0.5, 0.75, 0.75, 0.75)
    assert law.exhaustion == 0.25
    assert RetryLaw.explicit(()).exhaustion == 1.0


def test_terms_that_sum_to_one_but_for_rounding_leave_no_exhaustion() -> None:
    for pmf in ((0.1, 0.2, 0.3, 0.4), (0.7, 0.2, 0.1), (1 / 3, 1 / 3, 1 / 3)):
        assert RetryLaw.explicit(pmf).exhaustion == 0.0


def brute_force(per_attempt: list[float]) -> float:
    """Mean retries over every pattern of four retries, each a success with its own probability."""
    total = 0.0
    for outcomes in product([True, False], repeat=4):
        weight = math.prod(p if ok else 1 - p for p, ok in zip(per_attempt, outcomes, strict=True))
        total += weight * (outcomes.index(True) + 1 if True in outcomes else 4)
    return total


@given(probabilities)
def test_the_mean_of_a_geometric_law_is_that_of_every_pattern_of_outcomes(q: float) -> None:
    assert RetryLaw.geometric(q).mean_retries == pytest.approx(brute_force([q] * 4))


@given(st.lists(st.integers(0, 20), min_size=1, max_size=4), st.integers(1, 20))
def test_the_mean_of_an_explicit_law_counts_exhausted_episodes_at_four(weights: list, rest: int) -> None:
    pmf = [each / (sum(weights) + rest) for each in weights]
    law = RetryLaw.explicit(tuple(pmf))
    expected = sum(k * p for k, p in enumerate(pmf, start=1)) + 4 * (1 - sum(pmf))
    assert law.mean_retries == pytest.approx(expected)
    assert law.exhaustion == pytest.approx(1 - sum(pmf))
    assert len(law.cumulative) == 4


@pytest.mark.parametrize("bad", [1.2, -0.1, math.nan, math.inf])
def test_a_law_refuses_what_is_no_probability_and_echoes_it(bad: float) -> None:
    with pytest.raises(InputError, match=rf"q must be a probability from 0 to 1 \(got {bad}\)$"):
        RetryLaw.geometric(bad)
    with pytest.raises(InputError, match=rf"each term of pmf must be a probability from 0 to 1 \(got {bad}\)$"):
        RetryLaw.explicit((0.1, bad))


def test_a_law_refuses_more_than_certainty_and_more_than_four_retries() -> None:
    with pytest.raises(InputError, match=r"sum to more than 1 \(got \[0\.6, 0\.6\]\)"):
        RetryLaw.explicit((0.6, 0.6))
    with pytest.raises(InputError, match="at most 4 terms"):
        RetryLaw.explicit((0.1,) * 5)


@pytest.mark.parametrize(
    "cumulative",
    [
        (),
        (0.5,),
        (0.1, 0.2, 0.3, 0.4, 0.5),
        (0.5, 0.4, 0.6, 0.7),
        (-0.1, 0.5, 0.5, 0.5),
        (0.5, 0.6, 0.7, 1.1),
        (math.nan,) * 4,
        (0.5, math.nan, math.nan, 1.0),
    ],
)
def test_a_law_is_four_non_decreasing_probabilities(cumulative: tuple[float, ...]) -> None:
    with pytest.raises(InputError):
        RetryLaw(cumulative)


@pytest.mark.parametrize("name", ["p_apply", "p_fresh", "p_stale", "p_unaided_first", "p_unaided_repeat"])
@pytest.mark.parametrize("bad", [1.2, -0.1, math.nan])
def test_every_rate_of_a_behaviour_is_a_probability(name: str, bad: float) -> None:
    with pytest.raises(InputError, match=f"{name} must be a probability"):
        Behaviour(**{name: bad})


# Texts --------------------------------------------------------------------------------------------------------------


def parse(body: str) -> ProbabilisticModel:
    return parse_model(Source("own.toml", 'name = "own"\n' + body))


def default(body: str) -> Behaviour:
    return parse("[default]\n" + body).default


def test_a_name_must_not_be_empty() -> None:
    with pytest.raises(InputError, match=r"own.toml, line 2, name: name must not be empty \(got ' '\)"):
        parse_model(Source("own.toml", "title = 'x'\nname = ' '"))


def test_a_model_needs_only_a_name() -> None:
    model = parse("")
    assert (model.name, model.default, model.conflict_cost) == ("own", Behaviour(), 0.0)
    assert (model.classes, model.shapes, model.published_arms) == ({}, {}, ())


def test_a_rate_is_a_number_or_a_count() -> None:
    rates = default("p_apply = { applied = 92, of = 108 }\np_fresh = 0.25\np_stale = 0")
    assert (rates.p_apply, rates.p_fresh, rates.p_stale) == (92 / 108, 0.25, 0.0)


@pytest.mark.parametrize(
    ("text", "first", "repeat"),
    [
        ("0.3", 0.3, 0.3),
        ("1", 1.0, 1.0),
        ("{ applied = 1, of = 4 }", 0.25, 0.25),
        ("{ first = 0.1, repeat = 0.5 }", 0.1, 0.5),
        ("{ repeat = 0.5 }", 0.0, 0.5),
        ("{ first = { applied = 1, of = 2 }, repeat = 1 }", 0.5, 1.0),
    ],
)
def test_unaided_rates_may_differ_on_first_and_repeated_occurrences(text: str, first: float, repeat: float) -> None:
    rates = default(f"p_unaided = {text}")
    assert (rates.p_unaided_first, rates.p_unaided_repeat) == (first, repeat)


def test_a_class_and_a_shape_inherit_what_they_do_not_say() -> None:
    model = parse("""
[default]
p_apply = 0.5
p_unaided = { first = 0.1, repeat = 0.2 }
[class.funding]
p_apply = 0.9
p_unaided = { repeat = 0.3 }
[shape.add-a-field]
p_stale = 0.0
""")
    funding, add = model.behaviour("funding"), model.behaviour("governed", "add-a-field")
    assert (funding.p_apply, funding.p_unaided_first, funding.p_unaided_repeat) == (0.9, 0.1, 0.3)
    assert (add.p_apply, add.p_stale) == (0.5, 0.0)
    assert model.behaviour("funding", "add-a-field") is funding  # a class takes precedence over a shape
    assert model.behaviour("governed") is model.behaviour("governed", "rewrite-a-value") is model.default


def test_one_retry_law_serves_for_both_cases_unless_the_second_is_given() -> None:
    both = default("retry = { q = 0.5 }")
    assert both.retry == both.retry_injected == RetryLaw.geometric(0.5)
    split = default("retry = { q = 0.5 }\nretry_injected = { pmf = [0.2, 0.3] }")
    assert split.retry == RetryLaw.geometric(0.5)
    assert split.retry_injected == RetryLaw.explicit((0.2, 0.3))
    own = parse("[default]\nretry_injected = { q = 0.5 }\n[class.c]\np_apply = 0.1").behaviour("c")
    assert (own.retry, own.retry_injected) == (RetryLaw.geometric(1.0), RetryLaw.geometric(0.5))


def test_what_a_hit_saves_is_the_chance_of_a_failure_times_the_retries_it_costs() -> None:
    model = parse("[default]\np_unaided = { first = 0.9, repeat = 0.25 }\nretry = { q = 0.5 }")
    assert model.weight("any", None) == 0.75 * (1 + 0.5 + 0.25 + 0.125)


# Faulty texts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("[default]\np_apply = 1.2", "line 3, default.p_apply: must be a probability from 0 to 1 (got 1.2)"),
        ("[default]\np_stale = -0.1", "line 3, default.p_stale: must be a probability from 0 to 1 (got -0.1)"),
        ("[default]\np_fresh = nan", "line 3, default.p_fresh: must be a probability from 0 to 1 (got nan)"),
        (
            "[class.a]\np_apply = 1\n[class.b]\np_apply = 1.2",
            "line 5, class.b.p_apply: must be a probability from 0 to 1 (got 1.2)",
        ),
        ("class.b.p_apply = 1.2", "line 2, class.b.p_apply: must be a probability from 0 to 1 (got 1.2)"),
        (
            "[shape.rewrite-a-value]\n\np_apply = 2",
            "line 4, shape.rewrite-a-value.p_apply: must be a probability from 0 to 1 (got 2.0)",
        ),
        ("[default]\np_aply = 1", "line 3, default.p_aply: Object contains unknown field p_aply (got 1)"),
        ("tilte = 'x'", "line 2, tilte: Object contains unknown field tilte (got 'x')"),
        ("[default]\np_apply = 'x'", "line 3, default.p_apply: Expected float | object | null, got str (got 'x')"),
        ("[default]\np_apply = true", "line 3, default.p_apply: Expected float | object | null, got bool (got True)"),
        ("[default]\nretry = { q = 1.2 }", "line 3, default.retry: q must be a probability from 0 to 1 (got 1.2)"),
        (
            "[default]\nretry = { pmf = [0.6, 0.6] }",
            "default.retry: the terms of pmf sum to more than 1 (got [0.6, 0.6])",
        ),
        ("[default]\nretry = {}", "line 3, default.retry: a retry law is either { q = ... } or { pmf = [...] }"),
        ("[default]\nretry = { q = 1, pmf = [] }", "line 3, default.retry: a retry law is either"),
        ("[default]\np_apply = { applied = 3, of = 2 }", "line 3, default.p_apply: counts need 0 <= applied <= of"),
        ("[default]\np_apply = { applied = 0, of = 0 }", "line 3, default.p_apply: counts need 0 <= applied <= of"),
        ("[default]\np_unaided = { first = 1.2 }", "line 3, default.p_unaided: must be a probability"),
        ("[default]\np_unaided = { applied = 1 }", "line 3, default.p_unaided: p_unaided is a rate, {applied, of}"),
        ("[tokens]\nconflict = -1", "line 3, tokens.conflict: conflict must be a number from 0 to 1e+06 (got -1.0)"),
        ("[shape.add-field]\np_apply = 1", "line 2, shape.add-field: unknown hint shape 'add-field': did you mean"),
    ],
)
def test_a_fault_is_told_in_one_line_with_file_line_field_and_value(body: str, message: str) -> None:
    with pytest.raises(InvsimError) as caught:
        parse(body)
    text = str(caught.value)
    assert text.startswith("own.toml, line ")
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("body", "line", "value"),
    [
        ("[class.a]\np_apply = 1\n[class.b]\np_apply = 'x'", 5, "(got 'x')"),
        ("[class.a]\np_apply = 1\n[class.b]\np_aply = 0.5", 5, "(got 0.5)"),
        ("[shape.add-a-field]\np_aply = 0.5", 3, "(got 0.5)"),
    ],
)
def test_a_wrong_type_or_unknown_key_inside_a_class_is_on_its_line_too(body: str, line: int, value: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(body)
    assert str(caught.value).startswith(f"own.toml, line {line}, ")
    assert str(caught.value).endswith(value)


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_conflict_cost_is_a_finite_number(value: str) -> None:
    with pytest.raises(InputError, match=r"line 3, tokens\.conflict"):
        parse(f"[tokens]\nconflict = {value}")


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown model 'gpt-5-mni': did you mean 'gpt-5-mini'"):
        load_model("gpt-5-mni")
