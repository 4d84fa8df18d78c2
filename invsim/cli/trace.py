"""``invsim trace``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from invsim.cli.inputs import FILE, check_file, each_once, require_a_file
from invsim.cli.output import print_json, print_rows, progress
from invsim.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from invsim.traces.read import FileReport
    from invsim.traces.schema import Call

FILES = click.argument("files", nargs=-1, required=True, type=FILE, callback=each_once)
FORMAT = click.option("--format", "form", metavar="NAME", help="Format of the files.  [default: told by their content]")
STRICT = click.option("--strict", is_flag=True, help="Stop at the first fault, with exit code 2.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON in place of the table.")


@click.group()
def trace() -> None:
    """Check, convert and sum up traces: logs of what agents called and what came of it.

    \b
    Example:
      invsim trace summary trace.jsonl
    """


@trace.command()
@FILES
@FORMAT
@STRICT
@JSON
def check(files: Sequence[Path], form: str | None, strict: bool, as_json: bool) -> None:
    """Read FILES, and say what was there and what is wrong with it, fault by fault.

    \b
    Example:
      invsim trace check trace.jsonl
    """
    reports = []
    for report, calls in _reading(files, form, strict):
        for _ in calls:
            pass
        reports.append(report)
    require_a_file(reports)
    if as_json:
        print_json([report.to_dict() for report in reports])
        return
    _print_reports(reports)
    for report in reports:
        for line in report.warnings:
            click.echo(line)
        if report.faults > len(report.warnings):
            click.echo(f"{report.file}: {report.faults - len(report.warnings):,} more are counted, and not shown")


@trace.command()
@FILES
@FORMAT
@STRICT
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="Write here: .jsonl or .parquet."
)
@JSON
def convert(files: Sequence[Path], form: str | None, strict: bool, out: Path, as_json: bool) -> None:
    """Write the calls of FILES, of any known format, as one trace of the native format.

    \b
    Example:
      invsim trace convert trace.jsonl --out trace.parquet
    """
    from invsim.traces.writing import SUFFIXES, write_calls

    if out.suffix not in SUFFIXES:
        raise InputError("takes a file that ends in .jsonl or .parquet", where="--out", value=str(out))
    check_file(out, "--out")
    if os.path.realpath(out) in map(os.path.realpath, files):
        raise InputError("is one of the files to be read", where="--out", value=str(out))
    reports: list[FileReport] = []
    write_calls(out, _all_calls(files, form, strict, reports))
    if as_json:
        print_json([report.to_dict() for report in reports])
        return
    _print_reports(reports)
    _print_unread(reports)


@trace.command()
@FILES
@FORMAT
@STRICT
@JSON
def summary(files: Sequence[Path], form: str | None, strict: bool, as_json: bool) -> None:
    """Count what is in FILES: calls by model, tool and outcome, and trials by hint shape and by what came of them.

    \b
    Example:
      invsim trace summary trace.jsonl
    """
    from invsim.traces.read import read_tally

    with _progress(files) as tick:
        tally, reports = read_tally(files, format=form, strict=strict, progress=tick)
    require_a_file(reports)
    parts = {
        "calls": _totals(tally.calls, ["model", "tool", "outcome"]),
        "trials": _totals(tally.trials, ["model", "kind", "shape", "attribution", "result"]),
        "episodes": _totals(tally.episodes, ["model", "shape", "injected", "ended"]),
    }
    if as_json:
        print_json({"files": [report.to_dict() for report in reports], **parts})
        return
    _print_reports(reports)
    _print_unread(reports)
    for name, rows in parts.items():
        if rows:
            click.echo(f"\n{name}")
            print_rows([{key: "-" if value is None else value for key, value in row.items()} for row in rows])


# Reading ------------------------------------------------------------------------------------------------------------


def _reading(files: Sequence[Path], form: str | None, strict: bool) -> Iterator[tuple[FileReport, Iterator[Call]]]:
    from invsim.traces.read import read_calls

    with _progress(files) as tick:
        for path, (report, calls) in zip(files, read_calls(files, format=form, strict=strict), strict=True):
            yield report, calls
            if tick is not None and path.is_file():
                tick(path.stat().st_size)


def _progress(files: Sequence[Path]) -> Any:
    return progress("reading traces", sum(path.stat().st_size for path in files if path.is_file()))


def _all_calls(files: Sequence[Path], form: str | None, strict: bool, reports: list[FileReport]) -> Iterator[Call]:
    """Yield the calls of all files, each episode named by its file too where there are several."""
    import msgspec

    for number, (report, calls) in enumerate(_reading(files, form, strict), 1):
        reports.append(report)
        for call in calls:
            yield (
                call
                if len(files) == 1
                else msgspec.structs.replace(call, episode_id=f"{number}/{call.episode_id}", task_id=call.task)
            )
    require_a_file(reports)  # before a file is written without a row
    lost = [report.warnings[0] for report in reports if report.skipped]
    if lost and not any(report.calls for report in reports):
        raise InputError(f"no call can be read, and nothing is written: {lost[0]}")


def _totals(counts: pl.DataFrame, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return counts by some of their columns, sorted."""
    import polars as pl

    return counts.group_by(names).agg(pl.col("n").sum()).sort(names).to_dicts()


def _print_reports(reports: Sequence[FileReport]) -> None:
    print_rows(
        [
            {
                "file": report.file,
                "format": report.format or "-",
                "episodes": f"{report.episodes:,}",
                "calls": f"{report.calls:,}",
                "errors": f"{report.errors:,}",
                "lost": _kinds(report.skipped),
                "doubtful": _kinds(report.noted),
            }
            for report in reports
        ]
    )


def _print_unread(reports: Sequence[FileReport]) -> None:
    """Say of files that could not be read why."""
    for report in reports:
        if not report.format:
            click.echo(report.warnings[-1], err=True)


def _kinds(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items())) or "-"
