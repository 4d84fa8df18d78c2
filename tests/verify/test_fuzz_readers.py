"""A hundred thousand seeded damages over all readers: nothing escapes but ``InputError``, and every row can be written.

Parquet is decoded in a process apart, which some damages end; this one must outlive all of them.

A reader made brittle on purpose goes through the same mill and must be caught.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
from polars.exceptions import PanicException

from invsim.errors import InputError
from invsim.traces.read import read_calls, read_tally
from invsim.traces.reader import Faults, Reader
from invsim.traces.schema import Call
from invsim.traces.tally import tally

TOTAL = 100_000
SHARE = {"inspect": 2_000, "otlp": 14_000, "tau2": 14_000, "native, Parquet": 2_000}
"""Damages to the formats that cost more to read; the others share the rest evenly."""
WITH_ROWS = {"native, Parquet": 0.2}
"""Least share of damaged files that still have rows: whatever moves the end of a Parquet file leaves none."""
SLOWEST = {"native, Parquet": 60.0}
"""Seconds: of processor time, but of the clock where the work is done in a process apart."""


class Brittle:
    """Believes what it reads: the first line that is no JSON, or a field that is missing, is the end of it."""

    name = "brittle"

    def detect(self, head: bytes, path: Path) -> bool:
        return True

    def read(self, path: Path, faults: Faults) -> Iterator[Call]:
        for line in path.read_bytes().splitlines():
            record = msgspec.json.decode(line)
            yield Call(episode_id=record["id"], step=0, tool=record["messages"][0]["role"], outcome="ok")


def escapes(
    reader: Reader,
    files: list[Path],
    rounds: int,
    folder: Path,
    mutator: Any,
    clock: Callable[[], float] = time.process_time,
) -> tuple[list[str], int, float]:
    """What escaped, how many damaged files still had rows, and the slowest reading in seconds."""
    found, with_rows, slowest = [], 0, 0.0
    sound = [(path, path.read_bytes(), folder / path.name) for path in files]
    list(reader.read(files[0], Faults("")))  # libraries are loaded here, and not on the clock
    for seed in range(rounds):
        path, data, damaged = sound[seed % len(sound)]
        damaged.write_bytes(mutator(seed).damage(data))
        began = clock()
        try:
            rows = list(reader.read(damaged, Faults(str(damaged))))
            if any(msgspec.json.decode(msgspec.json.encode(row), type=Call) != row for row in rows):
                found.append(f"{path.name}, seed {seed}: a row is not what it reads back as")
            with_rows += bool(rows)
        except InputError:
            pass
        except (Exception, PanicException) as error:  # noqa: BLE001 - whatever escapes is what this counts
            found.append(f"{path.name}, seed {seed}: {type(error).__name__}: {error}")
        slowest = max(slowest, clock() - began)
    return found, with_rows, slowest


def cases(traces: Path) -> dict[str, tuple[Reader, list[Path]]]:
    """A reader and its samples by name; Parquet, which goes another way, apart from the lines of the same format."""
    import invsim.traces.readers  # noqa: F401
    from invsim.traces.reader import get_reader, reader_names

    found = {}
    for name in reader_names():
        files = sorted((traces / name).glob("*"))
        for label, parquet in ((name, False), (f"{name}, Parquet", True)):
            if mine := [path for path in files if (path.suffix == ".parquet") == parquet]:
                found[label] = (get_reader(name), mine)
    return found


def test_nothing_escapes(ledger: Any, mutator: Any, traces: Path, tmp_path: Path) -> None:
    every = cases(traces)
    assert every.keys() > SHARE.keys()
    even = (TOTAL - sum(SHARE.values())) // (len(every) - len(SHARE))
    done = 0
    for name, (reader, files) in every.items():
        rounds, apart = SHARE.get(name, even), name.endswith("Parquet")
        clock = time.perf_counter if apart else time.process_time
        found, with_rows, slowest = escapes(reader, files, rounds, tmp_path, mutator, clock)
        done += rounds
        assert not found, f"{name}: {len(found)} escaped, first {found[:3]}"
        ledger.check(f"fuzz, {name}: escaped of {rounds}", len(found), high=0)
        ledger.check(
            f"fuzz, {name}: share of damaged files with rows", with_rows / rounds, low=WITH_ROWS.get(name, 0.5)
        )
        ledger.check(f"fuzz, {name}: slowest reading, s", slowest, high=SLOWEST.get(name, 5.0))
    ledger.check("fuzz: damages", done, low=TOTAL * 0.999)


def test_no_row_of_another_line_is_lost(ledger: Any, traces: Path, lines_lost: Any) -> None:
    import invsim.traces.readers  # noqa: F401
    from invsim.traces.reader import get_reader, reader_names

    for name in reader_names():
        for path in sorted((traces / name).glob("*.jsonl")):
            lost = lines_lost(get_reader(name), path, 1_000)
            ledger.check(f"fuzz, {name}, {path.stem}: of 1000 damaged lines, cost another its row", len(lost), high=0)


def test_parquet_is_counted_as_it_is_read(ledger: Any, mutator: Any, traces: Path, tmp_path: Path) -> None:
    """Several groups of several pages, damaged: what is counted in columns is what is read call by call."""
    path, differing, sizes = tmp_path / "x.parquet", [], set()
    rows = pl.concat([pl.read_parquet(traces / "native" / "payments.parquet")] * 20)
    rows = rows.with_columns(episode_id=pl.concat_str("episode_id", pl.int_range(pl.len()) // 5))
    rows.write_parquet(path, row_group_size=120, data_page_size=256)
    data = path.read_bytes()
    for seed in range(60):
        path.write_bytes(mutator(seed).damage(data))
        counted, (report,) = read_tally([path])
        ((_, calls),) = read_calls([path])
        expected, size = tally(calls)
        same = (report.calls, report.episodes, report.errors) == (size.calls, size.episodes, size.errors)
        if not same or not counted.trials.equals(expected.trials) or not counted.episodes.equals(expected.episodes):
            differing.append(seed)
        sizes.add(size.calls)
    ledger.check("fuzz, native, Parquet: of 60 damaged files, counted otherwise than read", len(differing), high=0)
    ledger.check("fuzz, native, Parquet: different numbers of calls that were left", len(sizes), low=5)


def test_brittle_reader_is_caught(ledger: Any, mutator: Any, traces: Path, tmp_path: Path) -> None:
    found, _, _ = escapes(Brittle(), [traces / "chat" / "openai.jsonl"], 500, tmp_path, mutator)
    ledger.check("fuzz, negative control: escaped a brittle reader of 500", len(found), low=250)
