"""Caps hold to the last token and cent, whatever a provider bills; prices are data."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from invsim.errors import InputError
from invsim.live.budget import Budget, CapReachedError, Caps, Price, most_input_tokens, price_of
from invsim.live.completion import Completion

PRICE = Price("m", 2.0, 10.0, cached_input=0.5, cache_write=2.5)


def answer(**rest: object) -> Completion:
    return Completion(text="", model_requested="m", **rest)  # type: ignore[arg-type]


def test_cached_tokens_are_billed_once_and_at_their_own_price() -> None:
    found = answer(input_tokens=1000, cache_read_tokens=600, cache_write_tokens=100, output_tokens=10)
    assert PRICE.cost(found) == pytest.approx((300 * 2 + 600 * 0.5 + 100 * 2.5 + 10 * 10) / 1e6)
    assert PRICE.cost(answer(input_tokens=1000)) is None
    assert PRICE.worst(1000, 10) == pytest.approx((1000 * 2.5 + 100) / 1e6)


@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(1, 100), st.integers(0, 3), st.booleans()), max_size=30),
    st.integers(0, 20), st.integers(0, 5000), st.floats(0, 0.02), st.integers(0, 3),
)  # fmt: skip
def test_no_cap_is_ever_exceeded(
    calls: list[tuple[int, int, int, bool]], most: int, tokens: int, cost: float, retries: int
) -> None:
    budget = Budget(Caps(most, tokens, cost), PRICE)
    made = 0
    for inputs, outputs, dropped, told in calls:
        try:
            allowed = budget.reserve(inputs, outputs, retries=retries)
        except CapReachedError:
            continue
        assert 0 <= allowed <= retries
        # The worst that can happen: every sending but the last is lost and billed, and the last is at its bound.
        usage = {"input_tokens": inputs, "output_tokens": outputs, "cache_write_tokens": inputs} if told else {}
        lost = min(dropped, allowed)
        made += 1 + lost
        budget.settle(answer(transport_retries=lost, unanswered=lost, **usage), inputs, outputs)
        assert budget.calls == made <= most
        assert budget.tokens <= tokens
        assert budget.cost <= cost * (1 + 1e-12)


def test_the_last_call_that_fits_is_made_and_the_next_is_not() -> None:
    budget = Budget(Caps(tokens=30), None)
    for _ in range(3):
        budget.reserve(9, 1, retries=0)
        budget.settle(answer(input_tokens=9, output_tokens=1), 9, 1)
    with pytest.raises(CapReachedError, match=r"30 spent, and the next call may take 10; .* larger --max-tokens"):
        budget.reserve(9, 1, retries=0)


def test_a_cap_on_money_needs_a_price() -> None:
    with pytest.raises(InputError, match=r"no price for this model .* --price-in and --price-out"):
        Budget(Caps(cost=1.0), None)
    with pytest.raises(InputError, match="--max-calls: a cap is 0 or more"):
        Caps(calls=-1)
    with pytest.raises(InputError, match="a price is 0 or more"):
        Price("m", -1.0, 2.0)


def test_the_table_knows_dated_names_and_says_where_a_price_is_from() -> None:
    found = price_of("claude-haiku-4-5-20251001")
    assert found is not None
    assert found.source.startswith("illustrative")
    assert found.date
    assert price_of("smollm2") is None


@given(st.text(max_size=200), st.text(max_size=200))
def test_the_bound_on_tokens_counts_every_byte(system: str, content: str) -> None:
    body = {"messages": [{"role": "user", "content": content}], "system": system}
    assert most_input_tokens(body) >= len((system + content).encode("utf-8", "surrogatepass"))
    assert most_input_tokens({**body, "tools": [{"name": "t"}]}) > most_input_tokens(body) + 1000
