"""The store: what is kept under which identity, and that no step changes one in place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from invsim.client.memory import Entry, Memory, Slot, Step, entry_from
from invsim.world import Suggestion
from invsim.world.wire import CacheHint, canonical

SLOT = Slot("ADD_CODE", "growth")
OTHER = Slot("ADD_CODE", "scale")
VERSIONS = {"codes": "1", "eligible": "2", "unrelated": "3"}


def entry(slot: Slot, code: str, **stamps: str) -> Entry:
    parameters = {"code": code}
    return Entry(slot, canonical(parameters), parameters, "codes", stamps or {"codes": "1"})


def fix(code: str, **kwargs: object) -> Suggestion:
    return Suggestion("ADD_CODE", {"code": code}, CacheHint.CACHEABLE, "codes", **kwargs)  # type: ignore[arg-type]


def codes(memory: Memory, slot: Slot = SLOT) -> list[object]:
    return [each.parameters["code"] for each in memory.lookup(slot)]


# What a store keeps -------------------------------------------------------------------------------------------------


def test_a_current_store_replaces_the_value_of_a_key() -> None:
    memory = Memory().with_entry(entry(SLOT, "S25"), append=False).with_entry(entry(SLOT, "W26"), append=False)
    assert codes(memory) == ["W26"]


def test_an_append_store_keeps_both_oldest_first() -> None:
    memory = Memory().with_entry(entry(SLOT, "S25"), append=True).with_entry(entry(SLOT, "W26"), append=True)
    assert codes(memory) == ["S25", "W26"]
    assert len(memory) == 2


@pytest.mark.parametrize("append", [True, False])
def test_an_identical_entry_is_kept_once_with_the_newer_stamps(*, append: bool) -> None:
    memory = Memory().with_entry(entry(SLOT, "S25", codes="1"), append=append)
    memory = memory.with_entry(entry(SLOT, "S25", codes="2"), append=append)
    (kept,) = memory
    assert kept.stamps == {"codes": "2"}


def test_identity_is_family_key_and_value() -> None:
    family = Slot("USE_CODE", "growth")
    memory = Memory()
    for each in (entry(SLOT, "S25"), entry(OTHER, "S25"), entry(family, "S25"), entry(SLOT, "W26")):
        memory = memory.with_entry(each, append=True)
    assert len(memory) == 4
    assert [codes(memory, slot) for slot in (SLOT, OTHER, family)] == [["S25", "W26"], ["S25"], ["S25"]]


def test_replacing_one_key_leaves_the_others() -> None:
    memory = Memory().with_entry(entry(SLOT, "S25"), append=False).with_entry(entry(OTHER, "B26"), append=False)
    memory = memory.with_entry(entry(SLOT, "W26"), append=False)
    assert (codes(memory), codes(memory, OTHER)) == (["W26"], ["B26"])


@given(st.lists(st.tuples(st.sampled_from([SLOT, OTHER]), st.sampled_from("ABC")), max_size=10), st.booleans())
def test_a_store_is_the_last_value_or_every_value_by_last_mention(added: list, append: bool) -> None:
    memory = Memory()
    expected: dict[Slot, list[str]] = {}
    for slot, code in added:
        memory = memory.with_entry(entry(slot, code), append=append)
        before = [each for each in expected.get(slot, []) if each != code]
        expected[slot] = [*before, code] if append else [code]
    assert {slot: codes(memory, slot) for slot in memory.slots} == expected
    assert len(memory) == sum(map(len, expected.values())) == len(list(memory))


def test_an_unknown_slot_recalls_nothing() -> None:
    assert Memory().lookup(SLOT) == ()
    assert len(Memory()) == 0
    assert list(Memory()) == []


# No step changes a store in place -----------------------------------------------------------------------------------


def test_every_operation_returns_another_store() -> None:
    first = Memory({SLOT: (entry(SLOT, "S25"),)}, VERSIONS, "r1")
    first.with_entry(entry(SLOT, "W26"), append=True)
    first.having_seen({"codes": "9"}, "r2")
    first.mapped(lambda _: None)
    assert codes(first) == ["S25"]
    assert (first.versions, first.rules_version) == (VERSIONS, "r1")


def test_mapping_drops_replaces_and_forgets_emptied_slots() -> None:
    one, two, three = entry(SLOT, "A"), entry(SLOT, "B"), entry(OTHER, "C")
    memory = Memory({SLOT: (one, two), OTHER: (three,)}, VERSIONS, "r1")
    mapped = memory.mapped(lambda each: each.restamped({"codes": "2"}) if each is one else None)
    assert list(mapped.slots) == [SLOT]
    assert [(each.value, each.stamps) for each in mapped] == [(one.value, {"codes": "2"})]
    assert (mapped.versions, mapped.rules_version) == (VERSIONS, "r1")


def test_having_seen_squares_the_store_and_keeps_its_entries() -> None:
    kept = entry(SLOT, "A")
    memory = Memory({SLOT: (kept,)}, {"codes": "1"}, "r1")
    seen = memory.having_seen({"codes": "2"}, "r2")
    assert (list(seen), seen.versions, seen.rules_version) == ([kept], {"codes": "2"}, "r2")


def test_a_response_without_versions_teaches_nothing() -> None:
    seen = Memory({}, {"codes": "1"}, "r1").having_seen(None, None)
    assert seen.versions == {"codes": "1"}
    assert seen.rules_version == "r1"


def test_restamping_brings_stamps_up_to_date_and_may_widen_them() -> None:
    old = entry(SLOT, "A", codes="0")
    assert old.restamped(VERSIONS).stamps == {"codes": "1"}
    assert old.restamped(VERSIONS, ["codes", "eligible"]).stamps == {"codes": "1", "eligible": "2"}
    assert old.stamps == {"codes": "0"}


def test_two_steps_in_a_row_are_one() -> None:
    a, b, c = (entry(SLOT, each) for each in "ABC")
    last = Memory()
    joined = Step(Memory(), (a,), ((b,),), ("table t",)).then(Step(last, (c,), (), ("rules",)))
    assert joined == Step(last, (a, c), ((b,),), ("table t", "rules"))


# From a suggestion to an entry --------------------------------------------------------------------------------------


def test_an_entry_is_stamped_with_the_versions_that_came_with_the_success() -> None:
    made = entry_from(SLOT, fix("S25"), VERSIONS, vectors=False)
    assert made is not None
    assert (made.slot, made.value, made.table, made.stamps) == (SLOT, '{"code":"S25"}', "codes", {"codes": "1"})


def test_a_vector_takes_precedence_over_the_table_where_the_arm_reads_it() -> None:
    sent = fix("S25", tables=(("codes", "0"), ("eligible", "0")))
    reads = entry_from(SLOT, sent, VERSIONS, vectors=True)
    blind = entry_from(SLOT, sent, VERSIONS, vectors=False)
    assert reads is not None
    assert blind is not None
    assert reads.stamps == {"codes": "1", "eligible": "2"}
    assert blind.stamps == {"codes": "1"}


def test_without_a_vector_on_the_wire_the_table_serves() -> None:
    made = entry_from(SLOT, fix("S25"), VERSIONS, vectors=True)
    assert made is not None
    assert made.stamps == {"codes": "1"}


@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("table", [None, "codes"])
def test_a_computed_suggestion_makes_no_entry_whatever_it_names(table: str | None, *, vectors: bool) -> None:
    computed = Suggestion("ROUND_AMOUNT", {"amount": 1.0}, CacheHint.RECOMPUTE, table)
    assert entry_from(SLOT, computed, VERSIONS, vectors=vectors) is None
