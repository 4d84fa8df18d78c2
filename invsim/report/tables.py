"""Run results as tables: simulated with its Monte Carlo error, and the published figure beside it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from invsim.data.published import Published, lookup
from invsim.errors import one_line
from invsim.stats.moments import Estimate
from invsim.stats.savings import Priced, Savings
from invsim.stats.uncertainty import Uncertain

if TYPE_CHECKING:
    from rich.table import Table

MEASURED = (
    "first_try_eligible",
    "validity",
    "compliance_given_valid",
    "WINDOWS",
    "eviction_precision",
    "eviction_precision_row",
    "eviction_recall_row",
    "evictions",
    "restamped_entries",
    "ALERTS",
    "retries",
    "attempts",
    "completed",
    "exhausted",
    "attempts_saving",
    "token_saving",
    "contract_failures",
)
"""Rows of the table for people, in order. Everything else is in ``--json`` and in the Parquet files."""

LABELS = {
    "first_try_eligible": "first try, eligible",
    "compliance_given_valid": "compliance given valid",
    "eviction_precision": "eviction precision (1/evictions)",
    "eviction_precision_row": "eviction precision, true",
    "eviction_recall_row": "eviction recall, true",
}


class ArmLike(Protocol):
    """An arm's estimates."""

    @property
    def arm(self) -> str:
        """Name of the arm."""

    @property
    def metrics(self) -> Mapping[str, Estimate]:
        """Estimates by metric."""

    @property
    def first_try_by_class(self) -> Mapping[str, Estimate]:
        """First-try rates by class."""


class RunLike(Protocol):
    """A run's estimates."""

    @property
    def scenario(self) -> str:
        """Name of the scenario."""

    @property
    def model(self) -> str:
        """Name of the model."""

    @property
    def as_published(self) -> bool:
        """Whether published figures compare with it."""

    @property
    def arms(self) -> Sequence[ArmLike]:
        """One per arm."""


@dataclass(frozen=True)
class Cell:
    """A simulated figure and, where the paper prints one, the published figure."""

    model: str
    arm: str
    metric: str
    simulated: Estimate
    published: Published | None


def metric_names(result: RunLike) -> list[str]:
    """Return the metrics of the table for people that this scenario has."""
    have = list(result.arms[0].metrics)
    start, end = have.index("compliance_given_valid") + 1, have.index("evictions")
    alerts = [name for name in have if name.startswith("alert_")]
    groups = {"WINDOWS": have[start:end], "ALERTS": alerts}
    return [name for row in MEASURED for name in groups.get(row, [row])]


def cells(result: RunLike) -> Iterator[Cell]:
    """Yield every figure of the table, metric by metric, with its published counterpart."""
    for metric in metric_names(result):
        for arm in result.arms:
            printed = lookup(result.scenario, result.model, arm.arm, metric) if result.as_published else None
            yield Cell(result.model, arm.arm, metric, arm.metrics[metric], printed)


SHOWN = 0.0005
"""Smallest error that is printed."""


def number(value: float | None, *, digits: int = 3) -> str:
    """Return a number for people: no more digits than it has, "-" where it is undefined."""
    if value is None:
        return "-"
    text = f"{round(value, digits) + 0.0:.{digits}f}"  # adding 0 turns -0 into 0
    return text.rstrip("0").rstrip(".") if "." in text else text


def estimate(value: Estimate) -> str:
    """Return "value ±error"; the error is left out where it is 0. Of an estimated model it is that of the fit."""
    if value.value is None:
        return "-"
    error = value.fit_se if isinstance(value, Uncertain) else value.se
    if error is None:
        return f"{number(value.value)} ±?"
    return f"{number(value.value)} ±{number(error)}" if error >= SHOWN else number(value.value)


def _spreads(row: Sequence[Cell]) -> Iterator[tuple[str, list[str]]]:
    """Yield the lines below a metric of an estimated model: its interval, and the Monte Carlo error apart."""
    found = [each.simulated if isinstance(each.simulated, Uncertain) else None for each in row]
    if any(each and (each.fit_se or 0.0) >= SHOWN for each in found):
        ends = [(each.lo, each.hi) if each and (each.fit_se or 0.0) >= SHOWN else None for each in found]
        yield "  95% interval", [f"{number(each[0])} to {number(each[1])}" if each else "" for each in ends]
    if any(each and (each.se or 0.0) >= SHOWN for each in found):
        yield "  Monte Carlo error", [number(each.se) if each and each.se else "" for each in found]


LABEL_WIDTH, ARM_WIDTH, INTERVAL_WIDTH = 34, 15, 18
"""Columns that a table for a terminal takes for its labels and, at the most, for an arm; for one with intervals."""


