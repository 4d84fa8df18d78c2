"""The nine arms as pure functions: what each does with a hand-made store and message."""

from collections.abc import Iterable

import pytest

from invsim.client.arms import Message, get_arm
from invsim.client.memory import Entry, Memory, Slot, Step
from invsim.world import Diff, ReloadReport, Response, Rule, Suggestion
from invsim.world.server import RuleChange
from invsim.world.wire import CacheHint

DIFFING = ["A2D", "A2DC", "A2DG", "A2DR", "A2DRC", "A2DO"]
BLIND_TO_RULES = ["A1", "A2", "A2D"]
OLD, NEW = {"codes": "1", "tokens": "1", "map": "1"}, {"codes": "2", "tokens": "1", "map": "1"}


def entry(name: str, table: str, *depends: str, version: str = "1") -> Entry:
    """Family "T" and key "k" from the name "T:k"; stamped at ``version`` over its table and what it depends on."""
    family, _, key = name.partition(":")
    return Entry(Slot(family, key), name, {"fix": name}, table, dict.fromkeys((table, *depends), version))


def store(*entries: Entry, versions: dict = OLD, rules: str | None = "r1") -> Memory:
    memory = Memory(versions=versions, rules_version=rules)
    for each in entries:
        memory = memory.with_entry(each, append=True)
    return memory


def reload(table: str, *changed: str, old: str = "1", new: str = "2", affected: Iterable[str] = ()) -> dict:
    return {table: ReloadReport(Diff(table, old, new, changed=changed), tuple(affected))}


def told(*changes: dict, versions: dict = NEW, **kwargs: object) -> Message:
    """A success that shows new versions, with the reload reports given."""
    reloads = {table: report for change in changes for table, report in change.items()}
    stale = tuple(name for name in versions if versions[name] != OLD[name])
    return Message(Response(ok=True, table_versions=versions, rules_version="r1"), stale, reloads, **kwargs)  # type: ignore[arg-type]


def failed(family: str, *vector: str, rules: str = "r1", table: str = "tokens") -> Message:
    """A failure whose suggestion of ``family`` carries a vector; no table moved."""
    tables = tuple((name, OLD[name]) for name in vector) or None
    fix = Suggestion(family, {"fix": "new"}, CacheHint.CACHEABLE, table, tables)
    return Message(Response(ok=False, error="no", suggestions=(fix,), table_versions=OLD, rules_version=rules))


def quiet(rules: str = "r1", *changes: RuleChange) -> Message:
    """A success in a world whose tables did not move."""
    return Message(Response(ok=True, table_versions=OLD, rules_version=rules), rule_changes=changes)


def observe(arm: str, memory: Memory, message: Message) -> Step:
    return get_arm(arm).observe(memory, message)


def values(entries: Iterable[Entry]) -> list[str]:
    return [each.value for each in entries]


def stamps(memory: Memory) -> dict[str, dict[str, str]]:
    return {each.value: dict(each.stamps) for each in memory}


CODE, SCALE = entry("ADD:growth", "codes"), entry("ADD:scale", "codes")
TOKEN, PROMO = entry("FUND:visa", "tokens"), entry("PROMO:edu", "map")


# The table stamp moves ----------------------------------------------------------------------------------------------


def test_a0_keeps_nothing() -> None:
    arm = get_arm("A0")
    fix = Suggestion("ADD", {"code": "S"}, CacheHint.CACHEABLE, "codes")
    memory, stored = arm.commit(store(), CODE.slot, fix)
    assert (len(memory), stored) == (0, None)


def test_a1_ignores_the_stamp_and_appends() -> None:
    step = observe("A1", store(CODE, TOKEN), told(reload("codes", "growth")))
    assert step[1:] == ((), (), ())
    fix = Suggestion("ADD", {"code": "W"}, CacheHint.CACHEABLE, "codes")
    memory, stored = get_arm("A1").commit(step.memory, CODE.slot, fix)
    assert values(memory.lookup(CODE.slot)) == ["ADD:growth", '{"code":"W"}']
    assert stored is not None
    assert stored.stamps == {"codes": "2"}


