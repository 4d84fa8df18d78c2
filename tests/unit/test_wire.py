"""The wire: what each level sends, byte for byte, and what every contract field costs."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invsim.errors import UnknownNameError
from invsim.world import Level, Request, Response, Suggestion, account, load_domain
from invsim.world.wire import CacheHint, canonical

GOVERNED = Request({"plan": "plan_partner_growth", "amount": 49.0})
FUNDING = Request({"contract": "enterprise_annual", "payment_method_token": "acme_pm_visa_debit"})
PLAIN = Request({"plan": "plan_standard", "amount": 10.0})

ERROR = (
    '"error":"this plan is billed under an assigned promotional code, and the request does not carry the active one"'
)
FIX = '"type":"ADD_ACTIVE_PROMO_CODE","parameters":{"promo_code":"SUMMERSALE25"}'
HINT = '"cache_hint":"cacheable","table":"active_csm_codes"'
VECTOR = '"tables":[{"table":"active_csm_codes","version":"1.0.0"},{"table":"promo_eligibility","version":"1.0.0"}]'
VERSIONS = (
    '"table_versions":{"active_csm_codes":"1.0.0","promo_eligibility":"1.0.0","token_funding_map":"1.0.0",'
    '"recommended_credit_token":"1.0.0","required_promo_policy":"1.0.0","funding_type_policy":"1.0.0"}'
)
RULES = '"rules_version":"52002654160f"'

GOLDEN_ERROR = {
    Level.L0: f'{{"success":false,{ERROR}}}',
    Level.L1: f'{{"success":false,{ERROR},"recovery_feedback":{{"suggestions":[{{{FIX},{HINT}}}]}},{VERSIONS}}}',
    Level.L4: f'{{"success":false,{ERROR},"recovery_feedback":{{"suggestions":[{{{FIX},{HINT},{VECTOR}}}]}},'
    f"{VERSIONS}}}",
    Level.L5: f'{{"success":false,{ERROR},"recovery_feedback":{{"suggestions":[{{{FIX},{HINT},{VECTOR}}}]}},'
    f"{VERSIONS}}}",
    Level.L6: f'{{"success":false,{ERROR},"recovery_feedback":{{"suggestions":[{{{FIX},{HINT},{VECTOR}}}]}},'
    f"{VERSIONS},{RULES}}}",
}
GOLDEN_SUCCESS = {
    Level.L0: '{"success":true}',
    Level.L1: f'{{"success":true,{VERSIONS}}}',
    Level.L4: f'{{"success":true,{VERSIONS}}}',
    Level.L5: f'{{"success":true,{VERSIONS}}}',
    Level.L6: f'{{"success":true,{VERSIONS},{RULES}}}',
}


def answer(request: Request, level: Level) -> Response:
    return load_domain("acme").world(level=level).evaluate(request)


@pytest.mark.parametrize("level", Level)
def test_the_bytes_of_an_error(level: Level) -> None:
    assert answer(GOVERNED, level).to_bytes().decode() == GOLDEN_ERROR[level]


@pytest.mark.parametrize("level", Level)
def test_the_bytes_of_a_success(level: Level) -> None:
    assert answer(PLAIN, level).to_bytes().decode() == GOLDEN_SUCCESS[level]


def test_level_5_is_the_graph_endpoint_and_changes_no_response() -> None:
    for request in (GOVERNED, FUNDING, PLAIN):
        assert answer(request, Level.L5).to_bytes() == answer(request, Level.L4).to_bytes()


def test_each_level_adds_fields_and_takes_none_away() -> None:
    sizes = [len(answer(GOVERNED, level).to_bytes()) for level in sorted(Level)]
    assert sizes == [129, 494, 600, 600, 631]


def test_a_computed_fix_is_sent_without_table_at_every_level() -> None:
    for level in (Level.L1, Level.L4, Level.L6):
        (sent,) = answer(Request({"amount": 1.005}), level).to_dict()["recovery_feedback"]["suggestions"]  # type: ignore[index]
        assert sent == {"type": "ROUND_AMOUNT", "parameters": {"amount": 1.0}, "cache_hint": "recompute"}


# Bytes ----------------------------------------------------------------------------------------------------------------


def test_the_governed_suggestion_at_level_1_costs_251_bytes() -> None:
    measured = account(answer(GOVERNED, Level.L1))
    assert measured.fields == {"cache_hint": 24, "table": 26, "table_versions": 198}
    # Three commas beside the fields themselves: one before each.
    assert measured.contract == 24 + 26 + 198 + 3 == 251
    assert measured.total == 494
    assert measured.share == pytest.approx(251 / 494)


def test_the_six_table_envelope_is_198_bytes_on_success_too() -> None:
    measured = account(answer(PLAIN, Level.L1))
    assert measured.fields == {"table_versions": 198}
    assert measured.contract == 199


def test_the_fields_of_the_highest_level() -> None:
    measured = account(answer(GOVERNED, Level.L6))
    assert measured.fields == {
        "cache_hint": 24,
        "table": 26,
        "tables": 105,
        "table_versions": 198,
        "rules_version": 30,
    }
    assert measured.contract == sum(measured.fields.values()) + 5


def test_plain_text_costs_nothing() -> None:
    measured = account(answer(GOVERNED, Level.L0))
    assert (measured.contract, measured.fields, measured.share) == (0, {}, 0.0)


def test_per_suggestion_fields_add_up_over_the_suggestions() -> None:
    both = account(answer(GOVERNED.merged(FUNDING.fields), Level.L1))
    alone = [account(answer(request, Level.L1)) for request in (GOVERNED, FUNDING)]
    for name in ("cache_hint", "table"):
        assert both.fields[name] == sum(each.fields[name] for each in alone)
    assert both.fields["table_versions"] == 198


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("request_sent", [GOVERNED, FUNDING, PLAIN, GOVERNED.merged(FUNDING.fields)])
def test_what_is_left_without_the_contract_is_the_response_without_its_fields(
    level: Level, request_sent: Request
) -> None:
    response = answer(request_sent, level)
    plain = response.to_dict()
    for name in ("table_versions", "rules_version"):
        plain.pop(name, None)
    for suggestion in plain.get("recovery_feedback", {}).get("suggestions", []):  # type: ignore[attr-defined]
        for name in ("cache_hint", "table", "tables"):
            suggestion.pop(name, None)
    measured = account(response)
    assert measured.total - measured.contract == len(msgspec.json.encode(plain))
    assert measured.total == len(response.to_bytes())


def test_measuring_leaves_the_response_as_it_was() -> None:
    response = answer(GOVERNED, Level.L6)
    account(response)
    assert response.to_bytes().decode() == GOLDEN_ERROR[Level.L6]


# Values ---------------------------------------------------------------------------------------------------------------

values = st.one_of(st.text(max_size=4), st.integers(-9, 9), st.booleans(), st.floats(-2, 2))
parameters = st.dictionaries(st.text(max_size=3), values, max_size=4)


@given(parameters, st.randoms(use_true_random=False))
def test_the_value_of_a_fix_is_its_parameters_in_any_order(fields: dict, random) -> None:
    items = random.sample(list(fields.items()), len(fields))
    suggestions = [Suggestion("T", each, CacheHint.CACHEABLE, "t") for each in (fields, dict(items))]
    assert suggestions[0].value == suggestions[1].value
    assert msgspec.json.decode(suggestions[0].value) == fields


def test_values_that_differ_in_type_are_different_fixes() -> None:
    assert len({canonical({"x": each}) for each in (1, 1.0, True, "1", "1.0")}) == 5


def test_merging_takes_the_parameters_verbatim_and_leaves_the_request_alone() -> None:
    merged = GOVERNED.merged({"amount": 1, "promo_code": "S"})
    assert dict(merged.fields) == {"plan": "plan_partner_growth", "amount": 1, "promo_code": "S"}
    assert dict(GOVERNED.fields) == {"plan": "plan_partner_growth", "amount": 49.0}
    with pytest.raises(TypeError):
        GOVERNED.fields["amount"] = 0  # type: ignore[index]


def test_requests_are_told_apart_by_identity() -> None:
    assert Request({"a": 1}) != Request({"a": 1})


# Levels ---------------------------------------------------------------------------------------------------------------


def test_levels_2_and_3_never_reach_the_wire() -> None:
    assert [level.name for level in Level] == ["L0", "L1", "L4", "L5", "L6"]
    assert Level.parse("L4") is Level.L4


@pytest.mark.parametrize("name", ["L2", "L3", "l1", "", "6"])
def test_an_unknown_level_is_named_with_its_place(name: str) -> None:
    with pytest.raises(UnknownNameError, match=f"^here: unknown wire level '{name}'.*known: L0, L1, L4"):
        Level.parse(name, where="here")
