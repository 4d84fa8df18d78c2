"""The native format: every field comes back, and a fault costs no more than the row it stands in."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from invsim.errors import InputError
from invsim.traces import writing
from invsim.traces.columns import dtypes, frame
from invsim.traces.native import NATIVE
from invsim.traces.reader import HEAD, Fault, Faults
from invsim.traces.schema import Call, Fix, Op
from invsim.traces.writing import JsonLinesWriter, ParquetWriter, open_writer, write_calls

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
WHOLE = st.integers(-(2**63), 2**63 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OPS = st.lists(
    st.builds(Op, op=st.sampled_from(["add", "replace", "remove"]), path=TEXT, value=JSON, when=st.none() | TEXT),
    max_size=2,
).map(tuple)
FIXES = st.lists(
    st.builds(Fix, fix_id=TEXT, ops=OPS, valid_from=st.none() | TEXT, valid=st.none() | st.booleans()), max_size=2
).map(tuple)
GIVEN: dict[str, st.SearchStrategy[Any]] = {
    "request": JSON,
    "response": JSON,
    "hint": OPS,
    "injected": FIXES,
    "warnings": st.lists(TEXT, max_size=2).map(tuple),
    "order_source": st.sampled_from(["index", "parent", "timestamp", "flattened"]),
    "parse_status": st.sampled_from(["ok", "invalid", "truncated", "double_encoded"]),
    "outcome": st.sampled_from(["ok", "error", "denied", "timeout", "not_executed", "missing"]),
    "error_source": st.sampled_from(["flag", "status", "predicate", "none"]),
}


def strategy(field: msgspec.structs.FieldInfo) -> st.SearchStrategy[Any]:
    if field.name in GIVEN:
        return GIVEN[field.name]
    plain = WHOLE if dtypes()[field.name] == pl.Int64 else TEXT
    return st.none() | plain if field.default is None else plain


CALLS = st.lists(st.builds(Call, **{field.name: strategy(field) for field in msgspec.structs.fields(Call)}), max_size=4)
GOOD = Call(episode_id="e", step=1, tool="pay", outcome="ok")


def read(path: Path) -> tuple[list[Call], list[Fault]]:
    faults = Faults(path.name)
    return list(NATIVE.read(path, faults)), faults.found


def line(**fields: Any) -> bytes:
    return msgspec.json.encode({"episode_id": "e", "step": 1, "tool": "pay", "outcome": "ok"} | fields) + b"\n"


def detected(path: Path) -> bool:
    return NATIVE.detect(path.read_bytes()[:HEAD], path)


# Round trips ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
@given(calls=CALLS)
def test_every_field_comes_back(suffix: str, calls: list[Call], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("t") / f"x{suffix}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "PART", 2)
        assert write_calls(path, iter(calls)) == len(calls)
    back, faults = read(path)
    assert faults == []
    assert back == calls
    assert list(map(repr, back)) == list(map(repr, calls))  # 1 and 1.0 are equal, and not the same


def test_the_two_kinds_of_file_hold_the_same(tmp_path: Path) -> None:
    calls = [GOOD, msgspec.structs.replace(GOOD, request={"a": [1, 1.0, None]}, hint=(Op("add", "/a", None),))]
    for suffix in (".jsonl", ".parquet"):
        write_calls(tmp_path / f"x{suffix}", calls)
        assert detected(tmp_path / f"x{suffix}")
    assert read(tmp_path / "x.jsonl") == read(tmp_path / "x.parquet") == (calls, [])


def test_parquet_holds_composites_as_json_text(tmp_path: Path) -> None:
    write_calls(tmp_path / "x.parquet", [msgspec.structs.replace(GOOD, hint=(Op("remove", "/a"),))])
    row = pl.read_parquet(tmp_path / "x.parquet").row(0, named=True)
    assert row["hint"] == '[{"op":"remove","path":"/a"}]'
    assert row["warnings"] is None
    assert list(row) == list(Call.__struct_fields__)


def test_a_file_of_another_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.jsonl or \.parquet"):
        open_writer(tmp_path / "x.csv")


def test_a_row_is_in_the_file_as_soon_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    with JsonLinesWriter(path) as writer:
        writer.write(GOOD)
        assert read(path) == ([GOOD], [])


def test_appending_after_a_crash_spoils_no_row(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(line() + b'{"episode_id": "e", "st')
    with JsonLinesWriter(path, append=True) as writer:
        writer.write(GOOD)
    calls, faults = read(path)
    assert calls == [GOOD, GOOD]
    assert [(each.place, each.kind) for each in faults] == [("line 2", "not-json")]


def test_a_failed_parquet_file_is_not_there(tmp_path: Path) -> None:
    def broken(writer: ParquetWriter) -> None:
        with writer:
            writer.write(GOOD)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        broken(ParquetWriter(tmp_path / "x.parquet"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["a[1].parquet", "*.parquet", "~/x.parquet", "file:/x.parquet", "s3:/x.parquet", "odd-\udcff/x.parquet"]
)
@pytest.mark.parametrize("rows", [1, 2, 3, 7, 13])
def test_parquet_is_written_where_its_name_says(
    name: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row by row in their order, whether it takes one part, or several, or more than are opened together."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(writing, "PART", 2)
    monkeypatch.setattr(writing, "TOGETHER", 2)
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    calls = [msgspec.structs.replace(GOOD, step=at) for at in range(rows)]
    assert write_calls(path, calls) == rows
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == [tmp_path / path]
    assert read(path) == (calls, [])


# Faults of lines -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "place", "kind"),
    [
        (line(step="1"), "line 2, step", "wrong-value"),
        (line(step=1.5), "line 2, step", "wrong-value"),
        (line(step=2**63), "line 2, step", "wrong-value"),
        (line(outcome="odd"), "line 2, outcome", "wrong-value"),
        (line(hint=[{"op": "add"}]), "line 2, hint[0]", "wrong-value"),
        (line(tool=None), "line 2, tool", "missing-field"),
        (b'{"episode_id": "e", "step": 1, "outcome": "ok"}\n', "line 2, tool", "missing-field"),
        (b"[1]\n", "line 2", "not-an-object"),
        (b"garbage\n", "line 2", "not-json"),
        (line(response=None).replace(b"null", b"NaN"), "line 2", "not-json"),
        (line(tool="\u00e9").replace(b"\xc3", b""), "line 2", "not-utf-8"),
        (b'{"response": ' + b"[" * 100_000 + b"\n", "line 2", "not-json"),
        (b"\0\0\0\0\n", "line 2", "nul-bytes"),
    ],
)
def test_a_bad_line_costs_itself_alone(bad: bytes, place: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(line() + bad + line(step=3))
    calls, (fault,) = read(path)
    assert [call.step for call in calls] == [1, 3]
    assert (fault.file, fault.place, fault.kind, fault.lost) == ("x.jsonl", place, kind, True)
    assert fault.message
    assert detected(path)


@pytest.mark.parametrize(
    ("bad", "says"), [(b'{"colour":' * 100_000, "nested too deeply"), (b'{"colour": 1, "step": 2', "truncated")]
)
def test_a_line_that_is_not_json_says_so_whatever_its_first_field(bad: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(line() + bad + b"\n")
    _, (fault,) = read(path)
    assert (fault.place, fault.kind) == ("line 2", "not-json")
    assert says in fault.message


def test_marks_and_line_ends_of_other_systems_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + line().replace(b"\n", b"\r\n") + b"\r\n\n" + line(step=2))
    calls, faults = read(path)
    assert ([call.step for call in calls], faults) == ([1, 2], [])
    assert detected(path)


def test_nul_bytes_before_a_row_are_told_and_the_row_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(line() + b"\0\0\0" + line(step=2))
    calls, (fault,) = read(path)
    assert ([call.step for call in calls], fault.kind, fault.lost) == ([1, 2], "nul-bytes", False)


def test_an_unknown_field_is_told_once_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(line(llm_args={"key": "secret"}) * 3 + line(note=1))
    calls, faults = read(path)
    assert calls == [GOOD] * 4
    assert [(each.place, each.kind, each.lost) for each in faults] == [
        ("line 1, llm_args", "unknown-field", False),
        ("line 4, note", "unknown-field", False),
    ]
    assert "secret" not in str(faults)


def test_null_stands_for_the_default(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(line(seq=None, warnings=None, hint=None, parse_status=None, model=None))
    assert read(path) == ([GOOD], [])


@pytest.mark.parametrize(
    ("torn", "marked"),
    [
        (b'{"episode_id":"e","ste', True),
        (b'{"epis', True),
        (b'{"episode_id":"another","ste', False),
    ],
)
def test_a_torn_end_is_told_on_the_episode_it_belongs_to(torn: bytes, marked: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(line() + line(step=2) + torn)
    calls, (fault,) = read(path)
    assert (fault.place, fault.kind) == ("line 3", "torn-line")
    assert [call.warnings for call in calls] == [(), ("torn",) if marked else ()]


# Faults of columns ---------------------------------------------------------------------------------------------------


def columns(path: Path, change: Callable[[pl.DataFrame], pl.DataFrame]) -> tuple[list[Call], list[Fault]]:
    calls = [msgspec.structs.replace(GOOD, step=step, request={"a": step}) for step in (1, 2, 3)]
    change(frame(calls)).write_parquet(path)
    return read(path)


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("outcome", "odd", "wrong-value"),
        ("outcome", None, "missing-field"),
        ("tool", None, "missing-field"),
        ("parse_status", "odd", "wrong-value"),
        ("request", "{", "wrong-value"),
        ("request", "[" * 100_000, "wrong-value"),
        ("hint", '[{"op": "add"}]', "wrong-value"),
        ("injected", '[{"fix_id": 1, "ops": []}]', "wrong-value"),
        ("warnings", '"one"', "wrong-value"),
    ],
)
def test_a_bad_value_costs_its_row_alone(name: str, value: str | None, kind: str, tmp_path: Path) -> None:
    def spoil(rows: pl.DataFrame) -> pl.DataFrame:
        return rows.with_columns(
            pl.when(pl.col("step") == 2).then(pl.lit(value, dtype=pl.String)).otherwise(pl.col(name)).alias(name)
        )

    calls, (fault,) = columns(tmp_path / "x.parquet", spoil)
    assert [call.step for call in calls] == [1, 3]
    assert (fault.place, fault.kind, fault.lost) == (f"row 2, {name}", kind, True)


def test_a_response_that_cannot_be_read_is_left_out_of_its_row(tmp_path: Path) -> None:
    calls, faults = columns(tmp_path / "x.parquet", lambda rows: rows.with_columns(response=pl.lit("{")))
    assert [call.response for call in calls] == [None] * 3
    assert {(each.kind, each.lost) for each in faults} == {("unreadable-response", False)}


def test_columns_may_lack_or_be_null_or_of_a_like_type(tmp_path: Path) -> None:
    def change(rows: pl.DataFrame) -> pl.DataFrame:
        kept = rows.select("episode_id", "step", "tool", "outcome", "seq", "parse_status")
        return kept.with_columns(
            pl.col("step").cast(pl.UInt8), pl.col("tool").cast(pl.Categorical), pl.lit(None).alias("seq"), note=1
        )

    calls, (fault,) = columns(tmp_path / "x.parquet", change)
    assert calls == [msgspec.structs.replace(GOOD, step=step) for step in (1, 2, 3)]
    assert (fault.place, fault.kind, fault.lost) == ("column note", "unknown-field", False)


@pytest.mark.parametrize(
    ("change", "place", "kind"),
    [
        (lambda rows: rows.with_columns(pl.col("step").cast(pl.String)), "column step", "wrong-type"),
        (lambda rows: rows.with_columns(hint=pl.lit([1])), "column hint", "wrong-type"),
        (lambda rows: rows.drop("tool"), "column tool", "missing-field"),
    ],
)
def test_a_wrong_column_costs_its_file(
    change: Callable[[pl.DataFrame], pl.DataFrame], place: str, kind: str, tmp_path: Path
) -> None:
    calls, (fault,) = columns(tmp_path / "x.parquet", change)
    assert (calls, fault.place, fault.kind) == ([], place, kind)
    assert detected(tmp_path / "x.parquet")


def test_a_torn_parquet_file_is_told(tmp_path: Path) -> None:
    write_calls(tmp_path / "x.parquet", [GOOD] * 100)
    whole = (tmp_path / "x.parquet").read_bytes()
    (tmp_path / "x.parquet").write_bytes(whole[: len(whole) // 2])
    assert detected(tmp_path / "x.parquet")
    calls, (fault,) = read(tmp_path / "x.parquet")
    assert (calls, fault.kind) == ([], "torn-file")


# Detection -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content", [b"", b"a,b\n1,2\n", b'{"messages": []}\n', b'{"episode_id": "e"}\n', b"\0\0\0", b"PK\3\4", b"[1]"]
)
def test_other_files_are_not_taken_for_native(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(content)
    assert not detected(tmp_path / "x.jsonl")


def test_other_parquet_is_not_taken_for_native(tmp_path: Path) -> None:
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "x.parquet")
    assert not detected(tmp_path / "x.parquet")


def test_a_file_is_known_by_any_whole_line_and_by_a_line_too_long_for_its_head(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"garbage\n" + line())
    assert detected(tmp_path / "x")
    (tmp_path / "y").write_bytes(line(response="x" * HEAD))
    assert detected(tmp_path / "y")
