"""The paper's tables: what they hold, how they are laid out, and that nothing in them breaks a file."""

import csv
import io
import re

import numpy as np
import pytest

from invsim.calibrate import calibrate
from invsim.client.planners.models import PUBLISHED, load_model
from invsim.errors import InputError, UnknownNameError
from invsim.paper import calibration
from invsim.paper.artifacts import TABLES, Artifact, artifacts, register
from invsim.paper.calibration import REPORTS
from invsim.paper.claims import claims
from invsim.paper.context import Context
from invsim.paper.definitions import STACKS, coverage, levels
from invsim.paper.manifest import canonical, digest
from invsim.paper.render import Sheet, latex, to_latex
from invsim.paper.sheets import LAYOUTS, TABLE_3, TABLE_5, filled

MINUTES = ("calibration", "validation")
"""What takes minutes to make; one model of each stands for the seven."""


@pytest.fixture(scope="module")
def context() -> Context:
    return Context(streams=600)


@pytest.fixture(scope="module")
def sheets(context: Context) -> dict[str, Sheet]:
    return {layout.name: filled(layout, context) for layout in LAYOUTS}


@pytest.fixture(scope="module")
def files(context: Context) -> dict[str, str]:
    return {
        name: content.decode()
        for artifact in artifacts()
        if artifact.folder == TABLES and artifact.name not in MINUTES
        for name, content in artifact.made(context)[1].items()
    }


# Context -------------------------------------------------------------------------------------------------------------


def test_a_cell_is_worked_out_once(context: Context) -> None:
    assert context.simulated("payments", "gpt-5-mini") is context.simulated("payments", "gpt-5-mini")
    assert context.exact("rules", "compliant", "A2D") is context.exact("rules", "compliant", "A2D")


def test_the_two_engines_agree_and_the_spread_is_that_of_a_publication(context: Context) -> None:
    measure = context.measure("payments", "claude-sonnet-4-6", "A2D", "first_try_eligible")
    p = load_model("claude-sonnet-4-6").behaviour("governed").p_apply
    assert measure.exact == pytest.approx(p)
    assert measure.sd == pytest.approx((p * (1 - p) / 27) ** 0.5)
    assert abs(measure.simulated.value - p) < 5 * measure.simulated.se
    assert context.measure("payments", "gpt-5-mini", "A2D", "retries").certain


def test_a_gain_is_paired_here_and_independent_in_print(context: Context) -> None:
    low, high = (context.measure("payments", "claude-sonnet-4-6", arm, "first_try_eligible") for arm in ("A1", "A2D"))
    gain = context.gain("payments", "claude-sonnet-4-6", "A2D", "A1", "first_try_eligible")
    assert gain.exact == pytest.approx(high.exact - low.exact)
    assert gain.sd == pytest.approx(np.hypot(low.sd, high.sd))
    assert gain.simulated.value == pytest.approx(high.simulated.value - low.simulated.value)
    assert gain.simulated.se < np.hypot(low.simulated.se, high.simulated.se)


def test_the_simulated_gain_in_tokens_is_the_difference_of_savings(context: Context) -> None:
    low, high = (context.measure("payments", "gemini-3.5-flash", arm, "token_saving") for arm in ("A1", "A2D"))
    gain = context.gain("payments", "gemini-3.5-flash", "A2D", "A1", "token_saving")
    assert gain.simulated.value == pytest.approx(high.simulated.value - low.simulated.value)


# Tables 3 to 7 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [layout.name for layout in LAYOUTS])
def test_every_printed_number_of_a_table_is_in_it_once(sheets: dict[str, Sheet], name: str) -> None:
    number = name.removeprefix("table")
    printed = [claim for claim in claims() if claim.id.startswith(f"t{number}.") and ".caption." not in claim.id]
    sheet = sheets[name]
    assert sorted(record["published"] for record in sheet.records) == sorted(claim.printed for claim in printed)
    keys = [(record["model"], record["arm"], record["metric"]) for record in sheet.records]
    assert len(set(keys)) == len(keys)
    assert all(len(row) == len(sheet.columns) for row in sheet.rows)
    assert sum(span for _, span in sheet.spanners) in {0, len(sheet.columns)}