@pytest.mark.parametrize("arm", ["A2", *DIFFING])
def test_every_other_arm_replaces(arm: str) -> None:
    fix = Suggestion("ADD", {"code": "W"}, CacheHint.CACHEABLE, "codes")
    memory, _ = get_arm(arm).commit(store(CODE), CODE.slot, fix)
    assert values(memory) == ['{"code":"W"}']


def test_a2_evicts_every_entry_of_the_table() -> None:
    step = observe("A2", store(CODE, TOKEN, SCALE), told(reload("codes", "growth")))
    assert values(step.evicted) == ["ADD:growth", "ADD:scale"]
    assert step.restamps == ()
    assert step.alerts == ("table codes",)
    assert stamps(step.memory) == {"FUND:visa": {"tokens": "1"}}


@pytest.mark.parametrize("arm", DIFFING)
def test_a_diff_evicts_its_rows_and_restamps_the_rest_of_the_table(arm: str) -> None:
    step = observe(arm, store(CODE, TOKEN, SCALE), told(reload("codes", "growth")))
    assert values(step.evicted) == ["ADD:growth"]
    assert [values(each) for each in step.restamps] == [["ADD:scale"]]
    assert step.alerts == ("table codes",)
    assert stamps(step.memory) == {"FUND:visa": {"tokens": "1"}, "ADD:scale": {"codes": "2"}}


@pytest.mark.parametrize("arm", DIFFING)
def test_a_benign_bump_evicts_nothing_and_is_one_restamp_operation(arm: str) -> None:
    step = observe(arm, store(CODE, SCALE, TOKEN), told(reload("codes")))
    assert step.evicted == ()
    assert [values(each) for each in step.restamps] == [["ADD:growth", "ADD:scale"]]


@pytest.mark.parametrize("arm", DIFFING)
@pytest.mark.parametrize("report", [reload("codes", old="2", new="3"), {}], ids=["a later diff", "no diff"])
def test_a_gap_in_the_chain_of_diffs_evicts(arm: str, report: dict) -> None:
    current = entry("ADD:late", "codes", version="2")
    step = observe(arm, store(CODE, current, TOKEN), told(report, versions={**OLD, "codes": "3"}))
    lost = ["ADD:growth"] if report else ["ADD:growth", "ADD:late"]
    assert values(step.evicted) == lost
    assert "FUND:visa" in stamps(step.memory)


@pytest.mark.parametrize("arm", DIFFING)
def test_added_and_removed_rows_are_in_the_diff_too(arm: str) -> None:
    report = ReloadReport(Diff("codes", "1", "2", added=("scale",), removed=("growth",)), ())
    step = observe(arm, store(CODE, SCALE), told({"codes": report}))
    assert values(step.evicted) == ["ADD:growth", "ADD:scale"]


@pytest.mark.parametrize("arm", DIFFING)
def test_the_same_key_in_another_table_is_another_row(arm: str) -> None:
    step = observe(arm, store(entry("PROMO:growth", "map")), told(reload("codes", "growth")))
    assert step.evicted == step.restamps == ()


def test_an_entry_with_a_vector_is_evicted_by_its_key_in_any_of_its_tables() -> None:
    both = entry("FUND:visa", "tokens", "codes")
    step = observe("A2DC", store(both), told(reload("codes", "visa")))
    assert values(step.evicted) == ["FUND:visa"]
    kept = observe("A2DC", store(both), told(reload("codes", "other")))
    assert stamps(kept.memory) == {"FUND:visa": {"tokens": "1", "codes": "2"}}


def test_a2dc_notifies_the_entries_that_depended_on_an_evicted_row_and_so_on() -> None:
    source = entry("FUND:k", "tokens", "codes")
    consumer, next_in_line = entry("MID:k", "map", "tokens"), entry("END:k", "far", "map")
    of_another_row, of_no_evicted_table = entry("MID:other", "map", "tokens"), entry("ALONE:k", "lone")
    held = store(of_no_evicted_table, next_in_line, consumer, source, of_another_row)
    message = told(reload("codes", "k"))
    assert values(observe("A2DC", held, message).evicted) == ["FUND:k", "MID:k", "END:k"]
    assert values(observe("A2D", held, message).evicted) == ["FUND:k"]


