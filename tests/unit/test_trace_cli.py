"""``invsim trace``: what was read, what is wrong with it, and where."""

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from invsim.cli import main
from invsim.errors import InputError
from invsim.traces import reader as readers
from invsim.traces.native import NATIVE
from invsim.traces.reader import Faults, register_reader
from invsim.traces.schema import Call, Op
from invsim.traces.writing import write_calls

Capsys = pytest.CaptureFixture[str]
TEN = Op("replace", "/qty", 10)
CALLS = [
    Call(episode_id="a", model="m", step=1, tool="pay", outcome="error", request={"qty": 50}, hint=(TEN,)),
    Call(episode_id="a", model="m", step=2, tool="pay", outcome="ok", request={"qty": 10}),
    Call(episode_id="b", model="n", step=1, tool="look", outcome="denied"),
]


class Csv:
    """A format of two columns, which is never read without a doubt."""

    name = "test-csv"

    def detect(self, head: bytes, path: Path) -> bool:
        return head.startswith(b"episode,tool\n")

    def read(self, path: Path, faults: Faults) -> Iterator[Call]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines()[1:], 2):
            episode, tool = line.split(",")
            faults.add(f"line {number}", "no-outcome", "taken for a success", lost=False)
            yield Call(episode_id=episode, step=number, tool=tool, outcome="ok")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_calls("good.jsonl", CALLS)
    write_calls("good.parquet", CALLS)
    bad = Path("good.jsonl").read_bytes().splitlines(keepends=True)
    Path("bad.jsonl").write_bytes(bad[0] + b'{"episode_id":"x","step":"1","tool":"t","outcome":"ok"}\n' + b'{"epis')
    Path("empty.jsonl").write_bytes(b"")
    return tmp_path


def trace(capsys: Capsys, *args: str) -> str:
    assert main(["trace", *args]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def trace_json(capsys: Capsys, *args: str) -> Any:
    return json.loads(trace(capsys, *args, "--json"))


def refused(capsys: Capsys, *args: str) -> str:
    assert main(["trace", *args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("invsim: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize("file", ["good.jsonl", "good.parquet"])
def test_check_says_what_was_read(file: str, capsys: Capsys) -> None:
    assert trace_json(capsys, "check", file, "--strict") == [
        {
            "file": file, "format": "native", "episodes": 2, "calls": 3, "errors": 1, "retries": None,
            "skipped": {}, "noted": {}, "warnings": [],
        }
    ]  # fmt: skip
    header, row = trace(capsys, "check", file).splitlines()
    assert header.split() == ["file", "format", "episodes", "calls", "errors", "lost", "doubtful"]
    assert row.split() == [file, "native", "2", "3", "1", "-", "-"]


def test_check_counts_kinds_first_and_then_locates_each_fault(capsys: Capsys) -> None:
    lines = trace(capsys, "check", "bad.jsonl", "good.jsonl", "missing.jsonl").splitlines()
    assert "1 torn-line, 1 wrong-value" in lines[1]
    assert [line.split(": ")[:2] for line in lines[4:]] == [
        ["bad.jsonl:line 2, step", "wrong-value"],
        ["bad.jsonl:line 3", "torn-line"],
        ["missing.jsonl", "unreadable-file"],
    ]
    assert "bad.jsonl:line 2, step: wrong-value: Expected int, got str" in refused(
        capsys, "check", "good.jsonl", "bad.jsonl", "--strict"
    ).replace("invsim: ", "")


def test_check_shows_the_first_of_many_faults(capsys: Capsys) -> None:
    Path("many.jsonl").write_bytes(Path("good.jsonl").read_bytes() + b"x\n" * 150)
    lines = trace(capsys, "check", "many.jsonl").splitlines()
    assert len(lines) == 2 + 100 + 1
    assert lines[-1] == "many.jsonl: 50 more are counted, and not shown"


@pytest.mark.parametrize("command", [["check"], ["summary"], ["convert", "--out", "out.jsonl"]])
@pytest.mark.parametrize(
    ("file", "says"),
    [("empty.jsonl", "is empty"), ("missing.jsonl", "No such file"), (".", "is a folder")],
)
def test_files_of_which_none_can_be_read_are_refused(command: list[str], file: str, says: str, capsys: Capsys) -> None:
    assert says in refused(capsys, *command, file)
    assert "and 1 more files cannot be read" in refused(capsys, *command, file, "gone.jsonl")
    assert "trace format 'odd'" in refused(capsys, *command, "good.jsonl", "--format", "odd")


def test_names_in_a_log_send_no_commands_to_the_terminal(capsys: Capsys) -> None:
    write_calls("odd\n.jsonl", [Call(episode_id="a", model="m\n\x1b[31m", step=1, tool="\x9b2J", outcome="ok")])
    text = trace(capsys, "summary", "odd\n.jsonl")
    assert r"m\n\x1b[31m  \x9b2J" in text
    assert r"odd\n.jsonl" in text
    assert all(each.isprintable() or each == "\n" for each in text)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are of Unix")
@pytest.mark.parametrize("command", [["trace", "check"], ["trace", "summary"], ["fit"]])
def test_a_pipe_is_refused_and_not_taken_for_an_empty_log(command: list[str], capsys: Capsys) -> None:
    os.mkfifo("pipe.jsonl")
    assert main([*command, "pipe.jsonl"]) == 2
    assert "pipe.jsonl: unreadable-file: is no file but a pipe or a device" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["check"], ["summary"], ["convert", "--out", "out.jsonl"]])
def test_a_file_given_twice_would_count_twice(command: list[str], capsys: Capsys) -> None:
    assert "good.jsonl: is given twice" in refused(capsys, *command, "good.jsonl", "./good.jsonl")


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (gzip.compress(b"{}"), "is compressed (gzip); unpack it first"),
        ('{"episode_id":"a"}'.encode("utf-16"), "is UTF-16 text; write it as UTF-8 first"),
        (b"PK\x03\x04", "unpack it first"),
        (b"BZh9", "(bzip2)"),
    ],
)
def test_a_file_that_must_be_unpacked_says_so(head: bytes, says: str, capsys: Capsys) -> None:
    Path("packed.jsonl").write_bytes(head)
    assert says in refused(capsys, "check", "packed.jsonl")