def test_cells_show_published_simulated_and_status(sheets: dict[str, Sheet]) -> None:
    rows = {row[0]: row for row in sheets["table3"].rows}
    assert list(rows) == list(PUBLISHED)
    assert rows["gpt-5-mini"][1:6] == ("33.3 / 33.3 =", "100.0 / 100.0 =", "100.0 / 100.0 =", "–", "–")
    assert re.fullmatch(r"44\.4 / 4\d\.\d\d ±0\.\d\d †", rows["claude-haiku-4-5"][1])
    assert rows["gemini-3.5-flash"][6].endswith("‡")
    policies = {row[0]: row for row in sheets["table5"].rows}
    assert policies["stamp only (A2DR)"][1:6] == (
        "22 / 22 =", "14 / 14 =", "4+5 / 4+5 =", "0 / 0 =", "12/24 / 12/24 =",
    )  # fmt: skip
    assert policies["lazy (A2DC)"][6] == "–"


def test_blocks_end_where_a_serving_path_ends() -> None:
    models = [label for label, _ in TABLE_3.rows]
    ends = [models.index(mine[-1]) for mine in STACKS.values()]
    assert list(TABLE_3.blocks) == ends[:-1]
    assert [model for mine in STACKS.values() for model in mine] == models
    assert TABLE_5.blocks == ()


def test_the_long_form_reads_back(files: dict[str, str]) -> None:
    rows = list(csv.DictReader(io.StringIO(files["table6.csv"])))
    assert {
        "table",
        "model",
        "arm",
        "metric",
        "published",
        "simulated",
        "se",
        "sd",
        "difference",
        "z",
        "status",
    } <= set(rows[0])
    saving = next(row for row in rows if (row["model"], row["arm"]) == ("gpt-5-mini", "A1"))
    assert saving["metric"] == "token_saving"
    assert float(saving["published"]) - float(saving["exact"]) == pytest.approx(float(saving["difference"]))
    assert float(saving["difference"]) / float(saving["sd"]) == pytest.approx(float(saving["z"]))
    assert {row["arm"] for row in rows if row["metric"] == "token_saving"} == {"A1", "A2D", "A2D-A1"}


def test_latex_is_balanced_and_plain(files: dict[str, str]) -> None:
    names = [name for name in files if name.endswith(".tex")]
    assert names == [f"table{number}.tex" for number in range(1, 8)]
    for name in names:
        text = files[name]
        assert text.isascii(), name
        assert text.count(r"\begin{") == text.count(r"\end{") == 2
        bare = re.sub(r"\\[{}]", "", text)
        assert bare.count("{") == bare.count("}")
        body = text[text.index(r"\midrule") : text.index(r"\bottomrule")]
        cells = {len(re.sub(r"\\&", "", line).split(" & ")) for line in body.splitlines() if " & " in line}
        assert len(cells) == 1, name


def test_latex_shows_what_it_would_read_as_a_command() -> None:
    assert latex("50% of a_b & {c} \\ # ~ ^") == (
        r"50\% of a\_b \& \{c\} \textbackslash{} \# \textasciitilde{} \textasciicircum{}"
    )
    sheet = Sheet("x", "A_1", (("", 1), ("over", 2)), ("a", "b", "c"), (("1", "2", "3"),), (), (), ())
    assert r"\multicolumn{2}{c}{over} \\ \cmidrule(lr){2-3}" in to_latex(sheet)
    assert r"\caption{A\_1}" in to_latex(sheet)


def test_latex_numbers_its_floats_itself() -> None:
    sheet = Sheet("table2", "Table 2. What each arm reads", (), ("a", "b"), (("1", "2"),), (), (), ())
    assert r"\caption{What each arm reads (Table 2 of Wu and Canedo 2026)}" in to_latex(sheet)


def test_markdown_has_one_width(files: dict[str, str]) -> None:
    for name in (name for name in files if re.fullmatch(r"table\d\.md", name)):
        widths = {line.replace("\\|", "").count("|") for line in files[name].splitlines() if line.startswith("|")}
        assert len(widths) == 1, name


# The two that define -------------------------------------------------------------------------------------------------


def test_levels_are_what_the_server_sends(context: Context) -> None:
    found = {row.level: row for row in levels(context)}
    assert list(found) == [f"L{number}" for number in range(7)]
    assert all(row.agrees for row in found.values())
    assert found["L1"].adds == ("type", "cache_hint", "table", "table_versions")
    assert found["L4"].adds == ("tables",)
    assert found["L6"].adds == ("rules_version",)
    assert [row.level for row in found.values() if row.where == "consumption"] == ["L2", "L3"]


