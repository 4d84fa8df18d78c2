"""Policies: when a request is refused, and what the server then suggests."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from invsim.world import Level, Request, Shape, Table, World
from invsim.world.policies import Condition, Lookup, Member, Multiple, Violation
from invsim.world.wire import Parameters

TABLES = {
    "codes": Table("codes", {"growth": {"code": "S25"}, "bad": {"code": ["S25", "B26"]}}),
    "eligible": Table("eligible", {"S25": {}, "B26": {}}),
    "contracts": Table("contracts", {"annual": {"funding": "credit"}, "open": {"funding": "any"}}),
}
CREDIT = Condition("contracts", "contract", "funding", "credit")
ADD = Lookup("ADD", Shape.ADD, "codes", "plan", "code", "promo", "carry the code")
IF_CREDIT = Lookup("IF", Shape.CONDITIONAL, "codes", "plan", "code", "promo", "carry the code", (CREDIT,))
KNOWN = Member("KNOWN", Shape.REWRITE, "codes", "plan", "code", "promo", "eligible", "not a known code")
CENTS = Multiple("ROUND", "amount", "0.01", "whole cents")


# Lookup: the request must carry the row's value -------------------------------------------------------------------


@pytest.mark.parametrize("request_fields", [{"plan": "growth"}, {"plan": "growth", "promo": "OLD"}])
def test_a_lookup_refuses_an_absent_and_another_value_alike(request_fields: dict) -> None:
    assert ADD.check(request_fields, TABLES) == Violation("carry the code", {"promo": "S25"})


@pytest.mark.parametrize(
    "request_fields",
    [
        {"plan": "growth", "promo": "S25"},  # carries it
        {"plan": "unlisted"},  # no such row
        {},  # no key at all
        {"plan": "bad"},  # a list is no value to set
    ],
)
def test_a_lookup_passes_a_request_it_does_not_bear_on(request_fields: dict) -> None:
    assert ADD.check(request_fields, TABLES) is None


@pytest.mark.parametrize(
    ("contract", "refused"), [("annual", True), ("open", False), ("unlisted", False), (None, False)]
)
def test_a_condition_on_the_request_decides_whether_a_lookup_applies(contract: str | None, *, refused: bool) -> None:
    fields = {"plan": "growth"} | ({"contract": contract} if contract else {})
    assert (IF_CREDIT.check(fields, TABLES) is not None) is refused


def test_every_condition_of_a_lookup_must_hold() -> None:
    both = Lookup("IF", Shape.CONDITIONAL, "codes", "plan", "code", "promo", "m", (CREDIT,) * 2)
    never = Condition("contracts", "contract", "funding", "debit")
    neither = Lookup("IF", Shape.CONDITIONAL, "codes", "plan", "code", "promo", "m", (CREDIT, never))
    fields = {"plan": "growth", "contract": "annual"}
    assert both.check(fields, TABLES) is not None
    assert neither.check(fields, TABLES) is None


# Member: the value must be registered -----------------------------------------------------------------------------


def test_a_member_replaces_a_value_that_is_not_registered() -> None:
    assert KNOWN.check({"plan": "growth", "promo": "X"}, TABLES) == Violation("not a known code", {"promo": "S25"})


@pytest.mark.parametrize("promo", ["S25", "B26", None])
def test_a_member_passes_any_registered_value_and_none_at_all(promo: str | None) -> None:
    assert KNOWN.check({"plan": "growth"} | ({"promo": promo} if promo else {}), TABLES) is None


@pytest.mark.parametrize("plan", ["unlisted", "bad"])
def test_a_member_without_a_replacement_refuses_and_knows_no_fix(plan: str) -> None:
    assert KNOWN.check({"plan": plan, "promo": "X"}, TABLES) == Violation("not a known code", None)


def test_a_member_never_suggests_what_it_has_just_refused() -> None:
    tables = {**TABLES, "eligible": Table("eligible", {})}
    assert KNOWN.check({"plan": "growth", "promo": "S25"}, tables) == Violation("not a known code", None)


# Multiple: computed from the request ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("amount", "fix"),
    [
        (10.004, 10.0),
        (10.006, 10.01),
        (0.1 + 0.2, 0.3),
        (0.125, 0.12),  # half to even
        (0.135, 0.14),
        (-1.999, -2.0),
    ],
)
def test_a_number_off_the_grid_is_rounded_to_it(amount: float, fix: float) -> None:
    assert CENTS.check({"amount": amount}, TABLES) == Violation("whole cents", {"amount": fix})


@pytest.mark.parametrize("amount", [0, 7, -3, 10.01, 0.3, 1e12, "10.004", True, None])
def test_whole_units_and_values_that_are_no_numbers_pass(amount: object) -> None:
    assert CENTS.check({"amount": amount} if amount is not None else {}, TABLES) is None  # type: ignore[dict-item]


@given(st.floats(-1e6, 1e6), st.sampled_from(["0.01", "0.05", "0.1", "1", "5", "0.3"]))
def test_the_rounded_number_passes_and_is_within_half_a_unit(amount: float, unit: str) -> None:
    policy = Multiple("ROUND", "amount", unit, "off the grid")
    violation = policy.check({"amount": amount}, {})
    if violation is not None:
        assert violation.parameters is not None
        assert policy.check(violation.parameters, {}) is None
        moved = abs(Decimal(str(violation.parameters["amount"])) - Decimal(str(amount)))
        assert 0 < moved <= Decimal(unit) / 2


def test_a_computed_fix_names_no_table() -> None:
    assert CENTS.table is None


# A policy of one's own ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AtMost:
    """Refuses more than ``limit``; the limit is nobody's to suggest."""

    limit: float
    type: str = "AT_MOST"
    shape: Shape = Shape.REWRITE
    table: None = None

    def check(self, fields: Parameters, tables: Mapping[str, Table]) -> Violation | None:
        amount = fields.get("amount")
        return Violation("too much", None) if isinstance(amount, float) and amount > self.limit else None


def test_a_policy_that_knows_no_fix_gives_an_error_without_suggestion_at_every_level() -> None:
    for level in Level:
        response = World(TABLES, (), (AtMost(5.0),), level=level).evaluate(Request({"amount": 9.0}))
        assert not response.ok
        assert response.error == "too much"
        assert response.suggestions == ()
        assert "recovery_feedback" not in response.to_dict()


def test_a_multiple_that_no_float_can_hold_is_no_fix() -> None:
    sevens = Multiple("ROUND", "amount", "7", "whole sevens")
    assert sevens.check({"amount": 10**400}, {}) == Violation("whole sevens", None)
    assert sevens.check({"amount": 7 * 10**400}, {}) is None
