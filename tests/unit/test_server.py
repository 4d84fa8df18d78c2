"""The server: answers, reloads and the walk they report, rule declarations, and the drift that moves it."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from invsim.errors import InputError, InvsimError, UnknownNameError
from invsim.world import Domain, Level, Request, Rule, Server, Shape, Table, World, load_domain
from invsim.world.drift import Declare, Edit, Reload, Withdraw, after, play
from invsim.world.policies import Lookup, Violation
from invsim.world.server import CACHE_LIMIT
from invsim.world.wire import CacheHint

ACME = load_domain("acme")
GOVERNED = Request({"plan": "plan_partner_growth", "amount": 49.0})
FUNDING = Request({"contract": "enterprise_annual", "payment_method_token": "acme_pm_visa_debit"})
PLAIN = Request({"plan": "plan_standard", "amount": 10.0})
REPLACED_BY = ("token_funding_map", "recommended_credit_token", "replaced_by")
ROTATION = Edit("active_csm_codes", {"plan_partner_growth": {"code": "WINTERLAUNCH26"}})


# Reloads ------------------------------------------------------------------------------------------------------------


def test_the_downstream_walk_runs_over_the_graph_as_it_stood_before_the_reload() -> None:
    server = Server(ACME.world())
    report = play(server, ROTATION)
    assert report.to_dict() == {
        "table": "active_csm_codes",
        "old_version": "1.0.0",
        "new_version": "1.0.1",
        "diff": {"added": [], "removed": [], "changed": ["plan_partner_growth"]},
        "affected_downstream": ["promo_eligibility:SUMMERSALE25"],
    }
    # Walked after the reload, the same start reaches the new code and misses the one that clients hold.
    walked_too_late = server.graph().downstream(["active_csm_codes:plan_partner_growth"])
    assert walked_too_late == ("promo_eligibility:WINTERLAUNCH26",)


def test_a_removed_row_still_reaches_what_it_derived() -> None:
    _, report = Edit("token_funding_map", remove=("acme_pm_visa_debit",)).apply(ACME.world())
    assert report.affected_downstream == ("recommended_credit_token:acme_pm_visa_debit",)


def test_the_walk_goes_on_through_further_rules() -> None:
    _, report = Edit("funding_type_policy", {"enterprise_annual": {"funding": "debit"}}).apply(
        ACME.world().declared(Rule("token_funding_map", "required_promo_policy", "unrelated"))[0]
    )
    credit = ("token_funding_map:acme_pm_visa_credit", "token_funding_map:acme_pm_mastercard_credit")
    assert report.affected_downstream == credit  # credit tokens have no replacement: the walk ends there


def test_an_added_row_had_no_edges_and_so_affects_nothing() -> None:
    _, report = Edit("active_csm_codes", {"plan_new": {"code": "SUMMERSALE25"}}).apply(ACME.world())
    assert report.diff.added == ("plan_new",)
    assert report.affected_downstream == ()


def test_a_benign_republish_affects_nothing_and_changes_no_answer() -> None:
    server = Server(ACME.world())
    before = server.handle(FUNDING)
    report = play(server, Edit("recommended_credit_token"))
    assert report.diff.keys == report.affected_downstream == ()
    assert report.diff.new_version != report.diff.old_version
    after_it = server.handle(FUNDING)
    assert [each.value for each in after_it.suggestions] == [each.value for each in before.suggestions]
    assert after_it.table_versions == {**before.table_versions, "recommended_credit_token": "1.0.1"}


def test_the_last_reload_of_a_table_is_remembered_and_only_the_last() -> None:
    server = Server(ACME.world())
    assert server.last_reload("active_csm_codes") is None
    play(server, ROTATION)
    second = play(server, Edit("active_csm_codes"))
    assert server.last_reload("active_csm_codes") is second
    assert server.last_reload("promo_eligibility") is None


@given(st.lists(st.tuples(st.sampled_from(sorted(ACME.world().tables)), st.booleans()), max_size=12))
def test_no_table_has_the_same_version_twice(reloads: list) -> None:
    server = Server(ACME.world())
    seen = {(name, version) for name, version in server.world.versions.items()}
    for table, emptied in reloads:
        report = server.reload_table(table, {} if emptied else server.world.tables[table].rows)
        assert report.diff.new_version == server.world.versions[table]
        seen.add((table, report.diff.new_version))
    assert len(seen) == len(server.world.versions) + len(reloads)


def test_a_reload_under_a_version_it_has_or_has_had_is_refused() -> None:
    server = Server(ACME.world())
    rows = server.world.tables["active_csm_codes"].rows
    server.reload_table("active_csm_codes", rows, "x")
    with pytest.raises(InputError, match=r"a reload needs a new one \(got '1\.0\.0'\)"):
        server.reload_table("active_csm_codes", {}, "1.0.0")
    with pytest.raises(InputError, match=r"a reload needs a new one \(got '1\.0\.0'\)"):
        Server(ACME.world()).reload_table("active_csm_codes", {}, "1.0.0")


def test_rows_that_lack_a_column_a_policy_reads_are_refused_by_name() -> None:
    server = Server(ACME.world())

    def misspelt() -> None:
        play(server, Edit("active_csm_codes", {"plan_partner_growth": {"cod": "WINTERLAUNCH26"}}))
        server.handle(GOVERNED)

    with pytest.raises(InvsimError, match=r"plan_partner_growth.*code"):
        misspelt()


def test_reloading_an_unknown_table_or_removing_an_unknown_row_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'active_csm_codes'"):
        Server(ACME.world()).reload_table("active_csm_code", {})
    with pytest.raises(UnknownNameError, match="did you mean 'active_csm_codes'"):
        Edit("active_csm_code").apply(ACME.world())
    with pytest.raises(UnknownNameError, match="unknown row of table active_csm_codes 'plan_x'"):
        Edit("active_csm_codes", remove=("plan_x",)).apply(ACME.world())


def test_a_snapshot_replaces_every_row() -> None:
    world, report = Reload("active_csm_codes", {"plan_x": {"code": "A"}}, "2.0.0").apply(ACME.world())
    assert list(world.tables["active_csm_codes"].rows) == ["plan_x"]
    assert world.versions["active_csm_codes"] == report.diff.new_version == "2.0.0"


# Rules --------------------------------------------------------------------------------------------------------------


def test_withdrawing_and_declaring_a_rule_moves_the_fingerprint_and_no_table() -> None:
    server = Server(ACME.world())
    start = server.world
    gone = play(server, Withdraw(REPLACED_BY))
    assert gone.rules_version == server.world.rules_version != start.rules_version
    assert server.world.versions == start.versions
    assert server.world.vector("recommended_credit_token") == ("recommended_credit_token",)
    back = play(server, Declare(Rule(*REPLACED_BY)))
    assert back.rules_version == start.rules_version  # a fingerprint of content, whatever the order
    assert [change.added for change in server.rule_log] == [False, True]


def test_a_rule_is_declared_once_between_tables_that_exist_and_withdrawn_if_it_is_there() -> None:
    server = Server(ACME.world())
    with pytest.raises(InputError, match="declared already"):
        server.declare_rule(Rule(*REPLACED_BY))
    with pytest.raises(UnknownNameError, match="unknown table 'nowhere'"):
        server.declare_rule(Rule("active_csm_codes", "nowhere", "r"))
    with pytest.raises(UnknownNameError, match=r"unknown rule 'token_funding_map -> .* \(replaced\)'"):
        server.withdraw_rule((*REPLACED_BY[:2], "replaced"))
    assert server.rule_log == []


# Answers --------------------------------------------------------------------------------------------------------------


def test_a_world_is_immutable_and_keeps_answering_as_it_did() -> None:
    world = ACME.world()
    first = world.respond(GOVERNED)
    world.reloaded("active_csm_codes", {})
    world.withdrawn(REPLACED_BY)
    assert world.respond(GOVERNED) is first
    assert world.evaluate(GOVERNED).to_bytes() == first.to_bytes()


def test_remembered_answers_are_bounded() -> None:
    world = ACME.world()
    for _ in range(CACHE_LIMIT + 1):
        world.respond(Request({}))
    assert len(world._answers) == 1


def test_the_same_operation_on_the_same_world_is_computed_once() -> None:
    world = ACME.world()
    assert after(world, ROTATION) is after(world, ROTATION)
    assert after(world, ROTATION)[0] is not after(ACME.world(), ROTATION)[0]


def test_a_success_carries_versions_and_no_suggestions() -> None:
    response = ACME.world().evaluate(PLAIN)
    assert response.ok
    assert response.error == ""
    assert response.suggestions == ()
    assert response.table_versions == ACME.world().versions


def test_every_violated_policy_contributes_its_error_and_its_suggestion_in_order() -> None:
    response = ACME.world().evaluate(GOVERNED.merged({**FUNDING.fields, "promo_code": "BOGUS", "amount": 1.005}))
    assert [(each.type, dict(each.parameters)) for each in response.suggestions] == [
        ("ADD_ACTIVE_PROMO_CODE", {"promo_code": "SUMMERSALE25"}),
        ("USE_RECOGNISED_PROMO_CODE", {"promo_code": "SUMMERSALE25"}),
        ("USE_REQUIRED_FUNDING_TYPE", {"payment_method_token": "acme_pm_visa_credit"}),
        ("ROUND_AMOUNT", {"amount": 1.0}),
    ]
    assert response.error.count("; ") == 3


def test_a_computed_suggestion_has_no_table_and_no_vector() -> None:
    (suggestion,) = ACME.world().evaluate(Request({"amount": 1.005})).suggestions
    assert suggestion.type == "ROUND_AMOUNT"
    assert suggestion.cache_hint is CacheHint.RECOMPUTE
    assert not suggestion.cacheable
    assert suggestion.table is suggestion.tables is None


def test_a_stale_fix_fails_because_the_server_says_no() -> None:
    server = Server(ACME.world())
    fix = server.handle(GOVERNED).suggestions[0].parameters
    assert server.handle(GOVERNED.merged(fix)).ok
    play(server, ROTATION)
    refused = server.handle(GOVERNED.merged(fix))
    assert not refused.ok
    assert server.handle(GOVERNED.merged(refused.suggestions[0].parameters)).ok


# Solutions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", Level)
def test_the_solution_mends_every_violation_at_every_level(level: Level) -> None:
    request = GOVERNED.merged({**FUNDING.fields, "promo_code": "BOGUS", "amount": 1.005})
    world = ACME.world(level=level)
    solved = world.solution(request)
    assert solved is not None
    assert world.evaluate(solved).ok
    assert dict(solved.fields) == {
        "plan": "plan_partner_growth",
        "amount": 1.0,
        "contract": "enterprise_annual",
        "payment_method_token": "acme_pm_visa_credit",
        "promo_code": "SUMMERSALE25",
    }


def test_a_request_that_passes_is_its_own_solution() -> None:
    assert ACME.world().solution(PLAIN) is PLAIN


def test_there_is_no_solution_where_a_policy_knows_no_fix() -> None:
    assert ACME.world().solution(Request({"plan": "plan_standard", "promo_code": "BOGUS"})) is None


def test_there_is_no_solution_where_two_policies_want_different_things() -> None:
    rows = {"k": {"one": "A", "two": "B"}}
    wants = [Lookup(c, Shape.ADD, "t", "key", c, "field", f"wants {c}") for c in ("one", "two")]
    assert World({"t": Table("t", rows)}, (), wants).solution(Request({"key": "k"})) is None


def test_mends_that_bring_up_another_violation_are_followed() -> None:
    class Chain:
        type, shape, table = "CHAIN", Shape.ADD, None

        def check(self, fields: Mapping, tables: Mapping) -> Violation | None:
            return Violation("now b", {"b": 1}) if "a" in fields and "b" not in fields else None

    first = Lookup("FIRST", Shape.ADD, "t", "key", "a", "a", "wants a")
    world = Domain("d", "", (Table("t", {"k": {"a": 1}}),), (), (Chain(), first)).world()
    solved = world.solution(Request({"key": "k"}))
    assert solved is not None
    assert dict(solved.fields) == {"key": "k", "a": 1, "b": 1}
