"""``invsim fit``."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from invsim.cli.inputs import FILE, check_file, each_once, make_folder, require_a_file, split_names
from invsim.cli.output import print_json, print_rows, progress
from invsim.errors import InputError, UnknownNameError, one_line

if TYPE_CHECKING:
    from invsim.fit import Fit, TallyLike
    from invsim.traces.read import FileReport

COUNTS = "counts"
HEAD = 65_536
LONGEST = 60
"""Characters of a model's name that its file takes: as bytes they still leave room for what follows."""

_ODD = re.compile(r"[^\w.-]+")


@click.command()
@click.argument("files", nargs=-1, required=True, type=FILE, callback=each_once)
@click.option(
    "--by",
    default="model,shape",
    show_default=True,
    metavar="COLUMNS",
    help="Cells: model, shape, constraint, arm.",
)
@click.option(
    "--cluster",
    type=click.Choice(["task", "none"]),
    default="task",
    show_default=True,
    help="What is independent: tasks, or every trial.",
)
@click.option("--pool/--no-pool", default=True, show_default=True, help="Learn a cell from the other models'.")
@click.option("--loose", is_flag=True, help='Count "10" for 10 as applied.')
@click.option("--format", "form", metavar="NAME", help="Format of the files, or 'counts'.  [default: by their content]")
@click.option("--strict", is_flag=True, help="Stop at the first fault of a file, in place of leaving it out.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE|DIR",
    help="Write the model as FILE.toml, or every model into DIR.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of the tables.")
@click.option(
    "--figure",
    type=click.Path(path_type=Path),
    metavar="BASE",
    help="Draw the rates (BASE.svg, BASE.png) and how well they predict (BASE-predictive).",
)
def fit(
    files: tuple[Path, ...],
    by: str,
    cluster: str,
    pool: bool,
    loose: bool,
    form: str | None,
    strict: bool,
    out: Path | None,
    as_json: bool,
    figure: Path | None,
) -> None:
    """Fit compliance models to FILES: traces of agents' calls, or CSV files of counts.

    A file of counts has the columns model, shape, kind (first_attempt or recovery), applied and trials, and optionally
    task, constraint, arm, injected (valid, conflict, stale or nothing) and source. A fitted model carries its
    uncertainty into `invsim run`.

    \b
    Example:
      invsim fit counts.csv --out fitted.toml
    """
    from invsim.fit import fit as work_out

    if figure is not None:
        if not figure.name or figure.name == "..":
            raise InputError("takes the name of a file", where="--figure", value=str(figure))
        if figure.suffix in {".svg", ".png"}:
            figure = figure.with_suffix("")
        check_file(figure.with_name(f"{figure.name}.svg"), "--figure")
    columns = split_names(by, "--by")
    tally, reports = _read(files, form, strict)
    require_a_file(reports)
    warnings = [warning for report in reports for warning in report.warnings]
    try:
        found = work_out(tally, by=columns, cluster=cluster, pool=pool, loose=loose)
    except InputError as error:
        where = "--by" if error.where == "by" else ", ".join(map(str, files))
        faults = sum(report.faults for report in reports)
        more = f"; {faults:,} faults, the first {warnings[0]}" if warnings and error.where != "by" else ""
        if "shape" in columns and error.where != "by" and _told_without_shapes(tally):
            more = f"; try --by model, which needs no shape{more}"
        raise InputError(f"{error.what}{more}", where=where, value=error.value) from None
    if not found.identified:
        left = ", ".join(f"{count} {reason}" for reason, count in found.left_out.items()) or "there is no trial"
        raise InputError(f"nothing can be fitted: {left}", where=", ".join(map(str, files)))
    written = [] if out is None else _write(found, out)
    if as_json:
        _print_json(found, reports, written)
    else:
        _print_tables(found, reports, written)
    if figure is not None:
        _draw(found, figure)


def _told_without_shapes(tally: TallyLike) -> bool:
    """Whether there is something to fit if shapes are taken together."""
    from invsim.fit import fit as work_out

    try:
        return work_out(tally, by=("model",), pool=False).identified
    except InputError:
        return False


