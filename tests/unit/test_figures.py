"""Figures: what they plot is what their rows say, and it can be read: by eye, in grey, with any colour vision."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations, pairwise

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text

from invsim.client.arms import arm_names, get_arm
from invsim.client.planners import load_model
from invsim.data.published import Published, lookup
from invsim.errors import InputError
from invsim.experiment import run
from invsim.explain import explain
from invsim.paper import figure_data
from invsim.paper.figure_data import FIGURES, LADDER, predict, predict_saving, wire_cost
from invsim.report.figures import Row, to_bytes
from invsim.report.figures.bars import SAVING, ladder_figure, saving_figure
from invsim.report.figures.breakeven import WhatIf, break_even_figure, break_even_rows, crossing
from invsim.report.figures.decomposition import CORRECTIONS, LOSSES
from invsim.report.figures.diagram import Box
from invsim.report.figures.domain import depths, domain_diagram, domain_figure, groups
from invsim.report.figures.episodes import STATES, EpisodeState, read_states
from invsim.report.figures.overview import overview, wire_fields
from invsim.report.figures.parity import agreement
from invsim.report.figures.predictions import Prediction, whiskers
from invsim.report.figures.style import ARMS, COLUMN, PAGE, SERIES
from invsim.report.figures.wirecost import FIELDS
from invsim.sim.engine import rerun, simulate_block
from invsim.sim.plan import compile_plan
from invsim.sim.scenario import load_scenario
from invsim.world.domain import load_domain
from invsim.world.wire import Level

SLOW = "what-if"


@cache
def drawn(name: str) -> tuple[Figure, list[Row]]:
    """A figure of the paper; the what-if grid, which takes long, from a formula."""
    if name == SLOW:
        cells = what_if()
        return break_even_figure(cells), break_even_rows(cells)
    return FIGURES[name]()


def what_if() -> list[WhatIf]:
    return [
        WhatIf(float(drift), level, {"A1": 0.3 * level - 0.02 * drift - 0.05, "A2D": 0.3 * level - 0.05})
        for drift in range(5)
        for level in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]


def panels(figure: Figure) -> list[Axes]:
    return [axis for axis in figure.axes if axis.axison and axis.get_label() != "<colorbar>"]


def texts(figure: Figure) -> list[Text]:
    """Every text that is drawn; ticks beyond an axis's limits have labels too, which are not."""
    figure.draw_without_rendering()
    hidden = set()
    for axis in figure.axes:
        for one in (axis.xaxis, axis.yaxis):
            low, high = sorted(one.get_view_interval())
            for tick in (*one.majorTicks, *one.minorTicks):
                if not axis.axison or not low - 1e-9 <= tick.get_loc() <= high + 1e-9:
                    hidden |= {tick.label1, tick.label2}
    return [
        each for each in figure.findobj(Text) if each.get_visible() and each.get_text().strip() and each not in hidden
    ]


# Every figure --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_lies_on_another_or_off_the_page(name: str) -> None:
    figure, _ = drawn(name)
    found = [(each.get_text(), each.get_window_extent()) for each in texts(figure)]
    assert len(found) > 5
    for (one, here), (other, there) in combinations(found, 2):
        width = min(here.x1, there.x1) - max(here.x0, there.x0)
        height = min(here.y1, there.y1) - max(here.y0, there.y0)
        assert width < 1 or height < 1, f"{one!r} lies on {other!r}"
    edge = figure.bbox
    for text, box in found:
        across = edge.x0 - 1 <= box.x0 <= box.x1 <= edge.x1 + 1
        down = edge.y0 - 1 <= box.y0 <= box.y1 <= edge.y1 + 1
        assert across, f"{text!r} runs off the page"
        assert down, f"{text!r} runs off the page"


@pytest.mark.parametrize("name", FIGURES)
def test_laying_out_again_moves_nothing(name: str) -> None:
    figure, _ = drawn(name)
    places = []
    for _ in range(2):
        figure.draw_without_rendering()
        places.append([axis.get_position().bounds for axis in figure.axes])
    assert np.asarray(places[0]) == pytest.approx(np.asarray(places[1]), abs=1e-3)
    assert all(height > 0.15 for axis in panels(figure) for height in [axis.get_position().height])


