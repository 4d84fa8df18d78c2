"""Files that appear whole or not at all."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from invsim.errors import InputError
from invsim.files import entries, write_whole


def test_writers_of_one_file_do_not_trip_over_each_other(tmp_path: Path) -> None:
    texts = [bytes([65 + at]) * 200_000 for at in range(4)]

    def write(text: bytes) -> bool:
        for _ in range(25):
            write_whole(tmp_path / "file", text)
            if (tmp_path / "file").read_bytes() not in texts:
                return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(write, texts)) == [True] * 4
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_file_that_cannot_be_written_is_one_line_and_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole(tmp_path / "file", b"old")
    with pytest.raises(InputError, match=r"^.*file/below: cannot be written: Not a directory"):
        write_whole(tmp_path / "file" / "below", b"new")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match="file: cannot be written: No space left on device"):
        write_whole(tmp_path / "file", b"new")
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"old")]


def test_what_a_killed_writer_left_is_no_entry(tmp_path: Path) -> None:
    (tmp_path / ".study.json.77-ab.unfinished").write_text("{")
    assert entries(tmp_path) == entries(tmp_path / "missing") == []
    write_whole(tmp_path / "study.json", b"{}")
    assert [path.name for path in entries(tmp_path)] == ["study.json"]
