"""Rates along an axis: rotations packed into a stream, and the arms on the class that drifts in both domains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from invsim.report.figures.predictions import Prediction, names, select, whiskers
from invsim.report.figures.style import (
    ARMS,
    COLUMN,
    INK,
    PAGE,
    PUBLISHED,
    SERIES,
    SPREAD,
    Look,
    Row,
    headline,
    legend_below,
    page,
    styled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RATE = "first-try rate (%)"
Line: TypeAlias = "str | tuple[int, tuple[int, int]]"
SOLID: Line = "-"
DASHED: Line = (0, (4, 2))


@dataclass(frozen=True)
class Rotations:
    """One rate of the frequency study.

    Parameters
    ----------
    rotations : int
        Rotations in one stream.
    eligible, repeats : int
        Governed episodes that compliance counts, and all that come after the first.
    predictions : tuple of Prediction
    """

    rotations: int
    eligible: int
    repeats: int
    predictions: tuple[Prediction, ...]


def rotation_rows(study: Sequence[Rotations]) -> list[Row]:
    """Return the plotted values of the frequency study."""
    return [
        {"rotations": each.rotations, "eligible": each.eligible, "repeats": each.repeats, **one.row()}
        for each in study
        for one in each.predictions
    ]


def _along(study: Sequence[Rotations], model: str, arm: str, metric: str) -> list[tuple[float, Prediction]]:
    return [
        (float(each.rotations), one)
        for each in study
        for one in select(each.predictions, model=model, arm=arm, metric=metric)
    ]


@styled
def rotation_figure(study: Sequence[Rotations]) -> Figure:
    """Draw compliance against rotations, a panel a model, row eviction solid and no invalidation dashed."""
    models = names(study[0].predictions, "model")
    figure = page(PAGE, 2.35)
    axes = figure.subplots(1, len(models), sharey=True, squeeze=False)[0]
    for axis, model in zip(axes, models, strict=True):
        for arm, line, shift in (("A1", DASHED, -0.06), ("A2D", SOLID, 0.06)):
            _series(axis, _along(study, model, arm, "first_try_eligible"), ARMS[arm], arm, line=line, shift=shift)
        axis.set_title(model)
        axis.set_xlabel("rotations per stream of 36 episodes")
        _frame(axis, [each.rotations for each in study])
    axes[0].set_ylabel(f"compliance: {RATE}")
    marks(axes[0], study[0].predictions[0].runs)
    still, fallen = _range(study, "A2D"), _range(study, "A1")
    moves = "does not move" if still < 0.05 else f"moves by {still:.1f} points at most"
    headline(figure, f"Expected compliance at A2D {moves} with drift; at A1 it falls by up to {fallen:.0f} points")
    legend_below(figure, axes)
    return figure


def _range(study: Sequence[Rotations], arm: str) -> float:
    """Return by how many points an arm's compliance moves with the rotations, in the model where it moves most."""
    spreads = []
    for model in names(study[0].predictions, "model"):
        means = [100 * (each.mean or 0.0) for _, each in _along(study, model, arm, "first_try_eligible")]
        spreads.append(max(means) - min(means))
    return max(spreads)


@styled
def denominator_figure(study: Sequence[Rotations], models: Sequence[str]) -> Figure:
    """Draw why the frequency study levels off: the rate over eligible episodes, over all repeats, and the retries."""
    figure = page(PAGE, 2.75)
    axes = figure.subplots(1, 3)
    panels: tuple[tuple[str, str, str, Callable[[Rotations], str]], ...] = (
        (
            "first_try_eligible",
            "(a) compliance, as published",
            RATE,
            lambda each: f"\n{each.eligible} of {each.repeats}",
        ),
        ("governed_repeats", "(b) over every repeat", RATE, lambda each: f"\n{each.repeats} of {each.repeats}"),
        ("retries", "(c) what the drift costs", "retries per stream", lambda each: ""),
    )
    for axis, (metric, title, unit, tick) in zip(axes, panels, strict=True):
        for at, model in enumerate(models):
            for arm, line, side in (("A1", DASHED, -1), ("A2D", SOLID, 1)):
                _series(
                    axis, _along(study, model, arm, metric), SERIES[at], f"{model}, {arm}",
                    line=line, shift=0.05 * (side + 0.5 * at), scale=1.0 if metric == "retries" else 100.0,
                )  # fmt: skip
        _frame(axis, [each.rotations for each in study])
        axis.set_xticks([each.rotations for each in study], [f"{each.rotations}{tick(each)}" for each in study])
        axis.set_title(title)
        axis.set_ylabel(unit)
        axis.set_xlabel("rotations per stream" if metric == "retries" else "rotations, and governed episodes counted")
    axes[2].set_ylim(0, 18)
    marks(axes[0], study[0].predictions[0].runs)
    headline(
        figure,
        "The plateau is the denominator's: each rotation takes two episodes out of it; over every repeat first try "
        "falls with drift even at A2D, and retries rise",
    )
    legend_below(figure, axes, columns=3)
    return figure