def test_the_check_for_overlaps_sees_one() -> None:
    figure = Figure()
    figure.text(0.5, 0.5, "one")
    figure.text(0.51, 0.5, "other")
    here, there = (each.get_window_extent() for each in texts(figure))
    assert min(here.x1, there.x1) - max(here.x0, there.x0) > 1


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_fits_a_column_or_a_page_and_says_what_it_finds(name: str) -> None:
    figure, rows = drawn(name)
    assert figure.get_size_inches()[0] in (COLUMN, PAGE)
    assert figure.get_size_inches()[1] < 5
    assert len(figure.get_suptitle()) > 40
    assert rows
    assert len({tuple(row) for row in rows}) == 1, "rows have one set of names"


UNITS = ("%", "per stream", "bytes", "sd", "arm", "retries", "level", "episode", "counted", "integers", "per episode")


@pytest.mark.parametrize("name", [name for name in FIGURES if name not in ("overview", "domain")])
def test_every_axis_is_labelled_with_what_it_counts_and_in_what_unit(name: str) -> None:
    axes = panels(drawn(name)[0])
    for axis in axes:
        beside = [other for other in axes if other is axis or axis.get_shared_y_axes().joined(axis, other)]
        below = [other for other in axes if other is axis or axis.get_shared_x_axes().joined(axis, other)]
        models = [tick.get_text() for other in below for tick in other.get_xticklabels()]
        assert any(unit in other.get_xlabel() for other in below for unit in UNITS) or any(
            "-" in each for each in models
        )
        assert any(unit in other.get_ylabel() for other in beside for unit in UNITS), axis.get_ylabel()


@pytest.mark.parametrize("name", ["overview", "saving", "rotations"])
def test_the_same_data_gives_the_same_bytes(name: str) -> None:
    first, second = to_bytes(FIGURES[name]()[0]), to_bytes(FIGURES[name]()[0])
    assert first == second
    assert first["png"].startswith(b"\x89PNG")
    assert b"<text" not in first["svg"], "letters are paths, so that no font need be there"
    assert b"<dc:date>" not in first["svg"]


# Colours -------------------------------------------------------------------------------------------------------------

# Dichromats' sight at full severity in linear light (Machado, Oliveira and Fernandes 2009, table 1).
SIGHT = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def lab(colour: str, sight: str = "normal") -> np.ndarray:
    """A colour in CIE L*a*b*, as somebody sees it."""
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(SIGHT[sight] @ linear, 0, 1) / np.array([0.95047, 1.0, 1.08883])
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def distances(colours: Sequence[str], sight: str) -> Iterator[float]:
    for one, other in combinations(colours, 2):
        yield float(np.linalg.norm(lab(one, sight) - lab(other, sight)))


def test_the_measure_of_colour_is_right() -> None:
    assert lab("white") == pytest.approx([100, 0, 0], abs=0.02)
    assert lab("red") == pytest.approx([53.24, 80.09, 67.20], abs=0.05)
    close = float(np.linalg.norm(lab("#CC0000", "deuteranopia") - lab("#7B6A00", "deuteranopia")))
    apart = float(np.linalg.norm(lab("#CC0000") - lab("#7B6A00")))
    assert close < apart / 2, "red and olive, which deuteranopes confuse"


@pytest.mark.parametrize(
    "looks", [list(ARMS.values()), list(SERIES), list(LOSSES.values())], ids=["arms", "series", "losses"]
)
def test_series_differ_in_grey_and_have_a_second_cue(looks: list) -> None:
    plain = [look[1] if isinstance(look, tuple) else look for look in looks]
    grey = sorted(lab(look.colour)[0] for look in plain)
    assert min(high - low for low, high in pairwise(grey)) > 12
    cues = {(look.marker, look.line, look.hatch) for look in plain}
    assert len(cues) == len(plain)


