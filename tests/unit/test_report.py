"""Reports: the published figures as data, tables as CSV and Markdown, and what figures are made of."""

import csv
import io
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from functools import cache
from importlib import resources
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from rich.console import Console

from invsim.client.arms import A0, A2, A2D, arm_names, get_arm
from invsim.client.planners import load_model, model_names
from invsim.data.published import lookup, published
from invsim.experiment import RunResult, run
from invsim.report.figures import grid_figure, panels, save
from invsim.report.tables import COLUMNS, cells, estimate, for_terminal, metric_names, number, to_csv, to_markdown
from invsim.sim.plan import compile_plan
from invsim.sim.scenario import SHIPPED, load_scenario
from invsim.stats.moments import UNDEFINED, Estimate


@cache
def result(scenario: str = "payments", model: str = "claude-sonnet-4-6", arms: str = "") -> RunResult:
    chosen = [get_arm(name) for name in arms.split()] or None
    return run(compile_plan(load_scenario(scenario)), model=load_model(model), arms=chosen, replications=5)


# What the paper prints -----------------------------------------------------------------------------------------------

TEXT = resources.files("invsim.data").joinpath("published.csv").read_text(encoding="utf-8")
PRINTED = list(csv.DictReader(TEXT.splitlines()))


def test_no_figure_is_listed_twice() -> None:
    keys = Counter((row["scenario"], row["model"], row["arm"], row["metric"]) for row in PRINTED)
    assert [key for key, times in keys.items() if times > 1] == []
    assert len(published()) == len(PRINTED) > 300


def test_every_fraction_of_integers_rounds_to_the_print() -> None:
    counted = [row for row in PRINTED if row["count"] or row["of"]]
    assert len(counted) > 200
    for row in counted:
        exact = Decimal(row["count"]) / Decimal(row["of"])
        half = Decimal(10) ** Decimal(row["value"]).as_tuple().exponent / 2
        assert abs(exact - Decimal(row["value"])) <= half, row


def test_every_figure_has_a_unit_it_fits_and_a_place() -> None:
    for row in PRINTED:
        assert row["unit"] in {"rate", "ratio", "count"}
        assert row["where"].strip(), row
        assert row["unit"] == "count" or 0 <= float(row["value"]) <= 1, row
        assert row["unit"] != "rate" or not row["count"] or 0 <= int(row["count"]) <= int(row["of"]), row


@pytest.mark.parametrize("scenario", SHIPPED)
def test_every_figure_is_of_something_that_its_scenario_simulates(scenario: str) -> None:
    names = {name for each in result(scenario).arms for name in (*each.metrics, *each.first_try_by_class)}
    mine = [row for row in PRINTED if row["scenario"] == scenario]
    assert mine
    for row in mine:
        assert row["metric"] in names, row
        assert row["arm"] in arm_names(), row
        assert row["model"] in {*model_names(), ""}, row


def test_no_figure_is_of_another_scenario() -> None:
    assert {row["scenario"] for row in PRINTED} == set(SHIPPED)


def test_a_figure_is_looked_up_as_printed() -> None:
    found = lookup("payments", "claude-haiku-4-5", "A1", "first_try_eligible")
    assert found is not None
    assert (found.value, found.count, found.of, found.where) == (0.444, 12, 27, "Table 3")
    saving = lookup("payments", "claude-haiku-4-5", "A1", "token_saving")
    assert saving is not None
    assert (saving.value, saving.count, saving.of) == (0.223, None, None)
    assert lookup("payments", "claude-haiku-4-5", "A1", "nonesuch") is None
    assert lookup("payments", "no-such-model", "A1", "first_try_eligible") is None


def test_what_is_printed_for_compliant_models_is_not_looked_up_for_others() -> None:
    found = lookup("rules", "compliant", "A2DR", "first_try")
    assert found is not None
    assert found.value == 22
    assert lookup("rules", "refuser", "A2DR", "first_try") is None


# Tables --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0"), (0.5, "0.5"), (1 / 3, "0.333"), (100.0, "100"), (27.04, "27.04"), (-0.25, "-0.25")],
)
def test_a_number_has_no_more_digits_than_it_has(value: float | None, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize("value", [-0.0, -0.0001])
def test_a_number_that_rounds_to_zero_has_no_sign(value: float) -> None:
    assert number(value) == "0"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (UNDEFINED, "-"),
        (Estimate(0.5, None, 1), "0.5 ±?"),
        (Estimate(0.5, 0.0, 9), "0.5"),
        (Estimate(0.5, 0.04, 9), "0.5 ±0.04"),
    ],
)
def test_an_estimate_shows_its_error(value: Estimate, text: str) -> None:
    assert estimate(value) == text


def test_the_metrics_of_a_table_are_those_of_the_scenario() -> None:
    names = metric_names(result())
    assert names[:6] == [
        "first_try_eligible", "validity", "compliance_given_valid", "governed_ten", "funding_pre", "funding_post"
    ]  # fmt: skip
    assert [name for name in names if name.startswith("alert_")] == ["alert_1", "alert_2"]
    assert len(set(names)) == len(names)
    assert "alert_1" not in metric_names(result("control"))
    assert "celiac_scored" in metric_names(result("recipes"))


