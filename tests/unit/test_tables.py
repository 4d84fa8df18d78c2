"""Reference tables: what a reload does to rows, version and diff."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from invsim.world.tables import Table, next_version

scalars = st.one_of(st.text(max_size=3), st.integers(-3, 3), st.booleans())
rows = st.dictionaries(
    st.sampled_from("abcde"), st.dictionaries(st.sampled_from("xy"), scalars, max_size=2), max_size=5
)

CODES = Table("codes", {"growth": {"code": "S25"}, "scale": {"code": "B26"}})


def test_a_reload_names_what_was_added_removed_and_changed() -> None:
    new, diff = CODES.reloaded({"growth": {"code": "W26"}, "reseller": {"code": "A26"}})
    assert (diff.added, diff.removed, diff.changed) == (("reseller",), ("scale",), ("growth",))
    assert diff.keys == ("reseller", "scale", "growth")
    assert (diff.table, diff.old_version, diff.new_version) == ("codes", "1.0.0", "1.0.1")
    assert new.version == "1.0.1"
    assert new.rows["growth"]["code"] == "W26"


def test_a_benign_republish_bumps_the_version_with_an_empty_diff() -> None:
    new, diff = CODES.reloaded({key: dict(row) for key, row in CODES.rows.items()})
    assert diff.keys == ()
    assert (diff.old_version, diff.new_version) == ("1.0.0", "1.0.1")
    assert new.rows == CODES.rows


def test_rows_in_another_order_are_the_same_content() -> None:
    _, diff = CODES.reloaded(dict(reversed(CODES.rows.items())))
    assert diff.keys == ()


def test_a_key_that_moves_to_another_row_value_is_changed_on_both_sides() -> None:
    _, diff = CODES.reloaded({"growth": CODES.rows["scale"], "scale": CODES.rows["growth"]})
    assert diff.changed == ("growth", "scale")


def test_an_emptied_table_has_removed_every_key() -> None:
    assert CODES.reloaded({})[1].removed == ("growth", "scale")


def test_a_reload_may_name_its_version() -> None:
    new, diff = CODES.reloaded(CODES.rows, "2026-07-01")
    assert new.version == diff.new_version == "2026-07-01"


def test_a_reload_leaves_the_old_table_as_it_was() -> None:
    CODES.reloaded({})
    assert CODES.version == "1.0.0"
    assert set(CODES.rows) == {"growth", "scale"}


def test_a_table_cannot_be_written_to() -> None:
    with pytest.raises(TypeError):
        CODES.rows["growth"] = {"code": "X"}  # type: ignore[index]
    with pytest.raises(TypeError):
        CODES.rows["growth"]["code"] = "X"  # type: ignore[index]


def test_a_table_keeps_no_hold_on_the_mappings_it_was_built_from() -> None:
    given_rows = {"growth": {"code": "S25"}}
    table = Table("codes", given_rows)
    given_rows["growth"]["code"] = "changed behind its back"
    given_rows["extra"] = {"code": "X"}
    assert {key: dict(row) for key, row in table.rows.items()} == {"growth": {"code": "S25"}}


@pytest.mark.parametrize(
    ("version", "following"),
    [
        ("1.0.0", "1.0.1"),
        ("1.0.9", "1.0.10"),
        ("7", "8"),
        ("2026-07-01", "2026-07-01.1"),
        ("2026-07-01.1", "2026-07-01.2"),
        ("v2", "v2.1"),
        ("1.0.x", "1.0.x.1"),
        ("1.", "1..1"),
    ],
)
def test_the_next_version_raises_the_last_number_or_appends_one(version: str, following: str) -> None:
    assert next_version(version) == following


@given(st.text(max_size=8), st.integers(1, 12))
def test_bumped_versions_never_repeat_whatever_the_first_one_is(first: str, bumps: int) -> None:
    seen = [first]
    for _ in range(bumps):
        seen.append(next_version(seen[-1]))
    assert len(set(seen)) == len(seen)


@given(rows, rows)
def test_a_diff_partitions_exactly_the_keys_whose_rows_differ(before: dict, after: dict) -> None:
    _, diff = Table("t", before).reloaded(after)
    # Unlike in Python, 1 and true are two values: a row differs when its text does.
    old, new = ({key: repr(sorted(row.items())) for key, row in rows.items()} for rows in (before, after))
    differing = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    assert set(diff.keys) == differing
    assert len(diff.keys) == len(differing)
    assert set(diff.added) == after.keys() - before.keys()
    assert set(diff.removed) == before.keys() - after.keys()


@given(st.lists(rows, max_size=8))
def test_versions_never_repeat_over_a_sequence_of_reloads(contents: list) -> None:
    table = Table("t", {})
    versions = [table.version]
    for content in contents:
        table, diff = table.reloaded(content)
        assert diff.old_version == versions[-1]
        versions.append(table.version)
    assert len(set(versions)) == len(contents) + 1