PALETTES: dict[str, list[str]] = {
    "arms": [look.colour for look in ARMS.values()],
    "series": [look.colour for look in SERIES],
    "losses": [look.colour for _, look in LOSSES.values()],
    "corrections": [look.colour for _, look in CORRECTIONS.values()],
    "fields": [look.colour for look in FIELDS.values()],
    "states": [colour for _, colour, _ in STATES.values()],
}


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("palette", PALETTES)
def test_no_colour_vision_confuses_two_series(palette: str, sight: str) -> None:
    assert min(distances(PALETTES[palette], sight)) > 14


def test_what_grey_cannot_tell_apart_has_a_sign_or_a_hatch() -> None:
    signs = [sign for _, _, sign in STATES.values()]
    assert len(set(signs)) == len(signs)
    hatches = [look.hatch for _, look in CORRECTIONS.values()]
    assert len(set(hatches)) == len(hatches)
    order = list(FIELDS.values())
    for low, high in pairwise(order):
        assert low.hatch != high.hatch or abs(lab(low.colour)[0] - lab(high.colour)[0]) > 20


# Bars ----------------------------------------------------------------------------------------------------------------


def heights(axis: Axes) -> dict[str, list[float]]:
    return {
        str(each.get_label()): [bar.get_height() for bar in each]
        for each in axis.containers
        if isinstance(each, BarContainer)
    }


def diamonds(axis: Axes) -> list[float]:
    return [
        float(y)
        for line in axis.lines
        if line.get_marker() == "D" and line.get_linestyle() == "None"
        for y in line.get_ydata()
    ]


@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("ladder", ("first_try_eligible", "governed_ten")),
        ("untouched", ("funding_post",)),
        ("saving", ("token_saving",)),
    ],
)
def test_bars_and_diamonds_are_the_rows(name: str, metrics: tuple[str, ...]) -> None:
    figure, rows = drawn(name)
    for axis, metric in zip(figure.axes, metrics, strict=True):
        mine = [row for row in rows if row["metric"] == metric and row["mean"] is not None]
        arms = sorted({str(row["arm"]) for row in mine}, key=LADDER.index)
        expected = {arm: [100 * row["mean"] for row in mine if row["arm"] == arm] for arm in arms}
        assert heights(axis) == {arm: pytest.approx(values) for arm, values in expected.items()}
        printed = [
            100 * row["published"] for arm in arms for row in mine if row["arm"] == arm and row["published"] is not None
        ]
        assert diamonds(axis) == pytest.approx(printed)
        assert len(printed) >= 14
    assert len({row["model"] for row in rows}) == 7


def test_whiskers_are_two_deviations_of_the_mean_of_three_runs() -> None:
    figure, rows = drawn("saving")
    (axis,) = figure.axes
    bars = [each for each in axis.containers if isinstance(each, ErrorbarContainer)]
    assert len(bars) == 3
    reach = [float(segment[1, 1] - segment[0, 1]) / 2 for bar in bars for segment in bar.lines[2][0].get_segments()]
    expected = [200 * row["sd"] for arm in LADDER[1:] for row in rows if row["arm"] == arm]
    assert reach == pytest.approx(expected)


def test_whiskers_stay_within_what_a_metric_can_be() -> None:
    rate = Prediction("s", "m", "A1", "control", 0.9, 0.2, 3, None)
    count = Prediction("s", "m", "A1", "retries", 0.5, 2.0, 3, None)
    assert whiskers([rate], 100.0) == [[pytest.approx(40.0)], [pytest.approx(10.0)]]
    assert whiskers([count], 1.0) == [[0.5], [4.0]]


def made(arm: str, mean: float, metric: str = "first_try_eligible", model: str = "m") -> Prediction:
    return Prediction("s", model, arm, metric, mean, 0.01, 3, None)


def test_titles_follow_the_data() -> None:
    flat = [made(arm, 0.5, metric) for arm in ("A1", "A2D") for metric in ("first_try_eligible", "governed_ten")]
    assert "on 0 of 1" in ladder_figure(flat).get_suptitle().replace("\n", " ")
    title = saving_figure(
        [made("A1", 0.3, SAVING.metric), made("A2", 0.1, SAVING.metric), made("A2D", 0.3, SAVING.metric)]
    )
    assert title.get_suptitle() == "Expected saving against A0 is highest under A1 on 1 of 1 models"
    assert "by 41 points or more on 4 of 7 models" in drawn("ladder")[0].get_suptitle().replace("\n", " ")


