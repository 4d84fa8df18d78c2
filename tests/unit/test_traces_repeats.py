"""Calls that several files tell of: a session that was taken up again in another file counts what it copied once."""

import json
from pathlib import Path
from typing import Any

import pytest

from invsim.errors import InputError
from invsim.traces.read import FileReport, read_calls, read_tally
from invsim.traces.reader import Faults
from invsim.traces.repeats import Repeats
from invsim.traces.schema import Call
from invsim.traces.writing import write_calls


@pytest.fixture
def files(traces: Path, tmp_path: Path) -> list[Path]:
    """A session, and another that took it up after its failed call, under an id of its own."""
    source = traces / "claude-code" / "branches.jsonl"
    lines = [json.loads(each) for each in source.read_text().splitlines()]
    copied = [{**each, "sessionId": "heir", "uuid": f"h-{each['uuid']}"} for each in lines[:7]]
    for each in copied:
        each["parentUuid"] = each["parentUuid"] and f"h-{each['parentUuid']}"
    again = {**lines[5], "sessionId": "heir", "uuid": "h7", "parentUuid": "h-o6", "requestId": "r9"}
    block = {**lines[5]["message"]["content"][0], "id": "toolu_9"}
    again["message"] = {**lines[5]["message"], "id": "msg_9", "content": [block]}
    heir = tmp_path / "heir.jsonl"
    heir.write_text("".join(json.dumps(each) + "\n" for each in [*copied, again]))
    return [source, heir]


def read(files: list[Path], **options: Any) -> list[tuple[FileReport, list[Call]]]:
    return [(report, list(calls)) for report, calls in read_calls(files, **options)]


def test_what_a_session_copied_from_another_file_counts_there(files: list[Path]) -> None:
    (_, whole), (report, rest) = read(files)
    assert [each.call_id for each in whole] == [f"toolu_{each}" for each in "abcefd"]
    assert [(each.episode_id, each.step, each.call_id, each.warnings) for each in rest] == [
        ("heir", 2, "toolu_9", ("begins-late", "log-ends"))
    ]
    assert (report.calls, report.noted, report.skipped) == (1, {"repeated-call": 1}, {})
    assert report.warnings == [f"{files[1]}: repeated-call: 3 calls are in a file before, and count there"]
    tally, reports = read_tally(files)
    assert tally.calls["n"].sum() == 7
    assert [each.calls for each in reports] == [6, 1]


def test_each_file_alone_and_each_reading_is_whole(files: list[Path]) -> None:
    for _ in range(2):
        assert [len(rows) for _, rows in read(files[1:])] == [4]
    assert [len(rows) for _, rows in read([files[0], files[0]])] == [6, 0]
    (_, first), (_, second) = read(files[::-1])
    assert [each.call_id for each in (*first, *second)] == [f"toolu_{each}" for each in ("a", "b", "c", 9, *"efd")]
    assert [each.call_id for each in second if "begins-late" in each.warnings] == ["toolu_e", "toolu_d"]


def test_repeated_calls_are_an_error_where_nothing_may_be_doubtful(files: list[Path]) -> None:
    with pytest.raises(InputError, match="repeated-call: 3 calls"):
        read(files, strict=True)


def call(**changes: Any) -> Call:
    told = {"episode_id": "e", "step": 0, "tool": "dig", "outcome": "ok", "call_id": "k", "t_start": 5, "request": {}}
    return Call(**{**told, **changes})


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, 0),
        ({"episode_id": "f", "step": 3, "outcome": "error", "source_file": "x"}, 0),
        ({"call_id": "l"}, 1),
        ({"t_start": 6}, 1),
        ({"tool": "hoe"}, 1),
        ({"model": "m"}, 1),
        ({"request": {"row": 1}}, 1),
        ({"source_format": "chat"}, 1),
    ],
)
def test_which_calls_are_one(changes: dict[str, Any], kept: int) -> None:
    repeats, faults = Repeats(), Faults("x")
    assert len(list(repeats.without([call(), call()], faults))) == 2  # one file may say what it likes
    assert len(list(repeats.without([call(**changes)], faults))) == kept
    assert len(faults.found) == 1 - kept


@pytest.mark.parametrize("unknown", ["call_id", "t_start"])
def test_calls_of_which_too_little_is_known_are_each_their_own(unknown: str) -> None:
    repeats, faults = Repeats(), Faults("x")
    for _ in range(2):
        assert len(list(repeats.without([call(**{unknown: None})], faults))) == 1
    assert faults.found == []


def test_files_of_the_native_format_are_counted_as_they_are(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.jsonl", "c.parquet"):
        write_calls(tmp_path / name, [call()])
    names = [tmp_path / name for name in ("a.jsonl", "b.jsonl", "c.parquet")]
    assert [len(rows) for _, rows in read(names)] == [1, 1, 1]
    assert read_tally(names)[0].calls["n"].sum() == 3
