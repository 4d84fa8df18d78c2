"""What holds of every arm, whatever the store and the message; and the register of arms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from invsim.client.arms import Arm, Message, arm_names, get_arm, ignore, register_arm
from invsim.client.memory import Entry, Memory, Slot, Step
from invsim.errors import InputError, UnknownNameError
from invsim.world import Diff, Level, ReloadReport, Response, Rule, Suggestion
from invsim.world.server import RuleChange
from invsim.world.wire import CacheHint

TABLES = ("t", "u", "v")
FAMILIES = ("F", "G")
KEYS = ("k", "l")
ARMS = ("A0", "A1", "A2", "A2D", "A2DC", "A2DG", "A2DR", "A2DRC", "A2DO")
NINE = [get_arm(name) for name in ARMS]
subsets = st.sets(st.sampled_from(TABLES))


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    slot = Slot(draw(st.sampled_from(FAMILIES)), draw(st.sampled_from(KEYS)))
    table = draw(st.sampled_from(TABLES))
    vector = sorted({table} | draw(subsets))
    return Entry(slot, draw(st.sampled_from("12")), {"fix": slot.key}, table, dict.fromkeys(vector, "1"))


@st.composite
def stores(draw: st.DrawFn) -> Memory:
    memory = Memory(versions=dict.fromkeys(TABLES, "1"), rules_version=draw(st.sampled_from([None, "r1"])))
    for each in draw(st.lists(entries(), max_size=6)):
        memory = memory.with_entry(each, append=draw(st.booleans()))
    return memory


@st.composite
def messages(draw: st.DrawFn) -> Message:
    """A response to a store last squared at version 1 of everything, and all that an arm may have asked for."""
    stale = tuple(sorted(draw(subsets)))
    versions = {name: "3" if name in stale else "1" for name in TABLES}
    nodes = st.tuples(st.sampled_from(TABLES), st.sampled_from(KEYS)).map(":".join)
    reloads = {
        name: ReloadReport(
            Diff(name, draw(st.sampled_from("12")), "3", changed=tuple(draw(st.sets(st.sampled_from(KEYS))))),
            tuple(draw(st.sets(nodes, max_size=2))),
        )
        for name in stale
        if draw(st.booleans())
    }
    suggestions = []
    for family in draw(st.sets(st.sampled_from(FAMILIES))):
        table = draw(st.sampled_from(TABLES))
        vector = tuple((name, versions[name]) for name in sorted({table} | draw(subsets)))
        tables = vector if draw(st.booleans()) else None
        suggestions.append(Suggestion(family, {"fix": "new"}, CacheHint.CACHEABLE, table, tables))
    rules = st.builds(Rule, st.sampled_from(TABLES), st.sampled_from(TABLES), st.just("r"))
    changes = draw(st.lists(st.builds(RuleChange, rules, st.booleans(), st.just("r2")), max_size=2))
    return Message(
        Response(
            ok=not suggestions,
            error="no" if suggestions else "",
            suggestions=tuple(suggestions),
            table_versions=versions,
            rules_version=draw(st.sampled_from(["r1", "r2"])),
        ),
        stale,
        reloads,
        tuple(changes),
    )


def plain(entry: Entry) -> tuple:
    return entry.slot, entry.value, dict(entry.parameters), entry.table, dict(entry.stamps)


def snapshot(memory: Memory) -> tuple:
    return [(slot, [plain(each) for each in kept]) for slot, kept in memory.slots.items()], (
        dict(memory.versions),
        memory.rules_version,
    )


def flat(step: Step) -> tuple:
    return (
        snapshot(step.memory),
        [plain(each) for each in step.evicted],
        [[plain(each) for each in operation] for operation in step.restamps],
        step.alerts,
    )


def names(held: Memory | tuple[Entry, ...]) -> list[tuple[Slot, str]]:
    return sorted((each.slot, each.value) for each in held)


@given(memory=stores(), message=messages())
def test_the_same_store_and_message_give_the_same_step_and_the_store_is_untouched(
    memory: Memory, message: Message
) -> None:
    before = snapshot(memory)
    for arm in NINE:
        first = arm.observe(memory, message)
        assert flat(arm.observe(memory, message)) == flat(first), arm.name
        assert snapshot(memory) == before, arm.name


@given(memory=stores(), message=messages())
def test_every_entry_is_either_kept_or_evicted_once(memory: Memory, message: Message) -> None:
    for arm in NINE:
        step = arm.observe(memory, message)
        assert sorted(names(step.memory) + names(step.evicted)) == names(memory), arm.name
        assert all(set(names(each)) <= set(names(memory)) for each in step.restamps), arm.name


@given(memory=stores(), message=messages())
def test_a_step_leaves_the_store_squared_with_the_response(memory: Memory, message: Message) -> None:
    for arm in NINE:
        seen = arm.observe(memory, message).memory
        assert seen.versions == message.response.table_versions
        assert seen.rules_version == message.response.rules_version


@given(memory=stores(), message=messages())
def test_an_arm_that_checks_versions_keeps_only_entries_that_are_current(memory: Memory, message: Message) -> None:
    versions = message.response.table_versions or {}
    for arm in NINE:
        for entry in arm.observe(memory, message).memory if arm.checks_versions else ():
            assert all(versions[table] == version for table, version in entry.stamps.items()), arm.name
            assert entry.table in entry.stamps, arm.name


@given(memory=stores(), message=messages())
def test_arms_without_invalidation_move_nothing(memory: Memory, message: Message) -> None:
    for name in ("A0", "A1"):
        assert get_arm(name).observe(memory, message)[1:] == ((), (), ())


@given(memory=stores(), message=messages())
def test_row_granularity_never_evicts_what_table_granularity_keeps(memory: Memory, message: Message) -> None:
    by_row, by_table = (get_arm(name).observe(memory, message) for name in ("A2D", "A2"))
    assert set(names(by_row.evicted)) <= set(names(by_table.evicted))


@given(memory=stores(), slot=st.builds(Slot, st.sampled_from(FAMILIES), st.sampled_from(KEYS)))
def test_a_commit_is_pure_and_files_what_it_returns(memory: Memory, slot: Slot) -> None:
    before = snapshot(memory)
    fix = Suggestion(slot.family, {"fix": "new"}, CacheHint.CACHEABLE, "t", (("t", "1"), ("u", "1")))
    for arm in NINE:
        after, stored = arm.commit(memory, slot, fix)
        assert snapshot(arm.commit(memory, slot, fix)[0]) == snapshot(after)
        assert snapshot(memory) == before
        assert (stored is None) == (arm.name == "A0")
        if stored is not None:
            assert after.lookup(slot)[-1] is stored
            assert set(stored.stamps) == ({"t", "u"} if arm.vectors else {"t"})
            assert len(after.lookup(slot)) == (len(memory.lookup(slot)) + 1 if arm.append else 1)


# The register -------------------------------------------------------------------------------------------------------


def test_the_nine_arms_come_first_and_say_which_level_they_need() -> None:
    assert arm_names()[:9] == ARMS
    assert [get_arm(name).level.name for name in ARMS] == ["L0", "L1", "L1", "L1", "L4", "L5", "L6", "L6", "L4"]
    assert [name for name in ARMS if get_arm(name).append] == ["A1"]
    assert [name for name in ARMS if not get_arm(name).stores] == ["A0"]


def test_an_unknown_arm_names_the_nearest_and_a_name_is_taken_once() -> None:
    with pytest.raises(UnknownNameError, match=r"^m\.toml, arms: unknown arm 'A2DX': did you mean"):
        get_arm("A2DX", where="m.toml, arms")
    with pytest.raises(InputError, match=r"registered already \(got 'A2D'\)"):
        register_arm(get_arm("A2D"))


def test_an_arm_of_ones_own_is_a_function_and_a_name() -> None:
    def evict_all(memory: Memory, message: Message) -> Step:
        return Step(memory.mapped(lambda _: None), tuple(memory), alerts=("panic",)) if message.stale else Step(memory)

    own = Arm("PANIC", "clears everything on any bump", on_tables=evict_all, on_rules=ignore, level=Level.L1)
    entry = Entry(Slot("F", "k"), "1", {"fix": "k"}, "t", {"t": "1"})
    memory = Memory().with_entry(entry, append=False)
    step = own.observe(memory, Message(Response(ok=True, table_versions={"t": "2"}), ("t",)))
    assert (step.evicted, step.alerts, len(step.memory)) == ((entry,), ("panic",), 0)
    assert step.memory.versions == {"t": "2"}
