"""``invsim fit``: JSON as promised, model files that run, refusals of one line; and the figures of a fit."""

import json
from pathlib import Path
from typing import Any

import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from invsim.cli import main
from invsim.client.planners import load_model
from invsim.fit import cell_rows, fit, tally_from_counts
from invsim.report.figures import to_bytes
from invsim.report.figures.compliance import forest_figure, predictive_figure

PUBLISHED_COUNTS = Path(__file__).parents[1] / "data" / "published_counts.csv"
Capsys = pytest.CaptureFixture[str]
HEADER = "model,shape,kind,applied,trials,task,injected"
ROWS = (
    "a,add-a-field,first_attempt,8,10,t1,", "a,add-a-field,first_attempt,3,6,t2,", "a,add-a-field,recovery,5,5,t1,",
    "b,add-a-field,first_attempt,1,9,t1,", "b,rewrite-a-value,recovery,4,9,t1,",
    "a,add-a-field,first_attempt,1,4,t1,stale", "a,add-a-field,first_attempt,2,9,t1,nothing",
)  # fmt: skip


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "counts.csv"
    path.write_text("\n".join([HEADER, *ROWS]) + "\n", encoding="utf-8")
    return path


def printed(capsys: Capsys, *args: str) -> str:
    assert main(["fit", *args]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def refused(capsys: Capsys, *args: str) -> str:
    assert main(["fit", *args]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("invsim: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_the_json_of_a_fit(counts: Path, capsys: Capsys) -> None:
    data = json.loads(printed(capsys, "counts.csv", "--json"))
    (report,) = data["files"]
    assert report == {
        "file": "counts.csv", "format": "counts", "episodes": 0, "calls": 0, "errors": 0, "retries": 0, "skipped": {},
        "noted": {}, "warnings": [],
    }  # fmt: skip
    cells = {(cell["model"], cell["shape"], cell["kind"]): cell for cell in data["cells"]}
    assert len(cells) == len(data["cells"]) == 2 * 2 * 2
    cell = cells["a", "add-a-field", "first_attempt"]
    assert (cell["applied"], cell["trials"], cell["rate"], cell["status"]) == (11, 16, 11 / 16, "ok")
    assert cell["lo"] < cell["rate"] < cell["hi"]
    assert cell["cluster_lo"] < cell["lo"]
    assert 1 / 9 < cells["b", "add-a-field", "first_attempt"]["pooled"] < cell["pooled"] < 11 / 16
    missing = cells["b", "rewrite-a-value", "first_attempt"]
    assert (missing["status"], missing["trials"], missing["rate"], missing["lo"]) == ("no data", 0, None, None)
    parameters = {(row["model"], row["shape"], row["parameter"]): row for row in data["parameters"]}
    assert parameters["a", "add-a-field", "p_stale"]["trials"] == 4
    assert parameters["a", "add-a-field", "p_fresh"]["status"] == "unidentified"
    assert data["left_out"] == {}
    apart = json.loads(printed(capsys, "counts.csv", "--json", "--no-pool", "--cluster", "none"))
    assert all(cell["pooled"] is None for cell in apart["cells"])


def test_the_table_of_a_fit_says_what_is_not_known(counts: Path, capsys: Capsys) -> None:
    text = printed(capsys, "counts.csv")
    assert "11 of 16" in text
    assert "no data" in text
    assert "not identified: p_fresh, " not in text
    assert "not identified: p_fresh: no stale and valid fix were injected together" in text
    assert "p_stale of b add-a-field" in text


def test_one_model_is_a_file_and_several_are_a_folder_and_both_run(counts: Path, capsys: Capsys) -> None:
    text = printed(capsys, "counts.csv", "--out", "models")
    assert "wrote models/a.toml; try: invsim run payments --model models/a.toml" in text
    assert load_model("models/b.toml").uncertainty
    error = refused(capsys, "counts.csv", "--out", "all.toml")
    assert "--out: 2 models were fitted, a, b; name a folder for them (got 'all.toml')" in error
    counts.write_text("\n".join([HEADER, *(row for row in ROWS if row.startswith("a"))]), encoding="utf-8")
    printed(capsys, "counts.csv", "--out", "deep/down/one.toml")
    assert main(["run", "payments", "--model", "deep/down/one.toml", "--draws", "5", "--arms", "A2D", "--json"]) == 0
    run = json.loads(capsys.readouterr().out)
    assert run["arms"][0]["token_saving"]["fit_se"] > 0


def test_models_are_written_by_names_that_need_not_be_latin(counts: Path, capsys: Capsys) -> None:
    rows = ["../\u6a21\u578b,add-a-field,recovery,1,2,,", "\u0444,add-a-field,recovery,1,2,,"]
    counts.write_text("\n".join([HEADER, *rows]), encoding="utf-8")
    printed(capsys, "counts.csv", "--out", "models")
    assert sorted(path.name for path in Path("models").iterdir()) == ["\u0444.toml", "\u6a21\u578b.toml"]
    assert load_model("models/\u6a21\u578b.toml").name == "../\u6a21\u578b"


def test_models_whose_files_would_be_one_are_numbered_and_long_names_are_cut(counts: Path, capsys: Capsys) -> None:
    """One model as two providers name it is nothing odd, and neither is a name longer than a file's may be."""
    names = ["org/m-4", "org-m-4", "ORG m-4", "\u6a21" * 300, "\u6a21" * 299 + "x", "...", "$(reboot)"]
    rows = [f"{name},add-a-field,recovery,1,2,," for name in names]
    counts.write_text("\n".join([HEADER, *rows]), encoding="utf-8")
    text = printed(capsys, "counts.csv", "--out", "my models")
    cut = "\u6a21" * 60
    files = {
        "$(reboot)": "reboot", "...": "model", "ORG m-4": "ORG-m-4", "org-m-4": "org-m-4-2", "org/m-4": "org-m-4-3",
        names[4]: cut, names[3]: f"{cut}-2",
    }  # fmt: skip
    assert {path.stem for path in Path("my models").iterdir()} == set(files.values())
    for name, stem in files.items():
        assert load_model(f"my models/{stem}.toml").name == name
    path = "my models/org-m-4-3.toml"
    assert f"wrote {path} (org/m-4); try: invsim run payments --model '{path}'" in text


def test_a_file_is_not_written_where_a_folder_is(counts: Path, capsys: Capsys) -> None:
    Path("models/b.toml").mkdir(parents=True)
    assert "--out: is a folder, not a file (got 'models/b.toml')" in refused(capsys, "counts.csv", "--out", "models")
    assert not Path("models/a.toml").exists()


def test_the_same_files_give_the_same_bytes(counts: Path, capsys: Capsys) -> None:
    outputs = []
    for name in ("one", "two"):
        text = printed(capsys, "counts.csv", "--json", "--figure", f"{name}/f", "--out", f"{name}/models")
        files = {str(path.relative_to(name)): path.read_bytes() for path in sorted(Path(name).rglob("*.*"))}
        assert set(files) == {
            "f.svg", "f.png", "f-predictive.svg", "f-predictive.png", "models/a.toml", "models/b.toml"
        }  # fmt: skip
        outputs.append((text.replace(f"{name}/", ""), files))
    assert outputs[0] == outputs[1]


def test_a_bad_line_is_left_out_and_told_or_with_strict_refused(counts: Path, capsys: Capsys) -> None:
    counts.write_text("\n".join([HEADER, *ROWS, "a,add-a-field,recovery,9,5,,"]), encoding="utf-8")
    data = json.loads(printed(capsys, "counts.csv", "--json"))
    assert data["files"][0]["skipped"] == {"bad-count": 1}
    assert data["files"][0]["warnings"] == [
        "counts.csv:line 9: bad-count: applied must not exceed trials (got '9 of 5')"
    ]  # fmt: skip
    assert "warning: counts.csv:line 9" in printed(capsys, "counts.csv")
    assert "counts.csv, line 9: applied must not exceed trials" in refused(capsys, "counts.csv", "--strict")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["counts.csv", "--by", "shape"], "--by: goes by model, and by each column once (got 'shape')"),
        (["counts.csv", "--by", "model,colour"], "--by: goes by any of model, shape, constraint, arm (got 'colour')"),
        (["counts.csv", "--by", "model,arm,shape"], "all were left out: episode: no arm 9, no arm 43"),
        ([str(PUBLISHED_COUNTS), "--by", "model,arm,shape", "--out", "none"], "a section a shape or a class"),
        (["counts.csv", "--cluster", "episode"], "'episode' is not one of"),
        (["missing.csv", "--format", "counts"], "missing.csv: unreadable-file: cannot be read: No such file"),
        (["counts.csv", "--figure", "."], "--figure"),
        (["counts.csv", "--format", "csv"], "--format: unknown format 'csv': known: counts, native, "),
        (["counts.csv", "--by", ","], "--by: names at least one (got ',')"),
        (["counts.csv", "./counts.csv"], "counts.csv: is given twice, and would count twice"),
        (["counts.csv", "--out", "all.TOML"], "--out: takes a folder, or a file that ends in .toml (got 'all.TOML')"),
        (["counts.csv", "--out", "counts.csv"], "--out: is no folder, nor can it be made: a file is in the way"),
        (["counts.csv", "--out", "counts.csv/m"], "--out: is no folder, nor can it be made: a file is in the way"),
        ([], "FILES"),
    ],
)
def test_a_mistake_is_one_line(args: list[str], message: str, counts: Path, capsys: Capsys) -> None:
    assert message in refused(capsys, *args)
    assert not Path("none").exists()