def test_coverage_is_what_the_arms_read(files: dict[str, str]) -> None:
    found = {row.arm: row for row in coverage()}
    assert [arm for arm, row in found.items() if not row.agrees] == ["A2DC"]  # it reads vectors; see the audit
    assert [arm for arm, row in found.items() if row.ambiguous] == ["A2DO"]
    assert found["A2DG"].reads == ("L2", "L3", "L1", "L4", "L5", "Diff")
    assert "✓?" in next(line for line in files["table2.md"].splitlines() if line.startswith("| A2DO"))


# The registry --------------------------------------------------------------------------------------------------------


def test_artifacts_have_names_and_files_of_their_own() -> None:
    found = artifacts()
    names = [each.name for each in found]
    assert names[:8] == [*(f"table{number}" for number in range(1, 8)), "audit"]
    files = [(each.folder, file) for each in found for file in each.files]
    assert len(set(files)) == len(files)
    # What `make run` writes stays its own.
    assert not {("tables", "payments.csv"), ("tables", "payments.md"), ("figures", "payments.svg")} & set(files)
    assert artifacts("table3")[0].name == "table3"
    with pytest.raises(UnknownNameError, match="unknown artifact 'tabel3': did you mean 'table3'"):
        artifacts("tabel3")


def test_a_name_or_a_file_is_taken_once() -> None:
    artifacts()
    with pytest.raises(InputError, match="registered already"):
        register(Artifact("table3", TABLES, (), lambda _: (None, {})))
    with pytest.raises(InputError, match="is written by artifact 'table3' already"):
        register(Artifact("another", TABLES, ("table3.md",), lambda _: (None, {})))


def test_an_artifact_makes_what_it_promises(context: Context) -> None:
    broken = Artifact("broken", TABLES, ("a.csv",), lambda _: ([], {"b.csv": b""}))
    with pytest.raises(InputError, match=r"artifact 'broken' promises \['a.csv'\]"):
        broken.made(context)


# Hashes of data ------------------------------------------------------------------------------------------------------


def test_data_hashes_by_nine_digits() -> None:
    sheet = Sheet("x", "t", (), ("a",), (("1",),), (), (), ({"value": 0.1 + 0.2},))
    same = Sheet("x", "t", (), ("a",), (("1",),), (), (), ({"value": 0.3},))
    other = Sheet("x", "t", (), ("a",), (("1",),), (), (), ({"value": 0.3000001},))
    assert canonical(sheet) == canonical(same) != canonical(other)
    assert canonical({"b": np.float64(0.5), "a": np.arange(2), "c": {3, 2}}) == {"b": "0.5", "a": [0, 1], "c": [2, 3]}
    assert digest(b"") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    with pytest.raises(InputError, match="plain values"):
        canonical(object())


# The calibration -----------------------------------------------------------------------------------------------------


def test_estimates_and_predictions_are_written_to_be_read_and_to_be_computed_with() -> None:
    estimated = calibration.estimates(calibration.each_model(calibrate, ["gpt-5-mini"]))
    predicted = calibration.predictions(calibration.predicted("gpt-5-mini"))
    for report in (estimated, predicted):
        assert set(report.files()) == {f"{report.name}.md", *(f"{name}.csv" for name in REPORTS[report.name][1])}
    rows = list(csv.DictReader(io.StringIO(estimated.files()["calibration.csv"].decode())))
    governed = next(row for row in rows if row["name"] == "governed.p_apply")
    assert (governed["model"], float(governed["value"])) == ("gpt-5-mini", 1.0)
    assert 0.9 < float(governed["lo"]) < 1.0
    text = predicted.files()["validation.md"].decode()
    assert text.startswith("# Predicted out of sample\n\nFitted to A0")
    assert f"| {predicted.data['accuracy'][0]['metric']} |" in text


def test_processes_give_what_one_gives_in_the_order_of_the_models() -> None:
    names = ["gpt-5-mini", "gpt-5.4-mini"]
    done: list[int] = []
    apart = calibration.each_model(load_model, names, done.append)
    assert [each.name for each in apart] == names
    assert apart == [load_model(name) for name in names]
    assert done == [1, 1]