@styled
def targeted_figure(predictions: Sequence[Prediction], metrics: Sequence[tuple[str, str, str]]) -> Figure:
    """Draw first try on the class that drift targets, one look a model, one line a domain.

    Parameters
    ----------
    predictions : sequence of Prediction
    metrics : sequence of (scenario, metric, label)
        The first is drawn solid, the second dashed.
    """
    arms, models = names(predictions, "arm"), names(predictions, "model")
    figure = page(COLUMN, 3.3)
    axis = figure.subplots()
    for at, model in enumerate(models):
        for (scenario, metric, _), line, shift in zip(metrics, (SOLID, DASHED), (-0.03, 0.03), strict=True):
            mine = select(predictions, scenario=scenario, model=model, metric=metric)
            points = [(float(arms.index(each.arm)), each) for each in mine]
            _series(axis, points, SERIES[at], "", line=line, shift=shift + 0.09 * (at - 1))
        axis.plot([], [], color=SERIES[at].colour, marker=SERIES[at].marker, markersize=3.2, label=model)
    for (_, _, label), line in zip(metrics, (SOLID, DASHED), strict=True):
        axis.plot([], [], color=INK, linestyle=line, marker="", label=label)
    axis.set_xticks(range(len(arms)), arms)
    axis.set_xlim(-0.35, len(arms) - 0.65)
    axis.set_xlabel("arm")
    axis.set_ylabel(f"{RATE}, class that drifts")
    axis.set_ylim(-4, 104)
    axis.grid(axis="x", visible=False)
    marks(axis, predictions[0].runs)
    here, there = (
        {each.model: each.mean or 0.0 for each in select(predictions, scenario=scenario, arm="A2D", metric=metric)}
        for scenario, metric, _ in metrics
    )
    turned = [model for model in models if there[model] > here[model]]
    whose = f", {' and '.join(turned)} more so in {metrics[1][2]}" if turned else ""
    headline(figure, f"A2D lifts first try in both domains{whose}")
    legend_below(figure, [axis], columns=2)
    return figure


def _series(
    axis: Axes,
    points: Sequence[tuple[float, Prediction]],
    look: Look,
    label: str,
    *,
    line: Line,
    shift: float,
    scale: float = 100.0,
) -> None:
    """Draw means as a line, their spread as whiskers, and the prints as open diamonds."""
    drawn = [(x + shift, each) for x, each in points if each.mean is not None]
    if not drawn:
        return
    at = [x for x, _ in drawn]
    axis.plot(
        at, [scale * (each.mean or 0.0) for _, each in drawn], color=look.colour, linestyle=line,
        marker=look.marker, markersize=3.2, label=label,
    )  # fmt: skip
    axis.errorbar(
        at, [scale * (each.mean or 0.0) for _, each in drawn], yerr=whiskers([each for _, each in drawn], scale),
        linestyle="", marker="", color=look.colour, elinewidth=0.7,
    )  # fmt: skip
    shown = [(x, each.printed) for x, each in drawn if each.printed is not None]
    if shown:
        axis.plot(
            [x for x, _ in shown], [scale * y for _, y in shown], linestyle="", marker="D", markersize=4.6,
            markerfacecolor="white", markeredgecolor=look.colour, markeredgewidth=1.0, zorder=3, clip_on=False,
        )  # fmt: skip


def _frame(axis: Axes, rotations: Sequence[int]) -> None:
    axis.set_xticks(list(rotations))
    axis.set_xlim(rotations[0] - 0.3, rotations[-1] + 0.3)
    axis.set_ylim(-4, 106)
    axis.grid(axis="x", visible=False)


def marks(axis: Axes, runs: int) -> None:
    """Name the marks of ``_series`` in the legend."""
    axis.plot(
        [], [], linestyle="", marker="D", markersize=4.6, markerfacecolor="white", markeredgecolor=INK,
        markeredgewidth=1.0, label=PUBLISHED,
    )  # fmt: skip
    axis.errorbar(
        [],
        [],
        yerr=[],
        linestyle="",
        marker="",
        color=INK,
        elinewidth=0.7,
        label=f"{SPREAD} of the mean of {runs} runs",
    )