def test_of_many_bad_lines_all_are_counted_and_the_first_are_told(counts: Path, capsys: Capsys) -> None:
    bad = ["a,add-a-field,recovery,9,5,,"] * 20_000  # that it takes no time is part of the test
    counts.write_text("\n".join([HEADER, *ROWS, *bad]), encoding="utf-8")
    (report,) = json.loads(printed(capsys, "counts.csv", "--json"))["files"]
    assert (report["skipped"], len(report["warnings"])) == ({"bad-count": 20_000}, 100)
    assert "warning: counts.csv: 19,900 more are counted, and not shown" in printed(capsys, "counts.csv")


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("model,shape,applied,trials", "needs the columns model, shape, kind, applied, trials"),
        ("model;shape;kind;applied;trials", "parted by commas"),
        ("model,shape,kind,applied,trials,note", "each once"),
    ],
)
def test_a_header_that_is_wrong_is_told_and_loses_no_other_file(
    header: str, says: str, counts: Path, capsys: Capsys
) -> None:
    Path("other.csv").write_text(f"{header}\na,add-a-field,1,2\n", encoding="utf-8")
    error = refused(capsys, "other.csv")
    assert error.startswith("invsim: other.csv:line 1: unreadable-file: ")
    assert says in error
    assert header in error
    assert says in refused(capsys, "counts.csv", "other.csv", "--strict")
    data = json.loads(printed(capsys, "counts.csv", "other.csv", "--json"))
    alone = json.loads(printed(capsys, "counts.csv", "--json"))
    assert data["cells"] == alone["cells"]
    assert [report["format"] for report in data["files"]] == ["counts", ""]
    assert data["files"][1]["skipped"] == {"unreadable-file": 1}