# Where the numbers come from -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["first_try_eligible", "funding_post", "retries", "evictions", "control"])
def test_a_prediction_is_what_simulated_runs_scatter_around(metric: str) -> None:
    found = predict("payments", "claude-sonnet-4-6", "A1", metric)
    plan = compile_plan(load_scenario("payments"))
    block = simulate_block(plan, arm=get_arm("A1"), model=load_model("claude-sonnet-4-6"), seed=5, first=0, count=600)
    values = {
        "first_try_eligible": block.first_try[:, plan.eligible].mean(axis=1),
        "funding_post": block.first_try[:, plan.windows[2].mask].mean(axis=1),
        "control": block.first_try[:, plan.class_index == plan.classes.index("control")].mean(axis=1),
        "retries": block.episode("attempts").sum(axis=1) - 36,
        "evictions": block.episode("evicted").sum(axis=1),
    }[metric]
    threes = values.reshape(-1, 3).mean(axis=1)
    assert found.mean == pytest.approx(threes.mean(), abs=5 * (found.sd or 0.0) / len(threes) ** 0.5 + 1e-12)
    assert found.sd == pytest.approx(threes.std(ddof=1), rel=0.2, abs=1e-9)
    assert found.published == lookup("payments", "claude-sonnet-4-6", "A1", metric)


def test_the_saving_is_the_one_that_a_run_reports() -> None:
    plan = compile_plan(load_scenario("payments"))
    for model in ("gpt-5-mini", "gemini-3.5-flash"):
        result = run(plan, model=load_model(model), engine="exact")
        for arm in ("A0", "A1", "A2D"):
            found = predict_saving("payments", model, arm)
            assert found.mean == pytest.approx(result[arm].metrics["token_saving"].value)
    assert predict_saving("payments", "gpt-5-mini", "A0").sd == 0.0
    assert predict_saving("payments", "gemini-3.5-flash", "A1").sd > 0.01


def test_a_print_counts_as_its_integers_and_is_scored_in_deviations() -> None:
    printed = Published(0.667, 6, 9, "Table 3")
    one = Prediction("s", "m", "A1", "funding_post", 0.5, 0.1, 3, printed)
    assert one.printed == 6 / 9
    assert one.z == pytest.approx((6 / 9 - 0.5) / 0.1)
    certain = Prediction("s", "m", "A1", "funding_post", 6 / 9, 0.0, 3, printed)
    contradicted = Prediction("s", "m", "A1", "funding_post", 0.5, 0.0, 3, printed)
    far = Prediction("s", "m", "A1", "funding_post", 0.1, 0.1, 3, printed)
    assert certain.z is None
    found = agreement([one, certain, contradicted, far])
    assert (found.equal, found.within, found.beyond, found.contradicted, found.total) == (1, 1, 1, 1, 4)


# Rotations, domains --------------------------------------------------------------------------------------------------


def test_the_frequency_study_plots_its_rows_and_its_prints() -> None:
    figure, rows = drawn("rotations")
    assert [(row["rotations"], row["eligible"], row["repeats"]) for row in rows[::6]] == [
        (1, 9, 11),
        (2, 7, 11),
        (3, 5, 11),
    ]
    for axis in panels(figure):
        lines = {line.get_label(): line for line in axis.lines if line.get_label() in ("A1", "A2D")}
        for arm, line in lines.items():
            mine = [row for row in rows if row["model"] == axis.get_title(loc="left") and row["arm"] == arm]
            assert [float(y) for y in line.get_ydata()] == pytest.approx([100 * row["mean"] for row in mine])
        assert lines["A2D"].get_linestyle() == "-"
        assert lines["A1"].get_linestyle() == "--"
    printed = sorted(y for axis in panels(figure) for y in diamonds(axis))
    assert printed == pytest.approx(sorted(100 * row["published"] for row in rows if row["published"] is not None))


