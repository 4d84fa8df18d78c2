"""The calibration as tables: estimates, residuals, predictions out of sample, token costs and bytes.

The same rows stand in the files that ``invsim paper`` writes and on the screen of ``invsim calibrate``.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from invsim.calibrate import (
    Calibration,
    Estimated,
    TokenFit,
    accuracy,
    beside_print,
    calibrate,
    detection_deltas,
    fit_tokens,
    implied,
    validate,
    wire_cost,
)
from invsim.calibrate.validate import Prediction
from invsim.client.planners.models import PUBLISHED
from invsim.paper.render import Record, markdown_table, to_csv

T = TypeVar("T")

Row = dict[str, str]
"""One line of a table for people."""


@dataclass(frozen=True)
class Section:
    """A table for people, under a line that says what it is."""

    title: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class Report:
    """A part of the calibration: sections to read, records to compute with, and all of it as plain data."""

    name: str
    title: str
    sections: Sequence[Section]
    records: Mapping[str, Sequence[Record]]
    data: Any

    def files(self) -> dict[str, bytes]:
        """Return NAME.md and a CSV for each kind of record."""
        lines = [f"# {self.title}"]
        for section in self.sections:
            lines += ["", section.title, ""]
            if section.rows:
                columns = list(section.rows[0])
                lines += markdown_table(columns, [list(row.values()) for row in section.rows])
        written = {f"{self.name}.md": "\n".join(lines) + "\n"}
        written |= {f"{name}.csv": to_csv(rows) for name, rows in self.records.items()}
        return {name: text.encode() for name, text in written.items()}


def each_model(work: Callable[[str], T], models: Sequence[str], done: Callable[[int], None] | None = None) -> list[T]:
    """Do something for each model, on as many processes as there are cores; the order is that of the models."""
    workers = min(len(models), os.cpu_count() or 1)
    found = []
    if workers == 1:
        for name in models:
            found.append(work(name))
            if done is not None:
                done(1)
        return found
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for result in pool.map(work, models):
            found.append(result)
            if done is not None:
                done(1)
    return found


# Profiles ---------------------------------------------------------------------------------------------------------


def estimates(found: Sequence[Calibration]) -> Report:
    """Return the estimated profiles."""
    sections = []
    for each in found:
        met = sum(row.z == 0.0 for row in each.residuals)
        sections += [
            Section(
                f"{each.model_name}: log likelihood {each.log_likelihood:.3f} of {len(each.residuals)} integers",
                _parameters(each),
            ),
            Section(
                f"All {met} integers are met exactly."
                if met == len(each.residuals)
                else f"{met} integers are met exactly; the others, farthest first:",
                _residuals(each),
            ),
        ]
    return Report(
        "calibration",
        "Profiles estimated from the printed integers",
        sections,
        {
            "calibration": [
                {"model": each.model_name, **_flat(row.to_dict())} for each in found for row in each.parameters
            ],
            "residuals": [
                {"model": each.model_name, **_flat(row.to_dict())} for each in found for row in each.residuals
            ],
        },
        plain(found),
    )


def _parameters(found: Calibration) -> list[Row]:
    return [
        {
            "parameter": row.name,
            "kind": row.kind,
            "estimate": f"{row.value:.4f}",
            f"{100 * found.confidence:g}% interval": _interval(row),
            "rests on": f"{len(row.evidence)} integers" if row.free else "",
            "why": row.why,
        }
        for row in found.parameters
    ]


def _interval(row: Estimated) -> str:
    if not row.free:
        return "not identified" if row.name.endswith(".p_stale") and not row.identified else "fixed"
    if not row.identified:
        return "not identified"
    return f"{row.lo:.4f} to {row.hi:.4f}" + (", one-sided" if row.boundary else "")


def _residuals(found: Calibration) -> list[Row]:
    off = [row for row in found.residuals if row.z != 0.0]
    return [
        {
            "scenario": row.scenario,
            "arm": row.arm,
            "figure": row.metric,
            "printed": f"{row.printed}",
            "expected": f"{row.expected:.2f}",
            "sd": f"{row.sd:.2f}",
            "z": _z(row.z),
        }
        for row in sorted(off, key=lambda row: -abs(row.z) if row.z is not None else -1e9)
    ]


def _z(value: float | None) -> str:
    return "cannot happen" if value is None else f"{value:+.2f}"


# Out of sample ----------------------------------------------------------------------------------------------------


def predictions(found: Sequence[Prediction]) -> Report:
    """Return what was predicted of figures that were not fitted, and how far off it is."""
    errors = accuracy(found)
    return Report(
        "validation",
        "Predicted out of sample",
        (
            Section(
                "Fitted to A0, and to the first tries of A1 and A2D; predicted:",
                [
                    {
                        "model": each.model,
                        "scenario": each.scenario,
                        "arm": each.arm,
                        "figure": each.metric,
                        "printed": f"{each.printed:g}",
                        "predicted": f"{each.predicted:.3f}",
                        "error": f"{each.error:+.2f}",
                        "sd": f"{each.sd:.3f}",
                        "z": _z(each.z),
                    }
                    for each in found
                ],
            ),
            Section(
                "Errors in points for first tries and savings, per run for other counts:",
                [
                    {
                        "figure": each.metric,
                        "figures": f"{each.figures}",
                        "rmse": f"{each.rmse:.2f}",
                        "mean |error|": f"{each.mean_absolute:.2f}",
                        "bias": f"{each.bias:+.2f}",
                        "within 2 sd": f"{each.within_two} of {each.figures}",
                        "largest |z|": f"{each.largest_z:.2f}",
                    }
                    for each in errors
                ],
            ),
        ),
        {"validation": [_flat(each.to_dict()) for each in found], "accuracy": [_flat(e.to_dict()) for e in errors]},
        {"predictions": plain(found), "accuracy": plain(errors)},
    )


# Tokens -----------------------------------------------------------------------------------------------------------


def token_costs() -> Report:
    """Return the token model fitted to the printed savings, from the plainest form to the shipped one."""
    fits = fit_tokens()
    shipped = fits[-1]
    deltas = detection_deltas(shipped.costs("claude-haiku-4-5"))
    return Report(
        "tokens",
        "What an attempt costs in tokens",
        (
            Section(
                "Costs in base costs of an attempt (± standard error), errors in points of saving (Table 6):",
                [
                    {
                        "model": each.name,
                        "per retry": _cost(each, "per_retry"),
                        "per entry": _cost(each, "per_entry"),
                        "conflict": _cost(each, "conflict"),
                        "rmse": f"{each.rmse:.2f}",
                        "largest": f"{each.largest:.2f}",
                    }
                    for each in fits
                ],
            ),
            Section(
                "Residuals of the shipped costs:",
                [
                    {
                        "model": each.model,
                        "arm": each.arm,
                        "printed": f"{each.printed:.3f}",
                        "fitted": f"{each.fitted:.3f}",
                        "error": f"{each.error:+.2f}",
                    }
                    for each in shipped.residuals
                ],
            ),
            Section(
                "Table 5, which was not fitted: tokens against lazy vectors, in %:",
                [
                    {
                        "arm": each.arm,
                        "shipped": f"{100 * each.fitted:+.2f}",
                        "printed": f"{100 * each.low:+.2f} to {100 * each.high:+.2f}",
                        "outside": f"{each.outside:+.2f}",
                    }
                    for each in deltas
                ],
            ),
        ),
        {"tokens": [{"costs": each.name, **_flat(residual.to_dict())} for each in fits for residual in each.residuals]},
        {"fits": plain(fits), "detection": plain(deltas)},
    )


def _cost(fit: TokenFit, name: str) -> str:
    value = f"{getattr(fit, name):.4f}"
    return f"{value} ±{fit.se[name]:.4f}" if name in fit.se else value


# Bytes ------------------------------------------------------------------------------------------------------------


def byte_costs(models: Sequence[str] = PUBLISHED) -> Report:
    """Return what the contract adds to the server's own responses, beside the print."""
    levels = wire_cost(models=models)
    printed, together = beside_print(levels[0]), implied(levels[0])
    return Report(
        "wire-cost",
        "What the contract costs on the wire",
        (
            Section(
                "Responses of the payments stream, by wire level, bytes:",
                [
                    {
                        "level": each.level,
                        "responses": f"{each.responses}",
                        "mean": f"{each.mean_bytes:.1f}",
                        "contract": f"{each.contract_bytes:.1f}",
                        "share": f"{each.contract_share:.3f}",
                        "largest": f"{each.largest}",
                        "fields (bytes, share)": ", ".join(
                            f"{f.field} {f.bytes:.1f} {f.share:.3f}" for f in each.fields
                        ),
                    }
                    for each in levels
                ],
            ),
            Section(
                "Level 1 beside the print:",
                [
                    {
                        "figure": each.figure,
                        "printed": f"{each.printed:.4g}",
                        "measured": f"{each.measured:.4g}",
                        "difference": f"{each.difference:+.4g}",
                        "why": each.reason,
                    }
                    for each in printed
                ],
            ),
            Section(
                "What the printed figures say together:",
                [
                    {
                        "what": each.what,
                        "gives": f"{each.left:.4g}",
                        "beside": f"{each.right:.4g}",
                        "reading": each.reading,
                    }
                    for each in together
                ],
            ),
        ),
        {
            "wire-cost": [{"level": each.level, **_flat(field.to_dict())} for each in levels for field in each.fields],
            "wire-print": [_flat(each.to_dict()) for each in printed],
        },
        {"levels": plain(levels), "beside_print": plain(printed), "implied": plain(together)},
    )


def plain(found: Iterable[Any]) -> list[dict[str, object]]:
    """Return results as plain data."""
    return [each.to_dict() for each in found]


def _flat(record: Mapping[str, Any]) -> Record:
    """Return a record whose lists are texts."""
    return {name: _text(value) for name, value in record.items()}


def _text(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return "; ".join(map(str, value))
    return int(value) if isinstance(value, bool) else value


# What takes minutes, a model at a time -----------------------------------------------------------------------------


def predicted(name: str) -> tuple[Prediction, ...]:
    """Predict what was held out of one model."""
    return validate([name])


def joined(found: Iterable[Iterable[T]]) -> list[T]:
    """Return the members of several sequences, in order."""
    return [each for some in found for each in some]


REPORTS: Mapping[str, tuple[Callable[[], Report], tuple[str, ...]]] = {
    "calibration": (lambda: estimates(each_model(calibrate, PUBLISHED)), ("calibration", "residuals")),
    "validation": (lambda: predictions(joined(each_model(predicted, PUBLISHED))), ("validation", "accuracy")),
    "tokens": (token_costs, ("tokens",)),
    "wire-cost": (byte_costs, ("wire-cost", "wire-print")),
}
"""Reports of all seven models by name: how each is made, and the records that it writes."""