@pytest.mark.parametrize("command", [["check"], ["summary"], ["convert", "--out", "x.jsonl"]])
def test_a_circle_of_links_is_a_file_that_cannot_be_read(command: list[str], capsys: Capsys) -> None:
    os.symlink("loop", "loop")
    assert refused(capsys, *command, "loop") == (
        "invsim: loop: unreadable-file: cannot be read: Too many levels of symbolic links\n"
    )


@pytest.mark.parametrize("command", ["trace summary", "trace check", "trace convert --out x.jsonl", "fit"])
def test_a_file_that_may_not_be_read_does_not_lose_the_others(
    command: str, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened(path: Path, *args: Any, **kwargs: Any) -> Any:
        if path.name == "secret.jsonl":
            raise PermissionError(13, "Permission denied")
        return whole(path, *args, **kwargs)

    Path("secret.jsonl").touch()
    whole = Path.open
    monkeypatch.setattr(Path, "open", opened)
    monkeypatch.setattr(os, "access", lambda path, *_, **__: str(path) != "secret.jsonl")
    assert main([*command.split(), "secret.jsonl", "good.jsonl"]) == 0
    out, err = capsys.readouterr()
    assert "secret.jsonl: unreadable-file: cannot be read: Permission denied" in out + err


def test_a_table_shows_a_name_as_it_is(capsys: Capsys) -> None:
    name = r"a\[1\][red].jsonl"
    Path("good.jsonl").rename(name)
    assert name in trace(capsys, "summary", name)


@pytest.mark.parametrize("command", [["check"], ["summary"], ["convert", "--out", "x.jsonl"]])
def test_of_damaged_parquet_nothing_is_heard_but_what_is_wrong_with_it(
    command: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    data = Path("good.parquet").read_bytes()
    Path("bad.parquet").write_bytes(data[:4] + bytes(600) + data[604:])
    assert main(["trace", *command, "good.jsonl", "bad.parquet"]) == 0
    out, err = capfd.readouterr()
    assert "1 torn-rows" in out
    assert err == ""
    assert main(["trace", *command, "--strict", "bad.parquet"]) == 2
    assert capfd.readouterr() == ("", "invsim: bad.parquet:rows 1 to 3: torn-rows: cannot be decoded\n")


def test_convert_puts_nothing_in_the_place_of_a_trace_where_no_call_can_be_read(capsys: Capsys) -> None:
    Path("torn.parquet").write_bytes(Path("good.parquet").read_bytes()[:-20])
    before = Path("good.jsonl").read_bytes()
    assert "torn.parquet:end of file: torn-file" in refused(capsys, "convert", "torn.parquet", "--out", "good.jsonl")
    assert Path("good.jsonl").read_bytes() == before
    assert "file is in the way" in refused(capsys, "convert", "good.parquet", "--out", "good.jsonl/x.jsonl")
    trace(capsys, "convert", "good.parquet", "torn.parquet", "--out", "out.jsonl")
    assert len(Path("out.jsonl").read_bytes().splitlines()) == len(CALLS)


@pytest.mark.parametrize("out", ["out.jsonl", "new/out.parquet"])
def test_convert_writes_what_it_read(out: str, capsys: Capsys) -> None:
    trace(capsys, "convert", "good.parquet", "--out", out)
    assert list(NATIVE.read(Path(out), Faults(out))) == CALLS


def test_convert_keeps_the_episodes_of_several_files_apart(capsys: Capsys) -> None:
    reports = trace_json(capsys, "convert", "good.parquet", "bad.jsonl", "--out", "out.jsonl")
    assert [report["calls"] for report in reports] == [3, 1]
    calls = list(NATIVE.read(Path("out.jsonl"), Faults("out.jsonl")))
    assert [(call.episode_id, call.task_id) for call in calls] == [
        ("1/a", "a"),
        ("1/a", "a"),
        ("1/b", "b"),
        ("2/a", "a"),
    ]


@pytest.mark.parametrize(
    ("out", "says"), [("x.csv", ".jsonl or .parquet"), ("good.jsonl", "to be read"), (".", "--out")]
)
def test_convert_refuses_where_it_cannot_write(out: str, says: str, capsys: Capsys) -> None:
    before = Path("good.jsonl").read_bytes()
    assert says in refused(capsys, "convert", "good.jsonl", "--out", out)
    assert Path("good.jsonl").read_bytes() == before


@pytest.mark.parametrize("out", ["out.jsonl", "out.parquet"])
def test_convert_leaves_nothing_behind_when_it_fails(out: str, here: Path, capsys: Capsys) -> None:
    before = set(here.iterdir())
    refused(capsys, "convert", "bad.jsonl", "--strict", "--out", out)
    refused(capsys, "convert", "empty.jsonl", "--out", out)
    assert set(here.iterdir()) == before


@pytest.mark.parametrize("file", ["good.jsonl", "good.parquet"])
def test_summary_counts_calls_trials_and_episodes(file: str, capsys: Capsys) -> None:
    found = trace_json(capsys, "summary", file)
    assert found["files"][0]["retries"] == 1
    assert found["calls"] == [
        {"model": "m", "tool": "pay", "outcome": "error", "n": 1},
        {"model": "m", "tool": "pay", "outcome": "ok", "n": 1},
        {"model": "n", "tool": "look", "outcome": "denied", "n": 1},
    ]
    assert found["trials"] == [
        {
            "model": "m", "kind": "recovery", "shape": "rewrite-a-value", "attribution": "certain",
            "result": "applied", "n": 1,
        }
    ]  # fmt: skip
    assert found["episodes"] == [
        {"model": "m", "shape": "rewrite-a-value", "injected": "nothing", "ended": "completed", "n": 1},
        {"model": "n", "shape": None, "injected": "nothing", "ended": "gave_up", "n": 1},
    ]
    text = trace(capsys, "summary", file)
    assert ["m", "recovery", "rewrite-a-value", "certain", "applied", "1"] in map(str.split, text.splitlines())


def test_a_registered_format_is_read_by_every_command(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_READERS", dict(readers._READERS))
    register_reader(Csv())
    Path("x.csv").write_text("episode,tool\na,pay\nb,look\n", encoding="utf-8")
    (report,) = trace_json(capsys, "check", "x.csv")
    assert (report["format"], report["calls"], report["noted"]) == ("test-csv", 2, {"no-outcome": 2})
    assert "no-outcome" in refused(capsys, "check", "x.csv", "--strict")
    assert trace_json(capsys, "summary", "x.csv")["episodes"][0]["n"] == 2
    trace(capsys, "convert", "x.csv", "--out", "out.parquet")
    assert [call.tool for call in NATIVE.read(Path("out.parquet"), Faults("x"))] == ["pay", "look"]


class Giving(Csv):
    """Knows its files, and cannot read them."""

    def read(self, path: Path, faults: Faults) -> Iterator[Call]:
        raise InputError("needs a library", where=str(path))


def test_a_file_that_its_reader_gives_up_does_not_lose_the_others(
    capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "_READERS", dict(readers._READERS))
    register_reader(Giving())
    Path("x.csv").write_text("episode,tool\na,pay\n", encoding="utf-8")
    assert main(["trace", "summary", "x.csv", "good.jsonl"]) == 0
    out, err = capsys.readouterr()
    assert err == "x.csv: unreadable-file: needs a library\n"
    assert "applied" in out
    assert "needs a library" in refused(capsys, "check", "x.csv")
    assert "needs a library" in refused(capsys, "check", "good.jsonl", "x.csv", "--strict")
