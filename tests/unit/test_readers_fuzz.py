"""Whatever is done to a file: a reader raises nothing but ``InputError``, ends, and yields rows that can be written.

Every registered reader is tried on the samples of its format, ``tests/data/traces/NAME``.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import invsim.traces.readers  # noqa: F401
from invsim.errors import InputError
from invsim.traces.reader import HEAD, Faults, get_reader, reader_names
from invsim.traces.schema import Call

ROUNDS = {"inspect": 150}
OTHERS = 300
SLOWEST = 3.0
TRACES = Path(__file__).parents[1] / "data" / "traces"

FILES = [
    pytest.param(name, path, id=f"{name}-{path.stem}")
    for name in reader_names()
    for path in sorted((TRACES / name).glob("*"))
]
LINES = [each for each in FILES if each.values[1].suffix == ".jsonl"]


def check_rows(rows: list[Any]) -> None:
    """Rows survive being written and read again: right types, counts that fit, no NaN, no half surrogate pair."""
    for row in rows:
        assert msgspec.json.decode(msgspec.json.encode(row), type=Call) == row


def test_formats_are_tried_in_one_order_whatever_was_imported_first() -> None:
    assert reader_names()[:6] == ("native", "inspect", "otlp", "tau2", "claude-code", "chat")


@pytest.mark.parametrize("name", reader_names())
def test_every_format_has_samples_and_knows_them(name: str) -> None:
    files = sorted((TRACES / name).glob("*"))
    assert files, f"put a small sample of the format into tests/data/traces/{name}"
    for path in files:
        assert get_reader(name).detect(path.read_bytes()[:HEAD], path)


@pytest.mark.parametrize(("name", "path"), FILES)
def test_first_reader_to_know_a_sample_is_its_own(name: str, path: Path) -> None:
    head = path.read_bytes()[:HEAD]
    assert next(each for each in reader_names() if get_reader(each).detect(head, path)) == name


@pytest.mark.parametrize(("name", "path"), FILES)
def test_damaged_files(name: str, path: Path, tmp_path: Path, mutator: Any, read_trace: Callable[..., Any]) -> None:
    sound, damaged = path.read_bytes(), tmp_path / path.name
    for seed in range(ROUNDS.get(name, OTHERS)):
        data = mutator(seed).damage(sound)
        damaged.write_bytes(data)
        for each in reader_names():
            assert get_reader(each).detect(data[:HEAD], damaged) in (True, False)
        began = time.process_time()
        try:
            rows, _ = read_trace(damaged, name)
        except InputError:
            continue
        assert time.process_time() - began < SLOWEST, seed
        check_rows(rows)


@pytest.mark.parametrize(("name", "path"), LINES)
def test_damaged_line_loses_no_other_line(name: str, path: Path, lines_lost: Callable[..., Any]) -> None:
    assert lines_lost(get_reader(name), path, 150) == []


def test_reader_that_stops_at_a_bad_line_is_caught(lines_lost: Callable[..., Any]) -> None:
    class Impatient:
        """Reads until a line is no JSON, and takes what it has for all there is."""

        def read(self, path: Path, faults: Faults) -> Iterator[Call]:
            for line in path.read_bytes().splitlines():
                try:
                    name = json.loads(line)["id"]
                except (ValueError, LookupError, TypeError):
                    return
                yield Call(episode_id="e", step=0, tool="dig", request={"id": name}, outcome="ok")

    assert len(lines_lost(Impatient(), TRACES / "chat" / "openai.jsonl", 150)) > 20


@pytest.mark.parametrize("name", reader_names())
def test_file_that_cannot_be_read_is_an_input_error(name: str, tmp_path: Path, read_trace: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(tmp_path / "nowhere.jsonl", name)
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(tmp_path, name)


@pytest.mark.parametrize("name", reader_names())
@pytest.mark.parametrize(
    "data", [b"", b"\0" * 4096, b"\n\n\n", b"\xef\xbb\xbf", b"{", b"[" * 100_000, b"{}", b"null", b"1,2\n3,4\n"]
)
def test_file_without_a_trace_has_no_rows(
    name: str, data: bytes, tmp_path: Path, read_trace: Callable[..., Any]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    rows, faults = read_trace(path, name)
    assert rows == []
    assert all(each.file == str(path) and each.kind and each.message for each in faults)
