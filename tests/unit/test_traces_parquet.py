"""Damaged Parquet: which rows are found again, and that a part of the file that is whole is never lost."""

import os
import random
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from invsim.errors import InputError
from invsim.traces import parquet, read
from invsim.traces.apart import WORKER, Died
from invsim.traces.columns import frame
from invsim.traces.pages import find_edges
from invsim.traces.parquet import (
    DEPTH,
    FATAL,
    NEEDED,
    File,
    Part,
    Probe,
    Stretch,
    cut,
    decodable,
    ends,
    footer_apart,
    gaps,
    joined,
    read_footer,
    sound,
)
from invsim.traces.read import read_calls, read_tally
from invsim.traces.reader import Faults
from invsim.traces.schema import Call
from invsim.traces.tally import tally

SAMPLE = Path(__file__).parents[1] / "data" / "traces" / "native" / "payments.parquet"
GROUP = 24


Rows = Callable[[Sequence[Part]], bool]


def over(torn: set[int]) -> Rows:
    """Rows decode together if none of them is torn."""
    return lambda parts: all(torn.isdisjoint(range(*part)) for part in parts)


def rows_of(parts: Sequence[Part]) -> set[int]:
    return {row for part in parts for row in range(*part)}


@given(st.integers(1, 300), st.data())
def test_one_torn_stretch_costs_no_other_row(rows: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, rows - 1))
    last = data.draw(st.integers(first + 1, rows))
    assert gaps(ends(over(set(range(first, last))), (0, rows)), 0, rows) == [(first, last)]


@given(st.sets(st.integers(0, 199)), st.integers(0, 50))
def test_nothing_torn_is_taken_for_sound_and_parts_are_in_order(torn: set[int], start: int) -> None:
    found = ends(over(torn), (start, 200))
    assert all(low < high for low, high in found)
    assert all(one[1] <= other[0] for one, other in pairwise(found))
    assert torn.isdisjoint(rows_of(found))


@given(st.lists(st.booleans(), min_size=1, max_size=2**DEPTH - 1), st.integers(4, 9))
def test_stretches_of_one_size_are_all_found_if_one_is_at_an_end(sound: list[bool], size: int) -> None:
    sound[-1] = True
    torn = {row for at, whole in enumerate(sound) if not whole for row in range(at * size, at * size + size)}
    assert rows_of(ends(over(torn), (0, len(sound) * size))) == set(range(len(sound) * size)) - torn


def test_what_is_torn_throughout_is_soon_given_up() -> None:
    asked: list[Sequence[Part]] = []

    def decodes(parts: Sequence[Part]) -> bool:
        asked.append(parts)
        return False

    assert ends(decodes, (0, 1000)) == []
    assert asked == [[(0, 1)], [(999, 1000)], [(500, 501)]]


@given(st.lists(st.tuples(st.integers(1, 9), st.booleans()), max_size=60))
def test_only_parts_that_are_torn_are_looked_into(cells: list[tuple[int, bool]]) -> None:
    parts = list(pairwise(accumulate((rows for rows, _ in cells), initial=0)))
    torn = [part for part, (_, whole) in zip(parts, cells, strict=True) if not whole]
    asked: list[Part] = []

    def within(part: Part) -> list[Part]:
        asked.append(part)
        return [part]

    assert decodable(over(rows_of(torn)), parts, within) == parts
    assert asked == torn


def test_sound_parts_are_looked_at_once() -> None:
    asked: list[Sequence[Part]] = []

    def decodes(parts: Sequence[Part]) -> bool:
        asked.append(parts)
        return True

    parts = [(5, 100), (100, 500_000)]
    assert decodable(decodes, parts, lambda part: []) == parts
    assert asked == [parts]
    assert decodable(decodes, [], lambda part: []) == []


def test_parts_are_cut_within_and_joined_where_they_touch() -> None:
    assert cut([(0, 10), (20, 30)], [0, 4, 4, 10, 15, 30, 40]) == [(0, 4), (4, 10), (20, 30)]
    assert joined([(0, 4), (4, 10), (20, 30), (31, 32)]) == [(0, 10), (20, 30), (31, 32)]


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