def test_the_plateau_is_the_denominators() -> None:
    _, rows = drawn("denominators")
    for model in {row["model"] for row in rows}:

        def along(metric: str, arm: str, model: object = model) -> list[float]:
            return [row["mean"] for row in rows if (row["model"], row["metric"], row["arm"]) == (model, metric, arm)]

        assert along("first_try_eligible", "A2D") == pytest.approx([along("first_try_eligible", "A2D")[0]] * 3)
        for arm in ("A1", "A2D"):
            assert all(early > late for early, late in pairwise(along("governed_repeats", arm)))
        assert all(late - early > 0.84 for early, late in pairwise(along("retries", "A2D")))
    haiku = [
        row["mean"]
        for row in rows
        if (row["model"], row["metric"], row["arm"]) == ("claude-haiku-4-5", "governed_repeats", "A2D")
    ]
    assert haiku == pytest.approx([10 / 11, 9 / 11, 8 / 11])


def test_both_domains_have_a_line_a_model() -> None:
    figure, rows = drawn("targeted")
    (axis,) = figure.axes
    whole = [line for line in axis.lines if len(line.get_xdata()) == 4 and line.get_linestyle() != "None"]
    assert len(whole) == 6
    means = [
        [100 * row["mean"] for row in rows if (row["scenario"], row["model"]) == (scenario, model)]
        for model in figure_data.BOTH_DOMAINS
        for scenario in ("payments", "recipes")
    ]
    assert [[float(y) for y in line.get_ydata()] for line in whole] == [pytest.approx(each) for each in means]
    assert [line.get_linestyle() for line in whole] == ["-", "--"] * 3


# The savings equation ------------------------------------------------------------------------------------------------


def test_the_decomposition_adds_up_and_is_that_of_explain() -> None:
    figure, rows = drawn("decomposition")
    assert len(rows) == 21
    for row in rows:
        assert row["product"] + row["unapplied"] + row["invalid"] == pytest.approx(row["s_max"])
        terms = sum(row[name] for name in CORRECTIONS)
        assert row["product"] + terms == pytest.approx(row["realised"])
    found = explain(
        compile_plan(load_scenario("payments")),
        model=load_model("claude-sonnet-5"),
        arm=get_arm("A2D"),
        replications=20,
    )
    (row,) = [row for row in rows if (row["model"], row["arm"]) == ("claude-sonnet-5", "A2D")]
    assert row["realised"] == pytest.approx(found.exact.total.realised)
    assert row["published"] == pytest.approx((97 - 76) / 3, abs=0.1)
    for axis in figure.axes[:7]:
        mine = [row for row in rows if row["model"] == axis.get_title(loc="left")]
        ends = [
            line.get_xdata()[0] for line in axis.lines if len(line.get_xdata()) == 2 and line.get_linewidth() == 1.6
        ]
        assert ends == pytest.approx([row["realised"] for row in mine])
        assert len(axis.texts) == len(mine) == 3


# Episode by episode --------------------------------------------------------------------------------------------------


def test_the_episode_map_is_the_law_and_the_log() -> None:
    figure, rows = drawn("episodes")
    assert len(rows) == 4 * 36
    grid = figure.axes[0].collections[0].get_array()
    assert np.asarray(grid).ravel() == pytest.approx([row["probability"] for row in rows])
    plan, model = compile_plan(load_scenario("payments")), load_model(figure_data.MAPPED)
    for arm in LADDER:
        block = simulate_block(
            plan, arm=get_arm(arm), model=model, seed=figure_data.SEED, first=figure_data.STREAM, count=1
        )
        mine = [row for row in rows if row["arm"] == arm]
        assert [row["retries"] for row in mine] == (block.episode("attempts")[0] - 1).tolist()
        assert [row["evicted"] for row in mine] == block.episode("evicted")[0].tolist()
        assert [row["restamped"] for row in mine] == block.episode("restamped")[0].tolist()
    states = {arm: [row["state"] for row in rows if row["arm"] == arm] for arm in LADDER}
    assert states["A2D"][12] == "stale"
    assert states["A1"][15] == "conflict"
    assert states["A2"][29] == "lost"
    assert states["A2D"][29] in ("hit", "declined")
    assert set(states["A0"]) == {"free", "cold", "lost"}