def test_nothing_to_fit_is_told_with_the_reason(counts: Path, capsys: Capsys) -> None:
    counts.write_text(HEADER + "\na,add-a-field,recovery,9,5,,\n", encoding="utf-8")
    error = refused(capsys, "counts.csv")
    assert "counts.csv: there is no trial to fit; 1 faults, the first counts.csv:line 2: bad-count: applied" in error
    counts.write_text(HEADER + "\na,add-a-field,recovery,0,0,,\n", encoding="utf-8")
    assert "counts.csv: nothing can be fitted: there is no trial" in refused(capsys, "counts.csv")


def test_published_counts_are_fitted_from_the_command_line(capsys: Capsys) -> None:
    data = json.loads(printed(capsys, str(PUBLISHED_COUNTS), "--by", "model,constraint,arm", "--json"))
    rates = {(cell["model"], cell["constraint"], cell["arm"]): cell["rate"] for cell in data["cells"] if cell["trials"]}
    assert rates["claude-haiku-4-5", "governed", "A2D"] == 0.9
    assert rates["claude-sonnet-5", "celiac", "A2D"] == 0.55


# Figures -------------------------------------------------------------------------------------------------------------


def rows(path: Path) -> list[dict[str, Any]]:
    return cell_rows(fit(tally_from_counts(path)))