# Reading -------------------------------------------------------------------------------------------------------------


def _read(files: Sequence[Path], form: str | None, strict: bool) -> tuple[TallyLike, list[FileReport]]:
    """Return the tally of all files, traces and counts, and what was in each, in order."""
    from invsim.fit import combined

    typed = [path for path in files if form == COUNTS or (form is None and _is_counts(path))]
    traces = [path for path in files if path not in typed]
    tallies: list[TallyLike] = []
    reports: dict[Path, FileReport] = {}
    for path in typed:
        tally, reports[path] = _read_counts(path, strict)
        tallies.append(tally)
    if traces:
        from invsim.traces.read import read_tally

        size = sum(path.stat().st_size for path in traces if path.is_file())
        try:
            with progress("reading traces", size) as tick:
                tally, found = read_tally(traces, format=form, strict=strict, progress=tick)
        except UnknownNameError as error:
            raise UnknownNameError("format", error.name, (COUNTS, *error.known), where="--format") from None
        tallies.append(tally)
        reports |= dict(zip(traces, found, strict=True))
    return combined(tallies), [reports[path] for path in files]


def _is_counts(path: Path) -> bool:
    from invsim.fit import is_counts

    if not path.is_file():  # a pipe can be read but once
        return False
    try:
        with path.open("rb") as file:
            return is_counts(file.read(HEAD))
    except OSError:  # told by whoever reads it
        return False


def _read_counts(path: Path, strict: bool) -> tuple[TallyLike, FileReport]:
    from invsim.fit import combined, tally_from_counts
    from invsim.traces.read import UNREADABLE, FileReport, Reported

    report = FileReport(str(path), COUNTS, retries=0)
    faults = Reported(report, strict=False)
    try:
        return tally_from_counts(path, faults=None if strict else faults), report
    except InputError as error:
        if strict:
            raise
        report.format = ""
        got = "" if error.value is None else f" (got {error.value!r})"
        faults.add(error.where.removeprefix(str(path)).lstrip(", "), UNREADABLE, error.what + got)
        return combined([]), report


# Writing -------------------------------------------------------------------------------------------------------------


def _write(found: Fit, out: Path) -> list[Path]:
    """Write one model to a file, or every model into a folder, and return the paths."""
    names, texts = found.model_names, found.models()  # a fit that no model file can hold leaves no folder behind
    if out.suffix.lower() == ".toml" != out.suffix:
        raise InputError("takes a folder, or a file that ends in .toml", where="--out", value=str(out))
    if out.suffix == ".toml":
        if len(names) > 1:
            what = f"{len(names)} models were fitted, {', '.join(names)}; name a folder for them"
            raise InputError(what, where="--out", value=str(out))
        check_file(out, "--out")
        paths = [out]
    else:
        paths = [out / f"{stem}.toml" for stem in _stems(names)]
        for path in paths:
            if path.is_dir():
                raise InputError("is a folder, not a file", where="--out", value=str(path))
        make_folder(out, "--out")
    for name, path in zip(names, paths, strict=True):
        path.write_text(texts[name], encoding="utf-8")
    return paths


def _stems(names: Sequence[str]) -> list[str]:
    """Return for each model what its file is called: no odd characters, and a number where two would be one."""
    taken: dict[str, str] = {}
    for name in names:
        stem = _ODD.sub("-", name)[:LONGEST].strip(".-") or "model"
        tried = itertools.chain([stem], (f"{stem}-{number}" for number in itertools.count(2)))
        free = next(each for each in tried if each.casefold() not in taken)  # some systems do not tell case
        taken[free.casefold()] = free
    return list(taken.values())


def _draw(found: Fit, base: Path) -> None:
    from invsim.fit import cell_rows
    from invsim.report.figures import save
    from invsim.report.figures.compliance import forest_figure, predictive_figure

    rows = cell_rows(found)
    save(forest_figure(rows, title=f"Compliance, {found.confidence:.0%} intervals"), base)
    save(predictive_figure(rows, title="Observed and predicted"), base.with_name(f"{base.name}-predictive"))


# Printing ------------------------------------------------------------------------------------------------------------


