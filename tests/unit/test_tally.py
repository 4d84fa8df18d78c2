"""Tallies: the columns count what the objects count, whatever the order of the rows, and files add up."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from invsim.errors import InputError, UnknownNameError
from invsim.traces import columnar, columns, parquet, read
from invsim.traces.columnar import tally_parquet
from invsim.traces.native import NATIVE
from invsim.traces.ordered import Batch
from invsim.traces.read import SHOWN, open_reader, read_calls, read_tally
from invsim.traces.reader import Faults
from invsim.traces.schema import Call, Fix, Op
from invsim.traces.tally import OF_EPISODES, OF_TRIALS, Size, Tally, tally, total
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
    seed=st.sampled_from([None, None, "7"]),
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
        [()] * 6 + [("exhausted",), ("torn",), ("log-ends: 5 messages", "odd"), ("refused-next",), ("begins-late",)]
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
    found = in_columns(path, faults)
    assert faults.found == []
    return found


def in_columns(path: Path, faults: Faults) -> tuple[Tally, Size]:
    footer = parquet.read_footer(parquet.File.at(path))
    whole = parquet.check_columns(footer, faults)
    assert footer is not None
    assert whole is not None
    return tally_parquet(footer.file, [whole], faults)


@given(calls=st.lists(CALLS, max_size=30), batch=st.integers(1, 12), gathered=st.integers(1, 20))
def test_columns_count_what_objects_count(
    calls: list[Call], batch: int, gathered: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Episodes stand scattered over batches, and batches are cut anywhere."""
    path = tmp_path_factory.mktemp("t") / "x.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "BATCH", batch)
        patch.setattr(columnar, "GATHERED", gathered)
        assert_same(tally(calls), by_columns(path, calls))