def test_a_torn_page_costs_its_own_rows(tmp_path: Path) -> None:
    """Every second page of a column is damaged, in one group of rows: what lies between is found."""
    rows = pl.concat([pl.read_parquet(SAMPLE)] * 40)
    numbered = [f'{{"row": {100_000 + at}}}' for at in range(rows.height)]
    path = tmp_path / "pages.parquet"
    numbering = rows.with_columns(request=pl.Series(numbered))
    numbering.write_parquet(path, compression="uncompressed", data_page_size=256, statistics=False)
    pages = list(pairwise(find_edges(path).pages["request"]))
    assert len(pages) > 60
    whole, _ = calls_of(path)
    data, torn = bytearray(path.read_bytes()), pages[1::2]
    for first, _ in torn:
        at = data.index(numbered[first].encode())
        data[at - 4 : at] = b"\xff" * 4  # its length
    path.write_bytes(data)
    calls, warnings = calls_of(path)
    assert calls == [call for first, last in pages[::2] for call in whole[first:last]]
    assert len(warnings) == len(torn)
    _, (report,) = read_tally([path])
    assert (report.calls, report.warnings) == (len(calls), warnings)


def test_what_decodes_column_by_column_and_not_together_costs_no_other_row(
    grouped: tuple[Path, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = grouped
    footer = footer_apart(path)
    assert footer is not None
    whole = Stretch(0, footer.rows, tuple(footer.columns))

    class Fussy(Probe):
        def __call__(self, parts: Sequence[Part]) -> bool:
            return len(self.columns) == 1 or rows_of(parts).isdisjoint({10, 11})

    monkeypatch.setattr(parquet, "Probe", Fussy)
    faults = Faults("x")
    found = sound(footer.file, whole, NEEDED, faults)
    assert joined([each[:2] for each in found]) == [(0, 10), (12, footer.rows)]
    assert [each.place for each in faults.found] == ["rows 11 to 12"]


def test_a_group_that_is_the_death_of_its_reader_is_given_up_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its pages is, as with a damaged dictionary."""
    path = tmp_path / "pages.parquet"
    rows = pl.concat([pl.read_parquet(SAMPLE)] * 40)
    rows.write_parquet(path, row_group_size=240, data_page_size=128, statistics=False)
    assert len(cut([(240, 480)], find_edges(path).pages["request"])) >= 2 * FATAL
    deaths = []

    class Deadly:
        def call(self, function: Any, *args: Any) -> Any:
            if function is parquet._try_to_decode:
                _, columns, parts, _ = args
                if "request" in columns and not rows_of(parts).isdisjoint(range(240, 480)):
                    deaths.append(parts)
                    raise Died(-signal.SIGABRT)
            return WORKER.call(function, *args)

    footer, faults = footer_apart(path), Faults("x")
    assert footer is not None
    monkeypatch.setattr(parquet, "WORKER", Deadly())
    found = sound(footer.file, Stretch(0, 960, tuple(footer.columns)), NEEDED, faults)
    assert joined([each[:2] for each in found]) == [(0, 240), (480, 960)]
    assert [each.place for each in faults.found] == ["rows 241 to 480"]
    assert FATAL < len(deaths) <= FATAL + 3  # the others tell which group it is


def test_a_footer_that_claims_rows_by_the_thousand_million(grouped: tuple[Path, list[int]]) -> None:
    path, _ = grouped
    whole, _ = calls_of(path)
    data, rows = path.read_bytes(), 8 * GROUP
    footer = data[-8 - struct.unpack("<I", data[-8:-4])[0] : -8]
    count = b"\x16" + varint(2 * rows)  # a field, and the number of all rows in it
    claimed = footer.replace(count, b"\x16" + varint(2 * 4_000_000_000), 1)
    assert claimed != footer
    path.write_bytes(data.removesuffix(footer + data[-8:]) + claimed + struct.pack("<I", len(claimed)) + b"PAR1")
    calls, warnings = calls_of(path)
    assert calls == whole
    assert warnings == [f"{path}:rows 193 to 4,000,000,000: torn-rows: cannot be decoded"]
    assert read_tally([path])[1][0].calls == len(whole)


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


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
    assert lost(lambda path: calls_of(path)[0], grouped, 60) == 0


def test_a_reader_that_stops_at_the_first_damage_is_caught(grouped: tuple[Path, list[int]]) -> None:
    path, _ = grouped
    ((_, calls),) = read_calls([path])
    whole = list(calls)

    def impatient(path: Path) -> list[Call]:
        return whole if len(calls_of(path)[0]) == len(whole) else []

    assert lost(impatient, grouped, 60) > 20


def test_tally_and_calls_agree_on_what_is_left(grouped: tuple[Path, list[int]], mutator: Any) -> None:
    path, edges = grouped
    data = path.read_bytes()
    different = set()
    for seed in range(60):
        draw, damaged = random.Random(seed), bytearray(data)
        for _ in range(draw.choice((1, 3, 40))):
            damaged[draw.randrange(edges[0], edges[-1])] = draw.randrange(256)
        path.write_bytes(mutator(seed).damage(data) if seed % 3 == 0 else damaged)
        calls, _ = calls_of(path)
        counted, (report,) = read_tally([path])
        expected, size = tally(calls)
        assert (report.calls, report.episodes, report.errors) == (size.calls, size.episodes, size.errors), seed
        assert_frame_equal(counted.trials, expected.trials)
        assert_frame_equal(counted.episodes, expected.episodes)
        different.add(report.calls)
    assert len(different) > 8


# What else becomes of a file ----------------------------------------------------------------------------------------


def trace_of(path: Path, episodes: int) -> Path:
    """A trace of so many calls."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        frame(
            [Call(episode_id=f"e{at}", step=1, tool="pay", outcome="ok", model="m") for at in range(episodes)]
        ).write_parquet(file)
    return path


@pytest.mark.parametrize(
    "name",
    [
        "a[1].parquet", "*.parquet", "a?.parquet", "[ab]/*.parquet", "~/x.parquet", "$HOME", "{a1,b1}.parquet",
        "file:x.parquet", "file:/x.parquet", "s3:/x/y.parquet", "http:/localhost/x.parquet", "hf:/datasets/x/y",
        "model=other/trace.parquet", "step=x/trace.parquet", "_hidden", " with a space ", "new\nline", "a.csv",
        "%61.parquet", "odd-\udcff.parquet",
    ],
)  # fmt: skip
def test_a_name_is_nothing_but_a_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for other in ("a1.parquet", "b1.parquet", "a/b.parquet", "a.parquet", "x.parquet"):
        trace_of(Path(other), 7)
    path = trace_of(Path(name), 3)
    found, (report,) = read_tally([path])
    assert (report.format, report.calls, report.warnings) == ("native", 3, [])
    assert found.episodes["model"].unique().to_list() == ["m"]
    ((report, calls),) = read_calls([path])
    assert [call.episode_id for call in calls] == ["e0", "e1", "e2"]
    assert report.warnings == []


def test_a_path_goes_on_from_where_its_reader_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, rows in (("one", 2), ("other", 5)):
        trace_of(tmp_path / folder / "x.parquet", rows)
        monkeypatch.chdir(tmp_path / folder)
        assert read_tally(["x.parquet"])[1][0].calls == rows
        assert len(calls_of(Path("x.parquet"))[0]) == rows


@pytest.mark.skipif(not Path("/dev/stdin").exists(), reason="needs /dev/stdin")
def test_the_standard_input_is_that_of_its_reader() -> None:
    program = "from invsim.traces.read import read_tally; print(read_tally(['/dev/stdin'])[1][0].calls)"
    with SAMPLE.open("rb") as file:
        done = subprocess.run([sys.executable, "-c", program], stdin=file, capture_output=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == (b"24\n", b"")


def test_it_is_decoded_nowhere_but_in_a_process_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = trace_of(tmp_path / "x.parquet", 4)
    monkeypatch.setattr(pl, "scan_parquet", None)
    assert len(calls_of(path)[0]) == 4
    assert read_tally([path])[1][0].calls == 4


CHANGES: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: path.unlink(), "cannot be read: No such file or directory"),
    (lambda path: os.truncate(path, 100), "changed while it was read"),
    (lambda path: os.truncate(path, 1 << 20), "changed while it was read"),
    (lambda path: trace_of(path.with_name("y"), 30).replace(path), "changed while it was read"),
    (lambda path: os.utime(path, (1, 1)), "changed while it was read"),
]