def for_terminal(result: RunLike, title: str, *, width: int) -> Iterator[Table]:
    """Yield tables for a terminal: a column an arm, as many as fit the width, published figures on a line below."""
    estimated = any(isinstance(each, Uncertain) for each in result.arms[0].metrics.values())
    fit = max(1, (width - LABEL_WIDTH) // (INTERVAL_WIDTH if estimated else ARM_WIDTH))
    for first in range(0, len(result.arms), fit):
        yield _terminal_table(result, title, {arm.arm for arm in result.arms[first : first + fit]})


def _terminal_table(result: RunLike, title: str, shown: set[str]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), title_justify="left", box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for arm in result.arms:
        if arm.arm in shown:
            table.add_column(escape(arm.arm), justify="right", no_wrap=True)
    for metric in metric_names(result):
        row = [cell for cell in cells(result) if cell.metric == metric and cell.arm in shown]
        table.add_row(escape(LABELS.get(metric, metric.replace("_", " "))), *(estimate(cell.simulated) for cell in row))
        for label, texts in _spreads(row):
            table.add_row(label, *texts, style="bright_black")
        if any(cell.published for cell in row):
            values = (number(cell.published.value) if cell.published else "" for cell in row)
            table.add_row("  published", *values, style="cyan")
    return table


COLUMNS = (
    "model",
    "arm",
    "metric",
    "simulated",
    "error",
    "n",
    "published",
    "published_count",
    "published_of",
    "where",
)


FIT_COLUMNS = ("fit_se", "fit_lo", "fit_hi", "lo", "hi")
"""Behind them where a model was estimated."""


def to_csv(results: Sequence[RunLike]) -> str:
    """Return every figure of the tables as CSV; undefined and unpublished are empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    estimated = any(isinstance(cell.simulated, Uncertain) for result in results for cell in cells(result))
    writer.writerow(COLUMNS + FIT_COLUMNS if estimated else COLUMNS)
    for result in results:
        for cell in cells(result):
            simulated, printed = cell.simulated, cell.published
            writer.writerow(
                [
                    cell.model,
                    cell.arm,
                    cell.metric,
                    _plain(simulated.value),
                    _plain(simulated.se),
                    simulated.n,
                ]
                + ([printed.value, printed.count, printed.of, printed.where] if printed else [None] * 4)
                + ([_plain(getattr(simulated, name, None)) for name in FIT_COLUMNS] if estimated else [])
            )
    return out.getvalue()


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _cell(text: str) -> str:
    return one_line(text).replace("|", "\\|")


def to_markdown(results: Sequence[RunLike], title: str) -> str:
    """Return the tables as Markdown, "simulated ±error [published]" in each cell."""
    estimated = any(isinstance(cell.simulated, Uncertain) for result in results for cell in cells(result))
    error = "standard deviation over draws of an estimated model" if estimated else "Monte Carlo error"
    lines = [f"# {title}", "", f"Simulated ±{error}, and in brackets what the paper prints.", ""]
    for result in results:
        arms = [_cell(arm.arm) for arm in result.arms]
        lines += [f"## {one_line(result.model)}", "", f"| | {' | '.join(arms)} |", "|---|" + "---:|" * len(arms)]
        for metric in metric_names(result):
            row = [cell for cell in cells(result) if cell.metric == metric]
            texts = (
                estimate(cell.simulated) + (f" [{number(cell.published.value)}]" if cell.published else "")
                for cell in row
            )
            lines.append(f"| {_cell(LABELS.get(metric, metric.replace('_', ' ')))} | {' | '.join(texts)} |")
        lines.append("")
    return "\n".join(lines)


class ExplainedLike(Protocol):
    """The savings equation of one model and arm."""

    @property
    def exact(self) -> Savings:
        """Exact figures."""

    @property
    def sampled(self) -> Mapping[str, Mapping[str, Estimate]]:
        """The same from simulated streams, by class."""

    @property
    def priced(self) -> Mapping[str, Priced]:
        """In units of an attempt's base cost, or in money."""


TERMS = (
    ("s_max", "S_max"),
    ("validity", "V, validity"),
    ("compliance", "C, compliance given valid"),
    ("product", "S_max V C"),
    ("conflicts", "+ fresh picked out of a conflict"),
    ("stale", "+ stale fixes applied"),
    ("refusals", "+ valid fixes not applied"),
    ("recovery", "+ recovery, where fixes injected"),
    ("uninjected", "+ chance, without a fix"),
    ("realised", "= realised"),
)


def savings_tables(found: ExplainedLike, *, width: int) -> Iterator[Table]:
    """Yield the savings equation for a terminal: a column a class, as many as fit, sampled figures below exact ones."""
    names = list(found.exact.figures())
    fit = max(1, (width - LABEL_WIDTH) // ARM_WIDTH)
    for first in range(0, len(names), fit):
        yield _savings_table(found, names[first : first + fit])


def _savings_table(found: ExplainedLike, names: Sequence[str]) -> Table:
    from rich.markup import escape
    from rich.table import Table

    figures = found.exact.figures()
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("", no_wrap=True)
    for name in names:
        table.add_column(escape(name), justify="right", no_wrap=True)
    for term, label in TERMS:
        table.add_row(label, *(number(figures[name][term]) for name in names))
        sampled = [found.sampled.get(name, {}).get(term) for name in names]
        if any(each is not None and each.value is not None for each in sampled):
            table.add_row("  simulated", *("-" if each is None else estimate(each) for each in sampled), style="cyan")
    table.add_row("")
    priced = [found.priced[name] for name in names]
    table.add_row("realised, priced", *(number(each.saving.realised) for each in priced))
    table.add_row("- carrying the injected blocks", *(number(each.carrying) for each in priced))
    table.add_row("- conflicts carried", *(number(each.conflict) for each in priced))
    table.add_row("= net", *(number(each.net) for each in priced))
    return table
