"""Damaged Parquet: which rows are found again, and that a part of the file that is whole is never lost."""

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invsim.errors import InputError
from invsim.traces.parquet import DEPTH, NEEDED, decodable, gaps
from invsim.traces.read import read_calls, read_tally
from invsim.traces.schema import Call

SAMPLE = Path(__file__).parents[1] / "data" / "traces" / "native" / "payments.parquet"
GROUP = 24


def over(torn: set[int]) -> Callable[[int, int], bool]:
    """Rows decode together if none of them is torn."""
    return lambda start, stop: torn.isdisjoint(range(start, stop))


@given(st.integers(1, 300), st.data())
def test_one_torn_part_costs_no_other_row(rows: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, rows))
    last = data.draw(st.integers(first, rows))
    found = decodable(over(set(range(first, last))), 0, rows)
    assert gaps(found, 0, rows) == ([(first, last)] if first < last else [])


@given(st.sets(st.integers(0, 199)), st.integers(0, 50))
def test_nothing_torn_is_taken_for_sound_and_parts_are_in_order(torn: set[int], start: int) -> None:
    found = decodable(over(torn), start, 200)
    assert all(low < high for low, high in found)
    assert all(one[1] <= other[0] for one, other in pairwise(found))
    assert torn.isdisjoint(row for low, high in found for row in range(low, high))


@given(st.lists(st.booleans(), min_size=1, max_size=2**DEPTH - 1), st.integers(4, 9))
def test_groups_of_one_size_are_all_found(sound: list[bool], size: int) -> None:
    torn = {row for at, whole in enumerate(sound) if not whole for row in range(at * size, at * size + size)}
    found = decodable(over(torn), 0, len(sound) * size)
    assert {row for low, high in found for row in range(low, high)} == set(range(len(sound) * size)) - torn


def test_a_sound_range_is_looked_at_once() -> None:
    asked: list[tuple[int, int]] = []

    def decodes(start: int, stop: int) -> bool:
        asked.append((start, stop))
        return True

    assert decodable(decodes, 5, 500_000) == [(5, 500_000)]
    assert asked == [(5, 500_000)]
    assert decodable(decodes, 7, 7) == []


# Files ---------------------------------------------------------------------------------------------------------------


def written(path: Path, rows: pl.DataFrame) -> bytes:
    rows.write_parquet(path, row_group_size=GROUP, statistics=False)
    return path.read_bytes()


def shared(one: bytes, other: bytes) -> int:
    """How many bytes two files begin with in common."""
    return next(at for at, (mine, yours) in enumerate(zip(one, other, strict=False)) if mine != yours)


@pytest.fixture
def grouped(tmp_path: Path) -> tuple[Path, list[int]]:
    """A trace of eight groups of rows, and where the bytes of each begin and the last one's end.

    Groups stand one after another, and what the file says of them comes last. So two files of which one holds a group
    more are alike up to where that begins, but for a byte or two.
    """
    rows = pl.concat(
        pl.read_parquet(SAMPLE).with_columns(
            episode_id=pl.col("episode_id") + f"/{at}", request=pl.lit(f'{{"group": {at}}}')
        )
        for at in range(9)
    )
    path = tmp_path / "grouped.parquet"
    files = [written(path, rows[: groups * GROUP]) for groups in range(1, 10)]
    edges = [4, *(shared(*pair) for pair in pairwise(files))]
    path.write_bytes(files[7])
    return path, edges


def within(edges: list[int], at: int) -> range:
    """The bytes of a group, but for a few at its end."""
    return range(edges[at], edges[at + 1] - 8)


def wiped(data: bytes, at: range) -> bytes:
    return data[: at.start] + bytes(len(at)) + data[at.stop :]


def calls_of(path: Path) -> tuple[list[Call], list[str]]:
    ((report, calls),) = read_calls([path])
    return list(calls), report.warnings


def test_a_torn_group_costs_its_own_rows(grouped: tuple[Path, list[int]]) -> None:
    path, edges = grouped
    whole, _ = calls_of(path)
    path.write_bytes(wiped(path.read_bytes(), within(edges, 2)))
    calls, warnings = calls_of(path)
    assert calls == whole[: 2 * GROUP] + whole[3 * GROUP :]
    assert warnings == [f"{path}:rows 49 to 72: torn-rows: cannot be decoded"]
    tally, (report,) = read_tally([path])
    assert (report.calls, report.skipped) == (7 * GROUP, {"torn-rows": 1})
    assert tally.calls["n"].sum() == 7 * GROUP
    with pytest.raises(InputError, match="rows 49 to 72: torn-rows"):
        read_tally([path], strict=True)


def test_several_torn_groups_cost_their_own_rows(grouped: tuple[Path, list[int]]) -> None:
    path, edges = grouped
    whole, _ = calls_of(path)
    for at in (0, 3, 5, 7):
        path.write_bytes(wiped(path.read_bytes(), within(edges, at)))
    calls, warnings = calls_of(path)
    assert calls == [call for at in (1, 2, 4, 6) for call in whole[at * GROUP : at * GROUP + GROUP]]
    assert [line.split(": ")[0].rpartition(":")[2] for line in warnings] == [
        "rows 1 to 24", "rows 73 to 96", "rows 121 to 144", "rows 169 to 192",
    ]  # fmt: skip


def test_rows_outlive_a_column_that_says_little_of_them(grouped: tuple[Path, list[int]]) -> None:
    path, _ = grouped
    rows = pl.read_parquet(path)
    whole, _ = calls_of(path)
    data, before = path.read_bytes(), rows.columns.index("t_end")
    start = shared(data, written(path.with_name("less.parquet"), rows[:GROUP, :before]))
    path.write_bytes(wiped(data, range(start, start + 12)))
    calls, warnings = calls_of(path)
    assert "t_end" not in NEEDED
    assert calls[GROUP:] == whole[GROUP:]
    assert [call.request for call in calls] == [call.request for call in whole]
    assert {call.t_end for call in calls[:GROUP]} == {None}
    assert warnings == [f"{path}:rows 1 to 24: torn-columns: t_end cannot be decoded, and left out"]


def lost(read: Callable[[Path], list[Call]], grouped: tuple[Path, list[int]], rounds: int) -> int:
    """How often damage to the bytes of one group cost a row of another."""
    path, edges = grouped
    data, whole = path.read_bytes(), read(path)
    found = 0
    for seed in range(rounds):
        draw = random.Random(seed)
        at = draw.randrange(8)
        damaged = bytearray(data)
        for _ in range(draw.choice((1, 3, 40))):
            damaged[draw.choice(within(edges, at))] = draw.randrange(256)
        path.write_bytes(damaged)
        others = whole[: at * GROUP] + whole[at * GROUP + GROUP :]
        rows = [call for call in read(path) if call.request != {"group": at}]
        found += rows != others
    return found


def test_damage_to_one_group_costs_no_row_of_another(grouped: tuple[Path, list[int]]) -> None:
    assert lost(lambda path: calls_of(path)[0], grouped, 150) == 0


def test_a_reader_that_stops_at_the_first_damage_is_caught(grouped: tuple[Path, list[int]]) -> None:
    path, _ = grouped
    ((_, calls),) = read_calls([path])
    whole = list(calls)

    def impatient(path: Path) -> list[Call]:
        return whole if len(calls_of(path)[0]) == len(whole) else []

    assert lost(impatient, grouped, 60) > 20
