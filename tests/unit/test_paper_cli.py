"""``invsim paper``: what it writes, when it writes nothing, and what --check and --audit say."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from invsim.cli import main
from invsim.paper import manifest
from invsim.paper.artifacts import FIGURES, TABLES, Artifact, register_figure
from invsim.paper.audit import Audit
from invsim.paper.claims import MEANINGS
from invsim.paper.context import Context

Capsys = pytest.CaptureFixture[str]


def printed(capsys: Capsys, *args: str, code: int = 0) -> str:
    assert main(["paper", *args]) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_empty_folder_gets_the_files_and_their_manifest(folder: Path, capsys: Capsys) -> None:
    out = printed(capsys, "--only", "table1")
    files = sorted(path.name for path in (folder / "paper_tables").iterdir())
    assert files == ["manifest.json", "table1.csv", "table1.md", "table1.tex"]
    assert not (folder / "figures").exists()
    assert out.count("written") == 3
    entries = json.loads((folder / "paper_tables" / "manifest.json").read_bytes())["files"]
    assert list(entries) == files[1:]
    for name, entry in entries.items():
        assert entry["sha256"] == manifest.digest((folder / "paper_tables" / name).read_bytes())
        assert (entry["artifact"], entry["seed"], entry["streams"]) == ("table1", 1, 20_000)
        assert set(entry["versions"]) == {"invsim", "python", "numpy", "polars", "matplotlib"}
    assert len({entry["data"] for entry in entries.values()}) == 1


def test_a_second_run_changes_no_byte_and_touches_no_file(folder: Path, capsys: Capsys) -> None:
    def state() -> dict[str, tuple[bytes, int]]:
        paths = (folder / "paper_tables").iterdir()
        return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}

    printed(capsys, "--only", "table7", "--replications", "60")
    before = state()
    out = printed(capsys, "--only", "table7", "--replications", "60")
    assert out.count("up to date") == 3
    assert state() == before


def test_folders_can_be_named(folder: Path, capsys: Capsys) -> None:
    printed(capsys, "--only", "table2", "--tables", "t", "--figures", "f")
    assert (folder / "t" / "table2.md").is_file()
    rows = json.loads(printed(capsys, "--only", "table2", "--out", "o", "--json"))
    assert {row["file"] for row in rows} == {f"o/paper_tables/table2.{suffix}" for suffix in ("csv", "md", "tex")}
    assert {row["state"] for row in rows} == {"written"}


def test_one_artifact_joins_the_others_in_the_manifest(folder: Path, capsys: Capsys) -> None:
    printed(capsys, "--only", "table1")
    printed(capsys, "--only", "table2")
    assert len(json.loads((folder / "paper_tables" / "manifest.json").read_bytes())["files"]) == 6


# --check -------------------------------------------------------------------------------------------------------------


def test_a_check_goes_by_the_seed_and_streams_of_the_manifest(capsys: Capsys) -> None:
    printed(capsys, "--only", "table7", "--seed", "5", "--replications", "60")
    assert printed(capsys, "--only", "table7", "--check") == "3 files are up to date\n"
    out = printed(capsys, "--only", "table7", "--check", "--seed", "6", code=1)
    assert out.count("shows other data than would be made now") == 3


def test_a_check_names_each_file_that_is_not_what_it_would_be(folder: Path, capsys: Capsys) -> None:
    printed(capsys, "--only", "table1")
    tables = folder / "paper_tables"
    (tables / "table1.md").write_text("edited", encoding="utf-8")
    (tables / "table1.tex").unlink()
    before = {path.name: path.read_bytes() for path in tables.iterdir()}
    assert printed(capsys, "--only", "table1", "--check", code=1).splitlines() == [
        "paper_tables/table1.md: is not the file that the manifest has",
        "paper_tables/table1.tex: is missing",
    ]
    assert {path.name: path.read_bytes() for path in tables.iterdir()} == before
    found = json.loads(printed(capsys, "--only", "table1", "--check", "--json", code=1))
    assert (found["files"], len(found["stale"]), found["notes"]) == (3, 2, [])


def test_what_is_all_missing_or_altered_is_not_made_again(tmp_path: Path) -> None:
    def made(_: Context) -> tuple[str, dict[str, bytes]]:
        nonlocal times
        times += 1
        return "data", {"a.md": b"a", "a.csv": b"1"}

    times = 0
    artifact = Artifact("a", TABLES, ("a.md", "a.csv"), made)
    folders = {TABLES: tmp_path, FIGURES: tmp_path / "figures"}
    bare = manifest.check([artifact], folders)
    assert (times, bare.files, len(bare.stale)) == (0, 2, 2)
    manifest.write([artifact], Context(1, 60), folders)
    assert (manifest.check([artifact], folders, whole=False).stale, times) == ((), 2)
    (tmp_path / "a.md").write_bytes(b"b")
    assert (len(manifest.check([artifact], folders, whole=False).stale), times) == (1, 3)
    (tmp_path / "a.csv").unlink()
    found = manifest.check([artifact], folders, whole=False).stale
    assert [line.rpartition(": ")[2] for line in found] == ["is not the file that the manifest has", "is missing"]
    assert times == 3


def test_a_manifest_that_is_none_is_said_in_a_line(folder: Path, capsys: Capsys) -> None:
    (folder / "paper_tables").mkdir()
    (folder / "paper_tables" / "manifest.json").write_text('{"files": 3}', encoding="utf-8")
    assert main(["paper", "--only", "table1", "--check"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "paper_tables/manifest.json: is not a manifest" in captured.err


def drawing(data: list[dict[str, Any]], content: bytes) -> Artifact:
    return Artifact("plot", FIGURES, ("plot.svg",), lambda _: (data, {"plot.svg": content}))


@pytest.fixture
def stale(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., manifest.Checked]:
    """Write an artifact, and check another in its place; optionally as if libraries had moved on in between."""
    folders = {TABLES: folder / "t", FIGURES: folder / "f"}

    def checked(old: Artifact, new: Artifact, *, newer: bool = False) -> manifest.Checked:
        manifest.write([old], Context(), folders)
        if newer:
            later = manifest.versions() | {"matplotlib": "99.1"}
            monkeypatch.setattr(manifest, "versions", lambda: later)
        return manifest.check([new], folders)

    return checked


def test_figures_of_other_versions_are_compared_by_data(stale: Callable[..., manifest.Checked]) -> None:
    found = stale(drawing([{"x": 1}], b"old"), drawing([{"x": 1}], b"new"), newer=True)
    assert found.stale == ()
    assert len(found.notes) == 1
    assert "by the data they show" in found.notes[0]
    assert "99.1 now" in found.notes[0]


def test_other_data_is_stale_whatever_drew_it(stale: Callable[..., manifest.Checked]) -> None:
    found = stale(drawing([{"x": 1}], b"old"), drawing([{"x": 2}], b"new"), newer=True)
    assert [line.partition(": ")[2] for line in found.stale] == ["shows other data than would be made now"]


def test_the_same_versions_draw_the_same_bytes(stale: Callable[..., manifest.Checked]) -> None:
    found = stale(drawing([{"x": 1}], b"old"), drawing([{"x": 1}], b"new"))
    assert [line.partition(": ")[2] for line in found.stale] == ["shows the same data, drawn otherwise"]


def test_a_table_is_compared_by_its_bytes_whatever_wrote_it(stale: Callable[..., manifest.Checked]) -> None:
    def table(content: bytes) -> Artifact:
        return replace(drawing([], b""), folder=TABLES, make=lambda _: ([], {"plot.svg": content}))

    assert len(stale(table(b"old"), table(b"new"), newer=True).stale) == 1


def test_a_file_that_is_made_no_more_is_stale(stale: Callable[..., manifest.Checked]) -> None:
    other = Artifact("other", FIGURES, ("other.svg",), lambda _: ([], {"other.svg": b""}))
    lines = [line.partition(": ")[2] for line in stale(drawing([], b""), other).stale]
    assert lines == ["is missing", "is in the manifest, and made no more"]


def test_a_figure_is_drawn_to_the_same_bytes_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    monkeypatch.setattr("invsim.paper.artifacts._artifacts", {})

    def draw() -> tuple[Figure, list[dict[str, float]]]:
        figure = Figure(figsize=(1, 1))
        figure.subplots().plot([1, 2])
        return figure, [{"y": 1.0}, {"y": 2.0}]

    artifact = register_figure("line", draw)
    assert artifact.files == ("line.svg", "line.png")
    first, second = (artifact.made(Context()) for _ in range(2))
    assert first == second
    assert first[0] == [{"y": 1.0}, {"y": 2.0}]
    assert first[1]["line.png"].startswith(b"\x89PNG")


# --audit -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audit a few numbers, one of each status, in place of all."""
    from invsim.paper.claims import claims

    some = ("s32.nodes", "t5.retries.A2DO", "t3.gain.gemini-3.5-flash", "s5.frequency.haiku.low", "s32.fingerprint")
    mine = [claim for claim in claims() if claim.id in some or claim.id == "t3.compliance.claude-haiku-4-5.A1"]
    monkeypatch.setattr("invsim.paper.sheets.Audit", lambda context: Audit(context, mine))