def test_a2dg_evicts_what_the_server_reports_downstream() -> None:
    held = store(TOKEN, PROMO, SCALE)
    message = told(reload("codes", "growth", affected=["tokens:visa", "map:visa", "tokens:edu"]))
    step = observe("A2DG", held, message)
    assert values(step.evicted) == ["FUND:visa"]  # by the table and key of its node, never by either alone
    assert [values(each) for each in step.restamps] == [["ADD:scale"]]
    assert observe("A2DC", held, message).evicted == ()
    assert observe("A2D", held, message).evicted == ()


@pytest.mark.parametrize("arm", DIFFING)
def test_two_tables_that_drift_together_are_two_alerts_and_two_operations(arm: str) -> None:
    message = told(reload("codes"), reload("map"), versions={**NEW, "map": "2"})
    step = observe(arm, store(CODE, PROMO), message)
    assert step.alerts == ("table codes", "table map")
    assert [values(each) for each in step.restamps] == [["ADD:growth"], ["PROMO:edu"]]


# The rules move -----------------------------------------------------------------------------------------------------

FUND = entry("FUND:visa", "tokens", "map")
FUND2 = entry("FUND:master", "tokens", "map")
ADDED = RuleChange(Rule("tokens", "codes", "settles_under"), True, "r2")
REMOVED = RuleChange(Rule("map", "tokens", "replaced_by"), False, "r2")


@pytest.mark.parametrize("arm", BLIND_TO_RULES)
def test_arms_without_a_rule_channel_ignore_rule_drift(arm: str) -> None:
    for message in (quiet("r2", REMOVED), quiet("r2", ADDED), failed("FUND", "tokens", rules="r2")):
        step = observe(arm, store(FUND, CODE), message)
        assert step[1:] == ((), (), ())
        assert values(step.memory) == ["FUND:visa", "ADD:growth"]


@pytest.mark.parametrize("arm", ["A2DC", "A2DG", "A2DRC"])
def test_vectors_evict_a_lost_dependency_in_the_suggestions_family_only(arm: str) -> None:
    other = entry("PROMO:edu", "map", "tokens")
    step = observe(arm, store(FUND, FUND2, other), failed("FUND", "tokens"))
    assert values(step.evicted) == ["FUND:visa", "FUND:master"]
    assert values(step.memory) == ["PROMO:edu"]


@pytest.mark.parametrize("arm", ["A2DC", "A2DG", "A2DRC"])
def test_vectors_restamp_a_widened_dependency_in_one_operation(arm: str) -> None:
    step = observe(arm, store(FUND, FUND2, CODE), failed("FUND", "map", "tokens", "codes"))
    assert step.evicted == ()
    assert [values(each) for each in step.restamps] == [["FUND:visa", "FUND:master"]]
    wide = {"map": "1", "tokens": "1", "codes": "1"}
    assert stamps(step.memory) == {"FUND:visa": wide, "FUND:master": wide, "ADD:growth": {"codes": "1"}}


@pytest.mark.parametrize("arm", ["A2DC", "A2DG", "A2DRC"])
def test_a_dependency_exchanged_for_another_is_a_lost_one(arm: str) -> None:
    step = observe(arm, store(FUND), failed("FUND", "codes", "tokens"))
    assert values(step.evicted) == ["FUND:visa"]
    assert step.restamps == ()


@pytest.mark.parametrize("arm", ["A2DC", "A2DG", "A2DRC"])
def test_vectors_are_compared_on_failed_responses_only(arm: str) -> None:
    step = observe(arm, store(FUND), quiet("r2"))
    assert (step.evicted, step.restamps) == ((), ())
    unchanged = observe(arm, store(FUND), failed("FUND", "map", "tokens"))
    assert (unchanged.evicted, unchanged.restamps, unchanged.alerts) == ((), (), ())
    without_vector = observe(arm, store(FUND), failed("FUND"))
    assert (without_vector.evicted, without_vector.restamps) == ((), ())