def labels(figure: Figure) -> set[str]:
    return {text.get_text() for text in figure.legends[0].get_texts()}


def test_a_forest_shows_each_cell_raw_and_pooled_with_intervals(counts: Path) -> None:
    found = rows(counts)
    figure = forest_figure(found, title="x")
    first, recovery = figure.axes
    assert [tick.get_text() for tick in first.get_yticklabels()] == [
        "add-a-field, a", "add-a-field, b", "rewrite-a-value, a", "rewrite-a-value, b",
    ]  # fmt: skip
    bars = [each for each in first.containers if isinstance(each, ErrorbarContainer)]
    raw = {float(bar.lines[0].get_xdata()[0]) for bar in bars if bar.get_label() == "raw, Jeffreys"}
    assert raw == {11 / 16, 1 / 9}
    assert len([bar for bar in bars if bar.get_label() == "pooled over models"]) == 2
    assert [text.get_text() for text in first.texts] == ["no data", "no data"]
    assert labels(figure) == {"raw, Jeffreys", "pooled over models", "over tasks"}
    assert {text.get_text() for text in recovery.texts} == {"no data"}


def test_a_forest_of_models_with_long_and_odd_names_has_a_row_for_each(counts: Path) -> None:
    """What is cut may be all that tells two names apart; the layout must not give way under them."""
    names = ["x" * 100 + end + "x" * 100 for end in "ab"] + ["tab\tbed"]
    counts.write_text("\n".join([HEADER, *(f"{name},add-a-field,recovery,1,2,," for name in names)]), encoding="utf-8")
    figure = forest_figure(rows(counts), title="x")
    texts = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert texts == ["add-a-field, tab\\tbed", *["add-a-field, " + "x" * 19 + "\u2026" + "x" * 15] * 2]
    to_bytes(figure)  # a warning that the layout collapsed would be an error here
    assert figure.axes[0].get_position().width > 0.3


def test_a_forest_without_a_trial_says_so(counts: Path) -> None:
    counts.write_text(HEADER + "\na,add-a-field,first_attempt,2,9,t1,nothing\n", encoding="utf-8")
    (axis,) = forest_figure(rows(counts), title="x").axes
    assert [text.get_text() for text in axis.texts] == ["no trials"]


def test_the_predictive_figure_shows_observed_against_predicted(counts: Path) -> None:
    found = rows(counts)
    figure = predictive_figure(found, title="x")
    (axis,) = figure.axes
    points = {
        tuple(float(line[0]) for line in (bar.lines[0].get_xdata(), bar.lines[0].get_ydata()))
        for bar in axis.containers
    }  # fmt: skip
    with_data = [row for row in found if row["trials"]]
    assert points == {
        (row["applied"] / row["trials"], row["alpha"] / (row["alpha"] + row["beta"])) for row in with_data
    }
    assert labels(figure) == {"add-a-field", "rewrite-a-value"}
    assert all(row["predicted_lo"] <= row["applied"] <= row["predicted_hi"] for row in with_data)
