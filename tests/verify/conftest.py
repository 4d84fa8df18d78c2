"""The ledger of the statistical checks: what each measured against its limit, as a table and a report with plots.

A check states a figure and the bounds it must lie in; the ledger asserts that it does and remembers it either way. At
the end the table is printed, and ``build/verify`` holds ``report.md`` with two plots: all z-scores against the normal
distribution, and all measured coverages.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parents[2] / "build" / "verify"


@dataclass
class Ledger:
    rows: list[tuple[str, float, str, bool]] = field(default_factory=list)
    scores: dict[str, list[float]] = field(default_factory=dict)
    coverages: dict[str, tuple[float, float]] = field(default_factory=dict)

    def check(self, name: str, value: float, *, low: float = -math.inf, high: float = math.inf) -> None:
        """Assert that a figure lies within bounds, and enter it."""
        held = bool(low <= value <= high)
        bounds = " and ".join(
            text for text, shown in ((f">= {low:g}", low > -math.inf), (f"<= {high:g}", high < math.inf)) if shown
        )
        self.rows.append((name, float(value), bounds, held))
        assert held, f"{name}: {value:g} is not {bounds}"

    def z(self, name: str, scores: np.ndarray | list[float], *, limit: float = 5.0) -> None:
        """Assert that no z-score passes the limit, and keep them for the plot."""
        found = [float(each) for each in np.ravel(scores)]
        self.scores.setdefault(name, []).extend(found)
        self.check(f"{name}: largest |z| of {len(found)}", max(map(abs, found)), high=limit)

    def coverage(self, name: str, measured: float, *, low: float, high: float = 1.0, error: float = 0.0) -> None:
        """Assert a measured coverage, and keep it with its Monte Carlo error for the plot."""
        self.coverages[name] = (measured, error)
        self.check(f"coverage, {name}", measured, low=low, high=high)


LEDGER = Ledger()


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    return LEDGER


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not LEDGER.rows:
        return
    width = max(len(name) for name, *_ in LEDGER.rows)
    terminalreporter.section("statistical checks")
    for name, value, bounds, held in LEDGER.rows:
        terminalreporter.write_line(f"{name:<{width}}  {value:>10.4g}  {bounds:<20} {'ok' if held else 'FAILED'}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    write_report(FOLDER)
    terminalreporter.write_line(f"report: {FOLDER.relative_to(Path(__file__).parents[2]) / 'report.md'}")


def write_report(folder: Path) -> None:
    lines = ["# Statistical checks", "", "| check | measured | must be | |", "|---|---:|---|---|"]
    lines += [
        f"| {name} | {value:.4g} | {bounds} | {'ok' if held else '**failed**'} |"
        for name, value, bounds, held in LEDGER.rows
    ]
    if LEDGER.scores:
        plot_scores(folder / "scores.png")
        lines += ["", "Every z-score against the normal distribution; the dashed lines are the limit of 5.", ""]
        lines += ["![z-scores](scores.png)"]
    if LEDGER.coverages:
        plot_coverages(folder / "coverage.png")
        lines += ["", "Measured coverage of nominal 95% intervals, with two Monte Carlo errors.", ""]
        lines += ["![coverage](coverage.png)"]
    (folder / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def plot_scores(path: Path) -> None:
    from matplotlib.figure import Figure
    from scipy.special import ndtri

    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.subplots()
    for name, scores in LEDGER.scores.items():
        ordered = np.sort(scores)
        expected = ndtri((np.arange(len(ordered)) + 0.5) / len(ordered))
        axes.plot(expected, ordered, ".", markersize=3, label=f"{name} ({len(ordered)})")
    axes.axline((0, 0), slope=1, color="black", linewidth=0.8)
    for limit in (-5, 5):
        axes.axhline(limit, color="black", linestyle="--", linewidth=0.8)
    axes.set_xlabel("normal quantile")
    axes.set_ylabel("z-score")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)


def plot_coverages(path: Path) -> None:
    from matplotlib.figure import Figure

    names = list(LEDGER.coverages)
    measured = np.array([LEDGER.coverages[name][0] for name in names])
    errors = np.array([LEDGER.coverages[name][1] for name in names])
    figure = Figure(figsize=(7, 1.2 + 0.22 * len(names)), layout="constrained")
    axes = figure.subplots()
    axes.errorbar(measured, np.arange(len(names)), xerr=2 * errors, fmt="o", color="black", markersize=3)
    axes.axvline(0.95, color="black", linestyle="--", linewidth=0.8)
    axes.set_yticks(np.arange(len(names)), names, fontsize="small")
    axes.invert_yaxis()
    axes.set_xlabel("measured coverage")
    figure.savefig(path, dpi=120)