def test_an_exhausted_episode_is_marked() -> None:
    plan = compile_plan(load_scenario("payments"))
    log = rerun(plan, arm=get_arm("A2D"), model=load_model("refuser"), seed=1, stream=0)
    states = read_states(log)
    block = simulate_block(plan, arm=get_arm("A2D"), model=load_model("refuser"), seed=1, first=0, count=1)
    assert [state.completed for state in states] == (block.episode("completed")[0] == 1).tolist()
    assert [state.retries for state in states] == (block.episode("attempts")[0] - 1).tolist()
    assert isinstance(states[0], EpisodeState)


# Against the print ---------------------------------------------------------------------------------------------------


def test_parity_shows_every_integer_once_and_counts_agreement() -> None:
    figure, rows = drawn("parity")
    points = [float(x) for axis in figure.axes[:2] for bar in axis.containers for x in bar.lines[0].get_xdata()]
    assert len(points) == len(rows) > 130
    assert all(row["published"] is not None for row in rows)
    title = figure.get_suptitle().replace("\n", " ")
    scored = [row["z"] for row in rows if row["z"] is not None]
    within = sum(abs(z) <= 2 for z in scored)
    assert title.startswith(
        f"Of {len(rows)} published integers {len(rows) - len(scored)} are certain and equal, {within} within"
    )
    counted = sum(patch.get_height() for patch in figure.axes[2].patches)
    assert counted == len([z for z in scored if abs(z) <= 3])


# On the wire ---------------------------------------------------------------------------------------------------------


def test_the_parts_of_a_response_add_up_to_its_bytes() -> None:
    plan = compile_plan(load_scenario("payments"))
    for level in Level:
        world = plan.domain.world(level=level)
        responses = []
        for task in plan.episodes:
            answer = world.respond(task.request)
            responses += [answer] if answer.ok else [answer, world.respond(task.solved(world))]
        sizes = [len(each.to_bytes()) for each in responses]
        cost = wire_cost(level)
        assert cost.responses == len(sizes) == 63
        assert cost.total == pytest.approx(np.mean(sizes))
    assert wire_cost(Level.L0).contract == 0
    assert wire_cost(Level.L4).parts == wire_cost(Level.L5).parts
    assert set(wire_cost(Level.L6).parts) == set(FIELDS)


def test_the_bars_of_the_wire_are_its_rows() -> None:
    figure, rows = drawn("wire")
    (axis,) = figure.axes
    levels = [level.name for level in Level]
    for name, bars in heights(axis).items():
        expected = [
            next((row["bytes"] for row in rows if (row["level"], row["part"]) == (level, name)), 0.0)
            for level in levels
        ]
        assert bars == pytest.approx(expected)
    assert set(heights(axis)) == set(FIELDS)
    added = {level: wire_cost(level).contract for level in Level}
    title = figure.get_suptitle().replace("\n", " ")
    assert f"L4 adds {added[Level.L4] - added[Level.L1]:.0f} B more" in title
    assert f"L6 adds {added[Level.L6] - added[Level.L4]:.0f} B more" in title
    assert "L5" not in title


# What if -------------------------------------------------------------------------------------------------------------


def test_a_grid_tells_where_memory_breaks_even() -> None:
    cells = what_if()
    assert crossing(cells, arm="A2D", drift=3.0) == pytest.approx(0.05 / 0.3)
    assert crossing(cells, arm="A1", drift=3.0) == pytest.approx(0.11 / 0.3)
    assert crossing([WhatIf(0.0, 0.0, {"A": -1.0}), WhatIf(0.0, 1.0, {"A": -0.5})], arm="A", drift=0.0) is None
    assert crossing([WhatIf(0.0, 0.2, {"A": 0.1}), WhatIf(0.0, 1.0, {"A": 0.5})], arm="A", drift=0.0) == 0.2
    figure, rows = drawn(SLOW)
    assert "at drift 2 it takes 30% under A1, 17% under A2D" in figure.get_suptitle().replace("\n", " ")
    assert len(rows) == 2 * len(cells)
    assert [axis.get_title(loc="left") for axis in panels(figure)][-1] == "A2D less A1"
    # What a colour bar counts stands over it: beside it, it would read as the next panel's vertical axis.
    bars = [axis for axis in figure.axes if axis.get_label() == "<colorbar>"]
    assert [(axis.get_title(loc="left"), axis.get_ylabel()) for axis in bars] == [("%", ""), ("points", "")]