def test_a_csv_holds_every_figure_of_the_table() -> None:
    runs = [result(), result(model="compliant", arms="A0 A2D")]
    rows = list(csv.reader(io.StringIO(to_csv(runs))))
    assert tuple(rows[0]) == COLUMNS
    expected = [cell for each in runs for cell in cells(each)]
    assert len(rows) - 1 == len(expected) == sum(len(metric_names(each)) * len(each.arms) for each in runs)
    for row, cell in zip(csv.DictReader(io.StringIO(to_csv(runs))), expected, strict=True):
        assert (row["model"], row["arm"], row["metric"]) == (cell.model, cell.arm, cell.metric)
        for column, value in (("simulated", cell.simulated.value), ("error", cell.simulated.se)):
            assert (row[column] == "") is (value is None)
            assert value is None or float(row[column]) == pytest.approx(value, rel=1e-5)
        assert int(row["n"]) == cell.simulated.n
        found = published().get(("payments", cell.model, cell.arm, cell.metric))
        wanted = ("", "", "", "") if found is None else (found.value, found.count, found.of, found.where)
        printed = row["published"], row["published_count"], row["published_of"], row["where"]
        assert printed == tuple("" if each is None else str(each) for each in wanted)
    assert any(cell.published for cell in expected)
    assert all(cell.published is None for cell in expected if cell.model == "compliant")


def test_a_csv_quotes_what_needs_it() -> None:
    odd = replace(result(), model='a,"b"')
    assert {row["model"] for row in csv.DictReader(io.StringIO(to_csv([odd])))} == {'a,"b"'}


def test_markdown_has_a_table_a_model_with_the_print_in_brackets() -> None:
    text = to_markdown([result(), result(model="compliant", arms="A0 A2D")], "Title")
    lines = text.splitlines()
    assert lines[0] == "# Title"
    assert [line for line in lines if line.startswith("## ")] == ["## claude-sonnet-4-6", "## compliant"]
    first, second = text.split("## ")[1:]
    for part, arms, names in (
        (first, ["A0", "A1", "A2", "A2D", "A2DC", "A2DG"], metric_names(result())),
        (second, ["A0", "A2D"], metric_names(result())),
    ):
        table = [line for line in part.splitlines() if line.startswith("|")]
        assert table[0] == f"| | {' | '.join(arms)} |"
        assert table[1] == "|---|" + "---:|" * len(arms)
        assert len(table) - 2 == len(names)
        assert {line.count("|") for line in table} == {len(arms) + 2}
    simulated = result()["A1"].metrics["first_try_eligible"]
    row = next(line for line in first.splitlines() if line.startswith("| first try, eligible |"))
    assert row.split(" | ")[1] == "-"
    assert row.split(" | ")[2] == f"{estimate(simulated)} [0.259]"
    assert "[" not in second


ARMS = ["A0", "A1", "A2", "A2D", "A2DC", "A2DG"]


@pytest.mark.parametrize("width", [40, 80, 100])
def test_a_narrow_terminal_gets_fewer_arms_a_table_and_whole_labels(width: int) -> None:
    tables = list(for_terminal(result(), "Title", width=width))
    assert [column.header for table in tables for column in table.columns if column.header] == ARMS
    console = Console(width=max(width, 50), record=True, file=io.StringIO())
    for table in tables:
        console.print(table)
    text = console.export_text()
    assert "…" not in text
    assert text.count("eviction precision (1/evictions)") == len(tables)


def test_a_terminal_table_has_the_print_on_a_line_of_its_own() -> None:
    (table,) = for_terminal(result(), "Title", width=200)
    assert [column.header for column in table.columns] == ["", *ARMS]
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table)
    lines = console.export_text().splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("first try, eligible"))
    assert lines[at + 1].split() == ["published", "0.259", "0.815", "0.889", "0.815", "0.889"]
    assert not any("published" in line for line in lines[lines.index(lines[at + 1]) + 1 : at + 4])


# Figures -------------------------------------------------------------------------------------------------------------

RUNS = [("payments", "claude-sonnet-4-6"), ("payments", "gpt-5-mini")]


@pytest.fixture(scope="module")
def figure() -> Figure:
    return grid_figure([result(*each) for each in RUNS], title="The title")


def points(axis: Axes) -> list[tuple[str, float, float]]:
    """Label, value and half-width of every point with error bars."""
    found = []
    for container in axis.containers:
        assert isinstance(container, ErrorbarContainer)
        line, _, (bars,) = container.lines
        ((left, _), (right, _)) = bars.get_segments()[0]
        found.append((container.get_label(), line.get_xdata()[0], (right - left) / 2))
    return found


