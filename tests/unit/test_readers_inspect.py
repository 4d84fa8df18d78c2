"""Inspect logs: every row of the sample in both of its forms, and archives and samples that are damaged."""

import builtins
import copy
import io
import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from invsim.errors import InputError

Read = Callable[..., tuple[list[Any], list[Any]]]


@pytest.fixture
def log(traces: Path) -> dict[str, Any]:
    return json.loads((traces / "inspect" / "log.json").read_text())


@pytest.fixture
def read(tmp_path: Path, read_trace: Read) -> Read:
    def read(value: Any) -> tuple[list[Any], list[Any]]:
        path = tmp_path / "log"
        path.write_bytes(value if isinstance(value, bytes) else json.dumps(value).encode())
        return read_trace(path, "inspect")

    return read


def archive(log: dict[str, Any], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """The log as an archive, packed by one of the methods that the standard library writes."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as file:
        file.writestr("_journal/start.json", json.dumps({"version": 2, "eval": log["eval"]}))
        for each in log["samples"]:
            file.writestr(f"samples/{each['id']}_epoch_1.json", json.dumps(each))
        file.writestr("summaries.json", "[]")
        file.writestr("header.json", json.dumps({key: each for key, each in log.items() if key != "samples"}))
    return data.getvalue()


def brief(rows: list[Any]) -> list[tuple[Any, ...]]:
    return [(each.episode_id, each.step, each.seq, each.call_id, each.outcome) for each in rows]


CALLS = [
    ("ev-1/plots/1", 0, 0, "d1", "error"),
    ("ev-1/plots/1", 1, 0, "d2", "ok"),
    ("ev-1/plots/1", 1, 1, "d3", "timeout"),
    ("ev-1/weeds/1", 0, 0, "w1", "denied"),
]


@pytest.mark.parametrize("name", ["log.json", "archive.eval"])
def test_log(name: str, traces: Path, read_trace: Read) -> None:
    rows, faults = read_trace(traces / "inspect" / name, "inspect")
    assert faults == []
    assert brief(rows) == CALLS
    assert [each.task_id for each in rows] == ["garden/plots"] * 3 + ["garden/weeds"]
    first, second = rows[:2]
    assert (first.model, first.model_requested, first.model_source) == (
        "m-mini-2031-02-03",
        "vendor/m-mini",
        "output.model",
    )
    assert (first.input_tokens, first.cache_read_tokens, first.output_tokens) == (150, 50, 20)
    assert (first.request, first.error_source) == ({"row": 4}, "flag")
    assert [(each.op, each.path, each.value) for each in first.hint] == [("add", "/soil", "loam")]
    assert second.request == {"row": 4, "soil": "loam " * 30}
    assert (second.response, second.t_end) == ({"plot": 17}, 1_927_857_904_250_000_000)
    assert rows[3].response == "The reviewer says no"
    assert [each.warnings for each in rows] == [(), (), (), ("log-ends",)]


def test_both_forms_are_the_same_rows(traces: Path, read_trace: Read) -> None:
    def rows(name: str) -> list[Any]:
        found, _ = read_trace(traces / "inspect" / name, "inspect")
        return [msgspec.structs.replace(each, source_file=None, source_pos=None) for each in found]

    assert rows("log.json") == rows("archive.eval")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_archives_packed_otherwise(log: Any, read: Read, method: int) -> None:
    rows, faults = read(archive(log, method))
    assert (brief(rows), faults) == (CALLS, [])


def test_archive_cut_off_keeps_the_members_before(log: Any, read: Read) -> None:
    data = archive(log)
    second = data.index(b"samples/weeds")
    rows, faults = read(data[: second + 60])
    assert brief(rows) == CALLS[:3]
    assert [(each.place, each.kind, each.lost) for each in faults] == [
        ("samples/weeds_epoch_1.json", "damaged-member", True)
    ]
    rows, faults = read(data[: second - 20])
    assert brief(rows) == CALLS[:3]
    assert [each.kind for each in faults] == ["torn-archive"]


def test_stored_member_cut_off_gives_what_is_whole_in_it(log: Any, read: Read) -> None:
    data = archive(log, zipfile.ZIP_STORED)
    rows, faults = read(data[: data.index(b"Command timed out")])
    assert brief(rows) == [*CALLS[:2], ("ev-1/plots/1", 1, 1, "d3", "missing")]
    assert rows[-1].warnings == ("log-ends",)
    assert [each.kind for each in faults] == ["damaged-member"]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_damaged_member_costs_no_other(log: Any, read: Read, method: int) -> None:
    data = bytearray(archive(log, method))
    at = data.index(b"samples/plots") + 200
    data[at : at + 8] = b"\0" * 8
    rows, faults = read(bytes(data))
    assert brief(rows)[-1] == CALLS[-1]
    assert faults[0].kind == "damaged-member"
    assert faults[0].place == "samples/plots_epoch_1.json"


def test_wrong_size_of_a_member_costs_no_other(log: Any, read: Read) -> None:
    data = bytearray(archive(log))
    header = data.index(b"_journal/start.json") - 30
    data[header + 18 : header + 22] = struct.pack("<I", 10**6)
    rows, _ = read(bytes(data))
    assert brief(rows) == CALLS


def test_tokens_include_the_cache_whatever_version_wrote_them(log: Any, read: Read) -> None:
    usage = log["samples"][0]["events"][0]["output"]["usage"]
    usage.update(input_tokens=150, total_tokens=170)  # the total tells that the cache is in it
    rows, _ = read(log)
    assert rows[0].input_tokens == 150
    usage.update(total_tokens=0)
    rows, _ = read(log)
    assert rows[0].input_tokens == 200
    log["eval"]["packages"]["inspect_ai"] = "0.3.183"
    rows, _ = read(log)
    assert rows[0].input_tokens == 150


def test_tool_events_without_the_turn_that_asked(log: Any, read: Read) -> None:
    sample = log["samples"][0]
    sample["events"] = [each for each in sample["events"] if each["event"] == "tool"]
    rows, _ = read(log)
    assert [each[1:] for each in brief(rows)[:3]] == [
        (0, 0, "d1", "error"),
        (1, 0, "d2", "ok"),
        (2, 0, "d3", "timeout"),
    ]
    assert rows[1].request["soil"] == "loam " * 30  # stored apart, and put back


def test_events_within_events_of_older_logs(log: Any, read: Read) -> None:
    sample = log["samples"][0]
    sample["events"] = [
        {"event": "subtask", "name": "garden", "type": "x", "input": {}, "result": "", "events": sample["events"]}
    ]
    rows, faults = read(log)
    assert (brief(rows), faults) == (CALLS, [])


def test_arguments_that_did_not_parse_are_no_request(log: Any, read: Read) -> None:
    choice = log["samples"][0]["events"][0]["output"]["choices"][0]
    choice["message"]["tool_calls"][0]["parse_error"] = "Error parsing"
    rows, _ = read(log)
    assert (rows[0].parse_status, rows[0].request, rows[0].request_raw) == ("invalid", None, '{"row": 4}')
    choice["stop_reason"] = "max_tokens"
    rows, _ = read(log)
    assert rows[0].parse_status == "truncated"


def test_not_a_number_among_the_metrics(log: Any, read: Read) -> None:
    log["results"]["scores"] = [{"name": "x", "scorer": "x", "metrics": {"m": {"name": "m", "value": float("nan")}}}]
    rows, faults = read(log)
    assert brief(rows) == CALLS
    assert [(each.kind, each.lost) for each in faults] == [("nan", False)]


STRANGE = [None, 7, "x", [], {}, [None], True]


@pytest.mark.parametrize(
    "key", ["event", "timestamp", "completed", "id", "function", "arguments", "result", "error", "failed"]
)
def test_wrong_types_in_an_event_cost_no_other(log: Any, read: Read, key: str) -> None:
    for strange in STRANGE:
        spoiled = copy.deepcopy(log)
        spoiled["samples"][0]["events"][1][key] = strange
        rows, _ = read(spoiled)
        assert {each[3:] for each in brief(rows)} >= {("d2", "ok"), ("d3", "timeout"), ("w1", "denied")}
        assert "d1" in {each.call_id for each in rows}


@pytest.mark.parametrize("key", ["event", "timestamp", "completed", "model", "input", "tools", "output", "config"])
def test_wrong_types_in_a_turn_cost_no_other(log: Any, read: Read, key: str) -> None:
    for strange in STRANGE:
        spoiled = copy.deepcopy(log)
        spoiled["samples"][0]["events"][0][key] = strange
        rows, _ = read(spoiled)
        assert [each[3:] for each in brief(rows)] == [each[3:] for each in CALLS]


@pytest.mark.parametrize(
    "key", ["id", "epoch", "input", "target", "events", "messages", "attachments", "scores", "limit"]
)
def test_wrong_types_in_a_sample_cost_no_other(log: Any, read: Read, key: str) -> None:
    for strange in STRANGE:
        spoiled = copy.deepcopy(log)
        spoiled["samples"][0][key] = strange
        rows, _ = read(spoiled)
        assert brief(rows)[-1] == CALLS[-1]


def test_bad_message_is_located(log: Any, read: Read) -> None:
    log["samples"][1]["messages"][0] = {"role": "nobody"}
    rows, faults = read(log)
    assert brief(rows) == CALLS
    assert [(each.place, each.kind, each.lost) for each in faults] == [
        ("line 1, samples[1], messages[0]", "bad-event", True)
    ]


def test_unknown_member_is_noted(log: Any, read: Read) -> None:
    rows, faults = read(archive(log).replace(b"samples/plots", b"sampler/plots"))
    assert brief(rows) == CALLS[3:]
    assert [(each.place, each.kind) for each in faults] == [("sampler/plots_epoch_1.json", "unknown-member")]


def test_missing_library_says_what_to_install(traces: Path, read_trace: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = builtins.__import__

    def without(name: str, *more: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "inspect_ai":
            raise ImportError(name)
        return sound(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r"pip install invsim\[inspect\]"):
        read_trace(traces / "inspect" / "log.json", "inspect")