@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_a_file_that_changes_is_read_up_to_then(
    change: Callable[[Path], object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes after would be of another file."""
    path = trace_of(tmp_path / "x.parquet", 20)
    monkeypatch.setattr(parquet, "SHIPPED", 5)
    ((report, calls),) = read_calls([path])
    found = [next(calls)]
    change(path)
    found += calls
    assert [call.episode_id for call in found] == ["e0", "e1", "e2", "e3", "e4"]
    assert report.warnings == [f"{path}: unreadable-file: {said}"]
    assert report.format == "native"


class Meddling:
    """The worker, with something that happens at the first call of a function."""

    def __init__(self, function: object, happens: Callable[[], object]) -> None:
        self.function, self.happens, self.calls = function, happens, 0

    def call(self, function: Callable[..., Any], *args: Any, told: Callable[[Any], None] | None = None) -> Any:
        if function is self.function:
            self.calls += 1
            if self.calls == 1:
                self.happens()
        return WORKER.call(function, *args, told=told)


@pytest.mark.parametrize(("change", "said"), CHANGES)
def test_a_file_that_changes_is_not_counted(
    change: Callable[[Path], object], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = trace_of(tmp_path / "x.parquet", 20), trace_of(tmp_path / "other.parquet", 3)
    monkeypatch.setattr(read, "WORKER", Meddling(read._tally_there, lambda: change(path)))
    found, (report, good) = read_tally([path, other])
    assert (report.format, report.calls, report.warnings) == ("", 0, [f"{path}: unreadable-file: {said}"])
    assert good.calls == found.calls["n"].sum() == 3
    trace_of(path, 20)
    monkeypatch.setattr(read, "WORKER", Meddling(read._tally_there, lambda: change(path)))
    with pytest.raises(InputError, match=said):
        read_tally([path], strict=True)


def test_a_sound_file_whose_counting_is_killed_is_counted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill() -> None:
        raise Died(-signal.SIGKILL)

    path = trace_of(tmp_path / "x.parquet", 20)
    meddling = Meddling(read._tally_there, kill)
    monkeypatch.setattr(read, "WORKER", meddling)
    _, (report,) = read_tally([path])
    assert (report.calls, report.warnings, meddling.calls) == (20, [], 2)


def test_a_sound_file_whose_counting_is_always_killed_is_not_called_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed:
        def call(self, *_: object, **__: object) -> None:
            raise Died(-signal.SIGKILL)

    path = trace_of(tmp_path / "x.parquet", 20)
    monkeypatch.setattr(read, "WORKER", Killed())
    _, (report,) = read_tally([path])
    said = "the process that counts it was ended by SIGKILL; is there memory enough?"
    assert report.warnings == [f"{path}: unreadable-file: {said}"]
    assert (report.format, report.skipped) == ("", {"unreadable-file": 1})


def test_fewer_rows_are_held_where_they_weigh_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.parquet"
    texts = ['"x"'] * 40 + ['"' + "x" * 1000 + '"'] * 40 + ['"x"'] * 40
    frame([Call(episode_id="e", step=1, tool="t", outcome="ok", request=text) for text in texts]).write_parquet(path)
    for name, value in (("FIRST", 3), ("BATCH", 20), ("BYTES", 5000)):
        monkeypatch.setattr(parquet, name, value)
    footer = read_footer(File.at(path))
    assert footer is not None
    whole = Stretch(0, footer.rows, tuple(footer.columns))
    found = list(parquet.batches(footer.file, ("request",), [whole]))
    heights = [3, 20, 20, 20, 4, 4, 4, 4, 4, 19, 18]
    assert [rows.height for _, rows in found] == heights
    assert [first - 1 for first, _ in found] == [0, *accumulate(heights[:-1])]
    tried = whole._replace(tried=True)
    assert [rows.height for _, rows in parquet.batches(footer.file, ("request",), [tried])] == [120]


def test_encrypted_parquet_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"PARE" + SAMPLE.read_bytes()[4:-4] + b"PARE")
    assert calls_of(path) == ([], [f"{path}: unreadable-file: is encrypted Parquet; decrypt it first"])


@pytest.mark.parametrize("kind", [pl.Int128, pl.UInt128, pl.UInt64, pl.Float64])
def test_numbers_that_need_not_fit_are_the_fault_of_their_column(kind: Any, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pl.read_parquet(SAMPLE).with_columns(pl.col("step").cast(kind)).write_parquet(path)
    said = f"{path}:column step: wrong-type: holds {kind.__name__}; Int64 would be right"
    assert calls_of(path) == ([], [said])


def test_columns_are_told_in_their_order_and_first_what_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    rows = pl.read_parquet(SAMPLE).drop("tool")
    rows.with_columns(pl.lit(1).alias(f"x{at}") for at in range(30)).write_parquet(path)
    _, warnings = calls_of(path)
    assert [line.removeprefix(f"{path}:").split(":")[0] for line in warnings] == [
        "column tool", *(f"column x{at}" for at in range(30)),
    ]  # fmt: skip