def test_a_figure_has_a_panel_a_metric_and_a_row_a_model(figure: Figure) -> None:
    assert panels([result()]) == ["first_try_eligible", "funding_post", "retries"]
    assert panels([result("recipes")]) == ["first_try_eligible", "celiac_scored", "incompat_scored", "retries"]
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["first try, eligible", "funding post", "retries"]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["claude-sonnet-4-6", "gpt-5-mini"]
    assert figure.get_suptitle() == "The title"


def test_every_axis_says_what_it_counts_and_in_what_unit(figure: Figure) -> None:
    labels = [axis.get_xlabel() for axis in figure.axes]
    assert labels == ["first-try rate, ±2 standard errors"] * 2 + ["per stream, ±2 standard errors"]
    for axis in figure.axes[:2]:
        assert axis.get_xlim()[0] < 0
        assert 1 < axis.get_xlim()[1] < 1.1
    assert figure.axes[2].get_xlim()[0] == 0


def test_every_point_is_an_estimate_with_two_standard_errors(figure: Figure) -> None:
    for axis, metric in zip(figure.axes, panels([result()]), strict=True):
        drawn = points(axis)
        expected = [(arm.arm, arm.metrics[metric]) for each in RUNS for arm in result(*each).arms]
        expected = [(name, each) for name, each in expected if each.value is not None]
        assert [label for label, _, _ in drawn] == [name for name, _ in expected]
        assert [value for _, value, _ in drawn] == [each.value for _, each in expected]
        assert [half for *_, half in drawn] == pytest.approx([2 * each.se for _, each in expected])


def test_every_ring_is_a_published_figure(figure: Figure) -> None:
    for axis, metric in zip(figure.axes, panels([result()]), strict=True):
        rings = [line.get_xdata()[0] for line in axis.lines if line.get_label() == "published"]
        figures = [lookup(*each, arm.arm, metric) for each in RUNS for arm in result(*each).arms]
        assert rings == [each.value for each in figures if each is not None]
        assert rings


def test_points_do_not_lie_on_each_other(figure: Figure) -> None:
    for axis in figure.axes:
        heights = [container.lines[0].get_ydata()[0] for container in axis.containers]
        assert len(set(heights)) == len(heights)
        assert all(-0.5 < height < len(RUNS) - 0.5 for height in heights)


def test_the_legend_names_every_arm_once_and_the_ring(figure: Figure) -> None:
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "A0", "A1", "A2", "A2D", "A2DC", "A2DG", "published",
    ]  # fmt: skip


def test_a_figure_of_one_stream_and_of_nothing_published() -> None:
    one = run(compile_plan(load_scenario("recipes")), model=load_model("compliant"), arms=[A0, A2], replications=1)
    drawn = grid_figure([one], title="")
    assert {half for axis in drawn.axes for *_, half in points(axis)} == {0.0}
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == ["A0", "A2"]


@pytest.mark.parametrize("arms", ["A0 A2D", "A2D A0"])
def test_the_panels_do_not_depend_on_the_order_of_the_arms(arms: str) -> None:
    assert panels([result(model="compliant", arms=arms)])[0] == "first_try_eligible"


def test_more_arms_than_the_style_has_colours_can_be_drawn() -> None:
    many = [replace(A2D, name=f"own-{at}") for at in range(11)]
    one = run(compile_plan(load_scenario("payments")), model=load_model("compliant"), arms=many, replications=2)
    drawn = grid_figure([one], title="")
    assert [text.get_text() for text in drawn.legends[0].get_texts()] == [arm.name for arm in many]


def test_a_name_is_shown_as_it_is_and_never_read_as_a_formula(tmp_path: Path) -> None:
    odd = replace(result(), model="a $\\frac{b$ c")
    (svg, _) = save(grid_figure([odd], title="$\\nonsense$"), tmp_path / "odd")
    assert svg.read_bytes().startswith(b"<?xml")


def test_a_long_name_leaves_room_for_the_panels(tmp_path: Path) -> None:
    figure = grid_figure([replace(result(), model="m" * 200)], title="x")
    save(figure, tmp_path / "long")  # a warning that the layout collapsed would be an error here
    assert figure.axes[0].get_position().width > 0.1
    (label,) = figure.axes[0].get_yticklabels()
    assert label.get_text() == "m" * 32 + "\u2026" + "m" * 15


def test_saving_twice_gives_the_same_bytes(figure: Figure, tmp_path: Path) -> None:
    again = grid_figure([result(*each) for each in RUNS], title="The title")
    first, second = save(figure, tmp_path / "a" / "fig.v1"), save(again, tmp_path / "b" / "fig.v1")
    assert [path.name for path in first] == ["fig.v1.svg", "fig.v1.png"]
    assert first[0].read_bytes().startswith(b"<?xml")
    assert first[1].read_bytes().startswith(b"\x89PNG")
    for left, right in zip(first, second, strict=True):
        assert left.read_bytes() == right.read_bytes()
    assert b"<dc:date>" not in first[0].read_bytes()