def test_lazy_vectors_alert_when_a_vector_disagrees_and_not_by_the_stamp() -> None:
    for arm in ("A2DC", "A2DG"):
        assert observe(arm, store(FUND), quiet("r2")).alerts == ()
        assert observe(arm, store(FUND), failed("FUND", "tokens", rules="r2")).alerts == ("rules",)


def test_stamp_and_vectors_alert_at_once_and_dispose_at_the_next_failure() -> None:
    noticed = observe("A2DRC", store(FUND), quiet("r2"))
    assert (noticed.alerts, noticed.evicted, noticed.restamps) == (("rules",), (), ())
    later = observe("A2DRC", noticed.memory, failed("FUND", "tokens", rules="r2"))
    assert (later.alerts, values(later.evicted)) == ((), ["FUND:visa"])


def test_stamp_only_clears_everything_once_on_any_response() -> None:
    for message in (quiet("r2"), failed("FUND", "map", "tokens", rules="r2")):
        step = observe("A2DR", store(FUND, CODE), message)
        assert values(step.evicted) == ["FUND:visa", "ADD:growth"]
        assert (len(step.memory), step.alerts, step.restamps) == (0, ("rules",), ())
        assert observe("A2DR", step.memory, message).alerts == ()


@pytest.mark.parametrize("arm", ["A2DR", "A2DRC"])
def test_the_first_fingerprint_seen_is_no_change(arm: str) -> None:
    step = observe(arm, store(FUND, rules=None), quiet("r2"))
    assert (step.evicted, step.alerts) == ((), ())
    assert step.memory.rules_version == "r2"


def test_the_oracle_evicts_what_was_derived_along_a_removed_edge() -> None:
    only_one_end = entry("PROMO:edu", "map")
    step = observe("A2DO", store(FUND, only_one_end, CODE), quiet("r2", REMOVED))
    assert values(step.evicted) == ["FUND:visa"]
    assert (step.restamps, step.alerts) == ((), ("rules",))


def test_the_oracle_evicts_the_to_side_of_an_added_edge_and_restamps_its_from_side() -> None:
    # The sides are the tables that fixes are read from; merely depending on one is not being of that side.
    on_to, on_from = entry("PROMO:edu", "map", "codes"), entry("PROMO:gov", "map", "tokens")
    step = observe("A2DO", store(FUND, CODE, on_to, on_from), quiet("r2", ADDED))
    assert values(step.evicted) == ["ADD:growth"]
    assert [values(each) for each in step.restamps] == [["FUND:visa"]]
    assert stamps(step.memory) == {
        "FUND:visa": {"tokens": "1", "map": "1", "codes": "1"},
        "PROMO:edu": {"map": "1", "codes": "1"},
        "PROMO:gov": {"map": "1", "tokens": "1"},
    }


def test_the_oracle_needs_no_stamp_and_the_stamp_tells_it_nothing() -> None:
    assert observe("A2DO", store(FUND), quiet("r2"))[1:] == ((), (), ())
    assert values(observe("A2DO", store(FUND), quiet("r1", REMOVED)).evicted) == ["FUND:visa"]


def test_tables_are_squared_before_rules() -> None:
    wide = (("map", "1"), ("tokens", "1"), ("codes", "2"))
    fix = Suggestion("FUND", {"fix": "new"}, CacheHint.CACHEABLE, "tokens", wide)
    response = Response(ok=False, error="no", suggestions=(fix,), table_versions=NEW, rules_version="r1")
    old = entry("FUND:growth", "tokens", "codes")
    step = observe("A2DC", store(old, FUND), Message(response, ("codes",), reload("codes", "growth")))
    assert values(step.evicted) == ["FUND:growth"]
    assert stamps(step.memory) == {"FUND:visa": {"map": "1", "tokens": "1", "codes": "2"}}
    assert step.alerts == ("table codes", "rules")
