"""Tallies: the columns count what the objects count, whatever the order of the rows, and files add up."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from invsim.errors import InputError, UnknownNameError
from invsim.traces import columnar, columns, read
from invsim.traces.columnar import tally_parquet
from invsim.traces.read import FileReport, open_reader, read_calls, read_tally
from invsim.traces.reader import Faults
from invsim.traces.schema import Call, Fix, Op
from invsim.traces.tally import Size, Tally, tally, total
from invsim.traces.writing import write_calls

VALUES = st.sampled_from([0, 1, 1.0, "1", True, None, "a", [1], {"b": 1}])
OPS = st.builds(
    Op,
    op=st.sampled_from(["add", "replace", "remove"]),
    path=st.sampled_from(["/a", "/b", "/c/b", "/c/-", "", "no"]),
    value=VALUES,
    when=st.none() | st.just("x == 1"),
)
REQUESTS = st.none() | st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)
FIXES = st.builds(
    Fix,
    fix_id=st.sampled_from("fg"),
    ops=st.lists(OPS, max_size=2).map(tuple),
    valid=st.sampled_from([None, True, False]),
)
CALLS = st.builds(
    Call,
    episode_id=st.sampled_from([f"e{at}" for at in range(6)]),
    task_id=st.sampled_from(["", "t", "u"]),
    trial=st.sampled_from([None, 0, 1]),
    model=st.sampled_from([None, "m", "n"]),
    arm=st.sampled_from([None, None, "A2D"]),
    constraint=st.sampled_from([None, "funding"]),
    step=st.integers(0, 4),
    seq=st.integers(0, 2),
    order_source=st.sampled_from(["index"] * 5 + ["flattened"]),
    tool=st.sampled_from(["pay", "pay", "look"]),
    request=REQUESTS,
    parse_status=st.sampled_from(["ok"] * 6 + ["invalid", "truncated", "double_encoded"]),
    outcome=st.sampled_from(["error"] * 6 + ["ok", "ok", "denied", "timeout", "not_executed", "missing"]),
    finish_reason=st.sampled_from([None] * 5 + ["stop", "refusal", "content_filter", "length"]),
    hint=st.lists(OPS, max_size=2).map(tuple),
    injected=st.lists(FIXES, max_size=2).map(tuple),
    warnings=st.sampled_from(
        [()] * 6 + [("exhausted",), ("torn",), ("log-ends: 5 messages", "odd"), ("refused-next",)]
    ),
)


def assert_same(left: tuple[Tally, Size], right: tuple[Tally, Size]) -> None:
    assert left[1] == right[1]
    assert_frame_equal(left[0].trials, right[0].trials)
    assert_frame_equal(left[0].episodes, right[0].episodes)
    assert_frame_equal(left[0].calls, right[0].calls)


def by_columns(path: Path, calls: Iterable[Call]) -> tuple[Tally, Size]:
    write_calls(path, calls)
    faults = Faults("x")
    found = tally_parquet(path, faults)
    assert faults.found == []
    return found


@given(calls=st.lists(CALLS, max_size=30), batch=st.integers(1, 12), gathered=st.integers(1, 20))
def test_columns_count_what_objects_count(
    calls: list[Call], batch: int, gathered: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Episodes stand scattered over batches, and batches are cut anywhere."""
    path = tmp_path_factory.mktemp("t") / "x.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "BATCH", batch)
        patch.setattr(columnar, "GATHERED", gathered)
        assert_same(tally(calls), by_columns(path, calls))


@given(calls=st.lists(CALLS, max_size=30), batch=st.integers(1, 12))
def test_columns_count_what_objects_count_where_episodes_stand_together(
    calls: list[Call], batch: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    calls.sort(key=lambda call: call.episode_id)
    path = tmp_path_factory.mktemp("t") / "x.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "BATCH", batch)
        assert_same(tally(calls), by_columns(path, calls))