@pytest.mark.usefixtures("shared")
def test_an_audit_counts_by_status_and_writes_nothing(folder: Path, capsys: Capsys) -> None:
    data = json.loads(printed(capsys, "--audit", "--json", "--replications", "60"))
    assert list(data) == ["total", *MEANINGS, "drifted_integers", "rows"]
    assert [data[status] for status in MEANINGS] == [1, 1, 1, 1, 1, 1, 0]
    assert data["total"] == len(data["rows"]) == 6
    text = printed(capsys, "--audit", "--replications", "60")
    assert "unexplained" in text
    assert "Table 3: rise of compliance from A1 to A2D: 48.2, worked out 48.15" in text
    assert list(folder.iterdir()) == []


@pytest.mark.usefixtures("shared")
def test_an_unexplained_number_fails_the_audit(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("invsim.paper.structures.load_domain", lambda _: (_ for _ in ()).throw(AssertionError))
    from invsim.paper.structures import STRUCTURES

    monkeypatch.setitem(STRUCTURES, "nodes", lambda *_: 24)
    assert "graph: 23, worked out 24" in printed(capsys, "--audit", "--replications", "60", code=1)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("--out a --tables b", "--out: names both folders"),
        ("--audit --check", "--audit: stands alone"),
        ("--audit --only table1", "--audit: stands alone"),
        ("--only tabel1", "--only: unknown artifact 'tabel1': did you mean 'table1'?"),
        ("--seed -1", "--seed"),
        ("--replications 2", "--replications"),
    ],
)
def test_options_that_make_no_sense_are_refused(args: str, says: str, capsys: Capsys) -> None:
    assert main(["paper", *args.split()]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert captured.err.count("\n") == 1
