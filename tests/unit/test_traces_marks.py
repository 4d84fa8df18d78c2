"""Episodes that are in two files are told: they would count twice, and make an estimate surer than it is."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from invsim.errors import InputError
from invsim.traces.marks import Common, in_common, no_marks
from invsim.traces.read import read_tally
from invsim.traces.schema import Call
from invsim.traces.writing import write_calls


def episode(name: str, **fields: Any) -> list[Call]:
    first = Call(episode_id=name, step=1, tool="pay", outcome="error", request={"qty": 50}, model="m")
    second = {"outcome": "ok", "request": {"qty": 10}, **fields}
    return [first, Call(episode_id=name, step=2, tool="pay", model="m", **second)]


ALL = [*episode("a"), *episode("b"), *episode("c")]


@pytest.mark.parametrize(
    ("name", "calls", "repeated"),
    [
        ("copy.jsonl", ALL, 3),
        ("copy.parquet", ALL, 3),
        ("reversed.parquet", ALL[::-1], 3),
        ("part.jsonl", [*ALL[:2], *episode("d")], 1),
        ("torn.jsonl", ALL[:5], 2),
        ("request.jsonl", episode("a", request={"qty": 9}), 0),
        ("outcome.parquet", episode("a", outcome="error"), 0),
        ("seed.jsonl", episode("a", seed="2"), 0),
    ],
)
def test_an_episode_is_the_same_where_all_its_calls_are(
    name: str, calls: list[Call], repeated: int, tmp_path: Path
) -> None:
    paths = [tmp_path / "first.jsonl", tmp_path / name]
    write_calls(paths[0], ALL)
    write_calls(paths[1], calls)
    found, (first, second) = read_tally(paths)
    assert found.episodes["n"].sum() == 3 + second.episodes  # what is repeated counts, and is told
    assert first.faults == 0
    if not repeated:
        assert second.faults == 0
        return
    assert (second.skipped, second.noted) == ({}, {"repeated-episodes": 1})
    what = f"{paths[1]}: repeated-episodes: {repeated} episodes are in {paths[0]} too, call for call"
    assert second.warnings == [f"{what}; if they are the same ones, they count twice"]
    with pytest.raises(InputError, match="repeated-episodes"):
        read_tally(paths, strict=True)


def test_what_files_have_in_common_names_the_first_that_has_it() -> None:
    files = [np.array(each, np.uint64) for each in ([5, 2**64 - 1], [], [7, 5], [7, 5, 2**64 - 1], [1])]
    assert in_common(files) == [Common(2, 0, 1), Common(3, 0, 2), Common(3, 2, 1)]
    assert in_common([no_marks(), no_marks()]) == in_common([]) == []