def _print_json(found: Fit, reports: Sequence[FileReport], written: Sequence[Path]) -> None:
    from invsim.fit import cell_rows, parameter_rows

    print_json(
        {
            "files": [report.to_dict() for report in reports],
            "by": found.by,
            "confidence": found.confidence,
            "cells": cell_rows(found),
            "parameters": parameter_rows(found),
            "correlation": found.correlation,
            "left_out": found.left_out,
            "models": [str(path) for path in written],
        }
    )


def _print_tables(found: Fit, reports: Sequence[FileReport], written: Sequence[Path]) -> None:
    from invsim.fit import cell_rows, parameter_rows

    trials = sum(each.trials for each in found.cells)
    click.echo(f"{trials:,} trials of {len(found.model_names)} models; {found.confidence:.0%} intervals")
    cells = cell_rows(found)
    seen = {row["kind"] for row in cells if row["trials"] or row["status"] != "no data"}
    if shown := [_shown(found, row, "kind") for row in cells if row["kind"] in seen]:
        print_rows(shown)
    others = parameter_rows(found)
    if known := [row for row in others if row["status"] == "ok"]:
        click.echo("")
        print_rows([_shown(found, row, "parameter") for row in known])
    click.echo("")
    for kind in dict.fromkeys(row["kind"] for row in cells if row["kind"] not in seen):
        click.echo(f"no data: {kind}: {next(row['reason'] for row in cells if row['kind'] == kind)}")
    for reason, names in _unknown(found, others).items():
        click.echo(one_line(f"not identified: {', '.join(names)}: {reason}"))
    if found.arms > 1:
        same = f"note: {found.arms} arms of a simulation meet the same random numbers"
        click.echo(f"{same}; trials that they may repeat count once")
    for reason, count in found.left_out.items():
        click.echo(one_line(f"left out: {count:,}, {reason}"))
    for report in reports:
        for warning in report.warnings:
            click.echo(one_line(f"warning: {warning}"))
        if report.faults > len(report.warnings):
            more = report.faults - len(report.warnings)
            click.echo(one_line(f"warning: {report.file}: {more:,} more are counted, and not shown"))
    for name, path in zip(found.model_names, written, strict=False):
        of = "" if name == path.stem or len(written) == 1 else f" ({name})"
        click.echo(one_line(f"wrote {path}{of}; try: invsim run payments --model {shlex.quote(str(path))}"))


def _shown(found: Fit, row: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a row for people."""
    key = {column: str(row[column]) for column in found.by}
    if "counts" in row:
        counts = "/".join(map(str, [*row["counts"], row["exhausted"]]))
        return {**key, name: row[name], "applied": f"{counts} of {row['trials']}", **_empty()}
    applied = f"{row['applied']} of {row['trials']}" if row["trials"] else row["status"]
    return {
        **key,
        name: row[name],
        "applied": applied,
        "rate": _number(row["rate"]),
        "independent": _interval(row, ""),
        "tasks": "" if row["clusters"] is None else str(row["clusters"]),
        "by task": _interval(row, "cluster_"),
        "pooled": _number(row["pooled"]),
        "pooled interval": _interval(row, "pooled_"),
    }


def _empty() -> dict[str, str]:
    return dict.fromkeys(("rate", "independent", "tasks", "by task", "pooled", "pooled interval"), "")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _interval(row: dict[str, Any], prefix: str) -> str:
    lo, hi = row[f"{prefix}lo"], row[f"{prefix}hi"]
    return "" if lo is None else f"{lo:.3f} to {hi:.3f}"


def _unknown(found: Fit, rows: Sequence[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the parameters that are not identified, by reason: by name alone where it is so in every cell."""
    cells = len({tuple(row[column] for column in found.by) for row in rows})
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row["status"] != "ok":
            place = " ".join(str(row[column]) for column in found.by)
            reasons.setdefault((row["reason"], row["parameter"]), []).append(place)
    merged: dict[str, list[str]] = {}
    for (reason, parameter), places in reasons.items():
        names = [parameter] if len(places) == cells else [f"{parameter} of {place}" for place in places]
        merged.setdefault(reason, []).extend(names)
    return merged