@given(calls=st.lists(CALLS, max_size=30), batch=st.integers(1, 12))
def test_columns_count_what_objects_count_where_episodes_stand_together(
    calls: list[Call], batch: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    calls.sort(key=lambda call: call.episode_id)
    path = tmp_path_factory.mktemp("t") / "x.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "BATCH", batch)
        assert_same(tally(calls), by_columns(path, calls))


# Scattered rows ------------------------------------------------------------------------------------------------------

TEN = Op("replace", "/qty", 10)


def error(episode: str, step: int, **fields: Any) -> Call:
    return Call(episode_id=episode, step=step, tool="pay", outcome="error", request={"qty": 50}, hint=(TEN,), **fields)


def success(episode: str, step: int) -> Call:
    return Call(episode_id=episode, step=step, tool="pay", outcome="ok", request={"qty": 10})


def test_an_episode_scattered_over_a_file_is_counted_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its retry stands ten batches after its error, and other episodes between them."""
    monkeypatch.setattr(parquet, "BATCH", 3)
    calls = [error("far", 1), *(error(f"e{at}", 1) for at in range(30)), success("far", 2)]
    (tally_of, size) = by_columns(tmp_path / "x.parquet", calls)
    assert size == Size(episodes=31, calls=32, errors=31, retries=1)
    results = tally_of.trials.group_by("result").agg(pl.col("n").sum())
    assert dict(results.iter_rows()) == {"applied": 1, "gave_up": 30}


@pytest.mark.parametrize(
    "calls",
    [
        [error("a", 1, warnings=("refused-next",)), error("a", 1, seq=1), success("a", 2)],
        [error("a", 1), error("a", 1, seq=1), success("a", 2)],
        [error("a", 1), success("a", 1)],
        [error("a", 1), error("a", 2, warnings=("exhausted",))],
        [error("a", 1, arm="A0"), error("a", 2, arm="A0")],
        [success("a", 1), error("a", 2)],
        [error("a", 3, warnings=("begins-late",)), success("a", 4)],
    ],
)
def test_both_paths_agree_on_what_is_rare_in_random_calls(calls: list[Call], tmp_path: Path) -> None:
    assert_same(tally(calls), by_columns(tmp_path / "x.parquet", calls))


def test_only_what_is_scattered_is_gathered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gathered: list[int] = []
    whole = columnar.count

    def count(rows: Batch, *views: Any, marked: bool) -> tuple[Tally, Size]:
        gathered.append(rows.rows.height)
        return whole(rows, *views, marked=marked)

    monkeypatch.setattr(columnar, "count", count)
    monkeypatch.setattr(columnar, "WORKERS", 1)  # one after the other
    calls = [error("a", 1), error("b", 1), success("a", 2), *(error(f"e{at}", 1) for at in range(5))]
    by_columns(tmp_path / "x.parquet", calls)
    # All are taken for whole, the last run by itself, since a batch could have gone on with it; then those that are
    # whole; then the one that is not.
    assert gathered == [7, 1, 5, 1, 2]
    gathered.clear()
    by_columns(tmp_path / "x.parquet", sorted(calls, key=lambda call: call.episode_id))
    assert gathered == [7, 1]


def test_rows_that_cannot_be_read_are_lost_to_both_paths_alike(tmp_path: Path) -> None:
    calls = [error("a", 1), success("a", 2), error("b", 1), success("b", 2)]
    rows = columns.frame(calls).with_columns(
        request=pl.Series(['{"qty": 50}', "{", '{"qty": 50}', '{"qty": 10}']),
        outcome=pl.Series(["error", "ok", "odd", "ok"]),
    )
    rows.write_parquet(tmp_path / "x.parquet")
    as_objects, as_columns = Faults("x"), Faults("x")
    read_back = list(NATIVE.read(tmp_path / "x.parquet", as_objects))
    assert_same(tally(read_back), in_columns(tmp_path / "x.parquet", as_columns))
    assert as_objects.found == as_columns.found
    assert [(each.place, each.kind) for each in as_columns.found] == [
        ("row 3, outcome", "wrong-value"),
        ("row 2, request", "wrong-value"),
    ]


# Sums ----------------------------------------------------------------------------------------------------------------


def test_tallies_add_up() -> None:
    left, right = tally([error("a", 1), success("a", 2)])[0], tally([error("b", 1)])[0]
    both = tally([error("a", 1, task_id="a"), success("a", 2), error("b", 1, task_id="b")])[0]
    assert_frame_equal((left + right).trials, both.trials)
    assert_frame_equal((left + right).episodes, both.episodes)
    assert (left + left).trials["n"].to_list() == [2]
    assert total([]).trials.is_empty()
    assert left.trials.columns == [*OF_TRIALS, "n"]
    assert left.episodes.columns == [*OF_EPISODES, "n"]
    assert left.trials.schema["n"] == pl.Int64


# Reading -------------------------------------------------------------------------------------------------------------


def test_long_files_are_tallied_by_columns_with_the_same_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.jsonl"
    write_calls(path, [error("far", 1), *(error(f"e{at}", 1) for at in range(8)), success("far", 2)])
    short = read_tally([path])
    monkeypatch.setattr(read, "HELD", 3)
    long = read_tally([path])
    assert_frame_equal(short[0].trials, long[0].trials)
    assert_frame_equal(short[0].episodes, long[0].episodes)
    assert short[1] == long[1]
    assert short[1][0].format == "native"


def test_equal_names_in_two_files_are_two_episodes(tmp_path: Path) -> None:
    for name, call in (("x.jsonl", error("a", 1)), ("y.parquet", success("a", 2))):
        write_calls(tmp_path / name, [call])
    found, reports = read_tally([tmp_path / "x.jsonl", tmp_path / "y.parquet"])
    assert [report.episodes for report in reports] == [1, 1]
    assert found.episodes["n"].sum() == 2
    assert found.trials["result"].to_list() == ["gave_up"]


def test_a_bad_file_does_not_lose_the_good_ones(tmp_path: Path) -> None:
    write_calls(tmp_path / "good.jsonl", [error("a", 1), success("a", 2)])
    (tmp_path / "empty.jsonl").write_bytes(b"")
    (tmp_path / "other.csv").write_text("a,b\n", encoding="utf-8")
    bad = ["missing.jsonl", "empty.jsonl", "other.csv", "."]
    found, reports = read_tally([*(tmp_path / name for name in bad), tmp_path / "good.jsonl"])
    assert found.trials["n"].sum() == 1
    assert [report.skipped for report in reports] == [{"unreadable-file": 1}] * 4 + [{}]
    said = ["No such file", "is empty", "is in no known trace format; known: ", "is a folder"]
    for report, text in zip(reports, said, strict=False):
        (line,) = report.warnings
        assert text in line
        assert line.startswith(report.file)
        with pytest.raises(InputError, match=text):
            read_tally([report.file], strict=True)
    good = reports[-1]
    assert (good.episodes, good.calls, good.errors, good.retries, good.faults) == (1, 2, 1, 1, 0)


def test_a_reader_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_text('{"episode_id": "e"}\n', encoding="utf-8")
    with pytest.raises(InputError, match="no known trace format"):
        open_reader(tmp_path / "x")
    assert open_reader(tmp_path / "x", "native") is NATIVE
    with pytest.raises(UnknownNameError, match="did you mean 'native'"):
        open_reader(tmp_path / "x", "nativ")


def test_faults_are_counted_and_the_first_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    write_calls(path, [error("a", 1)])
    with path.open("ab") as file:
        file.write(b"bad\n" * 250 + b'{"note": 1}\n')
    (report,) = read_tally([path])[1]
    assert report.skipped == {"not-json": 250, "missing-field": 1}
    assert report.noted == {"unknown-field": 1}
    assert len(report.warnings) == SHOWN
    assert report.warnings[0].startswith(f"{path}:line 2: not-json: ")
    with pytest.raises(InputError, match="line 2: not-json"):
        read_tally([path], strict=True)


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet"])
def test_progress_is_told_every_byte(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Here:
        """Calls in this process what the worker would."""

        def call(self, function: Any, *args: Any, told: Any) -> Any:
            return function(*args, tell=told)

    monkeypatch.setattr(parquet, "BATCH", 2)
    monkeypatch.setattr(read, "WORKER", Here())
    path = tmp_path / name
    write_calls(path, [error(f"e{at}", 1) for at in range(9)])
    told: list[int] = []
    read_tally([path, path], progress=told.append)
    assert sum(told) == 2 * path.stat().st_size
    assert len(told) == (2 if name == "x.jsonl" else 10)


def test_calls_are_read_with_their_report(tmp_path: Path) -> None:
    write_calls(tmp_path / "x.jsonl", [error("a", 1), success("a", 2), success("b", 1)])
    ((report, calls),) = read_calls([tmp_path / "x.jsonl"])
    assert list(calls) == [error("a", 1), success("a", 2), success("b", 1)]
    assert (report.episodes, report.calls, report.errors, report.retries) == (2, 3, 1, None)