def test_a_grid_with_a_hole_is_refused() -> None:
    with pytest.raises(InputError, match="every drift with every compliance"):
        break_even_figure(what_if()[:-1])
    with pytest.raises(InputError, match="every drift with every compliance"):
        break_even_figure([*what_if(), what_if()[0]])


# Diagrams ------------------------------------------------------------------------------------------------------------


def test_the_overview_names_what_the_code_has() -> None:
    plan = compile_plan(load_scenario("payments"))
    wire = wire_fields(plan.domain, [task.request for task in plan.episodes])
    assert wire == {
        "L0": (),
        "L1": ("table_versions", "cache_hint", "table"),
        "L4": ("tables",),
        "L5": (),
        "L6": ("rules_version",),
    }
    diagram = overview(wire)
    said = " ".join(line for box in diagram.boxes for line in box.lines) + " ".join(
        each.text for each in diagram.labels
    )
    for name in (*arm_names(), "table_versions", "affected_downstream", "ComplianceModel.decide", "stamps"):
        assert name in said
    boxes = {box.name for box in diagram.boxes}
    assert {arrow.end for arrow in diagram.arrows} <= boxes
    assert {arrow.start for arrow in diagram.arrows} <= boxes | {"drift"}
    for arrow in diagram.arrows:
        (end,) = [box for box in diagram.boxes if box.name == arrow.end]
        x, y = arrow.points[-1]
        assert end.x - 1e-9 <= x <= end.x + end.width + 1e-9
        assert end.y - 1e-9 <= y <= end.y + end.height + 1e-9


def report(name: str):
    return compile_plan(load_scenario(name)).drift[0].report


@pytest.mark.parametrize(("name", "scenario"), [("acme", "payments"), ("recipes", "recipes")])
def test_a_domain_is_drawn_from_its_tables_rules_and_graph(name: str, scenario: str) -> None:
    domain = load_domain(name)
    graph = domain.world().graph
    diagram = domain_diagram(domain, report(scenario))
    boxes = {box.name: box for box in diagram.boxes}
    assert set(graph.nodes) < set(boxes)
    assert {table.name for table in domain.tables} | {policy.type for policy in domain.policies} < set(boxes)
    edges = [(each.start, each.end, each.relation) for each in diagram.arrows if not each.head]
    assert sorted(edges) == sorted(graph.edges)
    changed = [box.name for box in diagram.boxes if box.kind == "changed" and box.lines]
    assert changed == [f"{report(scenario).diff.table}:{key}" for key in report(scenario).diff.keys]
    assert [box.name for box in diagram.boxes if box.kind == "downstream" and box.lines] == list(
        report(scenario).affected_downstream
    )
    for one, other in combinations([box for box in diagram.boxes if box.lines], 2):
        assert not overlap(one, other), (one.name, other.name)
    assert domain_figure(domain, report(scenario)).get_size_inches()[0] == PAGE


def overlap(one: Box, other: Box) -> bool:
    width = min(one.x + one.width, other.x + other.width) - max(one.x, other.x)
    height = min(one.y + one.height, other.y + other.height) - max(one.y, other.y)
    return width > 1e-6 and height > 1e-6


def test_every_text_of_a_diagram_lies_within_its_box() -> None:
    figure, _ = drawn("domain")
    figure.draw_without_rendering()
    (axis,) = figure.axes
    patches = [patch.get_window_extent() for patch in axis.patches]
    inside = [text for text in axis.texts if text.get_ha() == "center"]
    assert len(inside) > 40
    for text in inside:
        box = text.get_window_extent()
        assert any(p.x0 <= box.x0 and box.x1 <= p.x1 and p.y0 <= (box.y0 + box.y1) / 2 <= p.y1 for p in patches), (
            text.get_text()
        )


def test_tables_stand_by_how_many_derivations_lead_to_them() -> None:
    acme = load_domain("acme")
    assert depths(acme)["recommended_credit_token"] == 2
    assert depths(acme)["active_csm_codes"] == 0
    assert [len(group) for group in groups(acme)] == [3, 3]
